from __future__ import annotations

from datetime import timedelta

import pytest

from tidemark import Duration, TimestampAssigner, WatermarkStrategy


class Second(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


def test_watermarks_stay_behind_the_newest_timestamp():
    assert WatermarkStrategy.for_monotonous_timestamps().watermark_after(10) == 9
    assert WatermarkStrategy.for_bounded_out_of_orderness(timedelta(milliseconds=3)).watermark_after(10) == 6
    assert WatermarkStrategy.no_watermarks().watermark_after(10) is None


@pytest.mark.parametrize("assigner_first", [True, False])
def test_the_assigner_is_kept_whatever_the_order_of_calls(assigner_first):
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    if assigner_first:
        strategy = strategy.with_timestamp_assigner(Second())
    strategy = strategy.with_idleness(Duration.of_seconds(1)).with_watermark_alignment("g", 5)
    if not assigner_first:
        strategy = strategy.with_timestamp_assigner(Second())

    assert strategy.assigner(("a", 7), -1) == 7
    assert strategy.idle_timeout_ms == 1000
    assert strategy.alignment.update_interval_ms == 1000


def test_strategies_are_values():
    base = WatermarkStrategy.for_monotonous_timestamps()

    base.with_timestamp_assigner(lambda value, timestamp: value)

    assert base.assigner is None


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="negative"):
        WatermarkStrategy.for_bounded_out_of_orderness(-1)
    with pytest.raises(ValueError, match="positive"):
        WatermarkStrategy.no_watermarks().with_idleness(0)
    with pytest.raises(TypeError, match="TimestampAssigner"):
        WatermarkStrategy.no_watermarks().with_timestamp_assigner(5)
