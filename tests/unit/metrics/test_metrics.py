from __future__ import annotations

from decimal import Decimal
from enum import IntEnum
from typing import Any

import numpy as np
import pytest

from tidemark.clock import ManualClock
from tidemark.errors import ConfigError
from tidemark.metrics import MetricGroup, MetricRegistry


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000)


@pytest.fixture
def registry(clock: ManualClock) -> MetricRegistry:
    return MetricRegistry(clock)


@pytest.fixture
def group(registry: MetricRegistry) -> MetricGroup:
    return registry.group("job", "op")


def test_counter_counts_both_ways(group: MetricGroup) -> None:
    counter = group.counter("seen")

    counter.inc()
    counter.inc(5)
    counter.dec(2)

    assert counter.get_count() == 4


def test_asking_again_returns_the_same_instrument(group: MetricGroup) -> None:
    assert group.counter("seen") is group.counter("seen")
    assert group.distribution("size") is group.distribution("size")


def test_one_name_cannot_be_two_kinds(group: MetricGroup) -> None:
    group.counter("seen")

    with pytest.raises(ConfigError, match=r"job\.op\.seen.*Counter"):
        group.meter("seen")


def test_empty_name_is_refused(group: MetricGroup) -> None:
    with pytest.raises(ConfigError, match="non-empty name"):
        group.counter("")


def test_meter_rate_covers_its_span_only(group: MetricGroup, clock: ManualClock) -> None:
    meter = group.meter("events", time_span_in_seconds=10)

    meter.mark_event(20)
    clock.advance(5_000)
    meter.mark_event(10)
    meter.mark_event(10)
    assert (meter.get_count(), meter.get_rate()) == (40, 4.0)

    clock.advance(5_000)
    assert (meter.get_count(), meter.get_rate()) == (40, 2.0)


def test_meter_needs_a_second_at_least(group: MetricGroup) -> None:
    with pytest.raises(ConfigError, match="at least 1 second"):
        group.meter("events", time_span_in_seconds=0)


def test_distribution_keeps_count_sum_and_extremes(group: MetricGroup, registry: MetricRegistry) -> None:
    distribution = group.distribution("size")
    assert registry.snapshot()["job.op.size"]["count"] == 0

    for value in (5, -1, 8):
        distribution.update(value)

    assert registry.snapshot()["job.op.size"] == {"count": 3, "sum": 12, "min": -1, "max": 8, "mean": 4.0}


def test_gauge_is_asked_when_read_and_may_be_replaced(group: MetricGroup, registry: MetricRegistry) -> None:
    group.gauge("depth", lambda: 1)
    group.gauge("depth", lambda: 2)

    assert registry.snapshot() == {"job.op.depth": 2}


def test_failing_gauge_reads_as_none(group: MetricGroup, registry: MetricRegistry) -> None:
    def ask() -> Any:
        raise RuntimeError("gone")

    group.gauge("depth", ask)

    assert registry.snapshot() == {"job.op.depth": None}


def test_gauge_needs_a_function(group: MetricGroup) -> None:
    with pytest.raises(TypeError, match="function without arguments"):
        group.gauge("depth", 3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (IntEnum("Level", "LOW")(1), 1),
        (Decimal("1.5"), "1.5"),
        (type("Own", (), {"__str__": lambda self: "own"})(), "own"),
        (True, True),
        (None, None),
    ],
)
def test_a_gauge_tells_plain_data_that_every_process_can_read(value: object, told: object) -> None:
    registry = MetricRegistry()
    registry.group().gauge("level", lambda: value)

    read = registry.snapshot()["level"]

    assert (read, type(read)) == (told, type(told))


def test_groups_nest_with_and_without_a_value(group: MetricGroup, registry: MetricRegistry) -> None:
    group.add_group("user").counter("a").inc()
    group.add_group("state", "cart").counter("b").inc()

    assert registry.snapshot() == {"job.op.user.a": 1, "job.op.state.cart.b": 1}
    assert group.get_scope_components() == ("job", "op")
    assert group.get_metric_identifier("x") == "job.op.x"


def test_removing_a_scope_forgets_its_instruments_only(registry: MetricRegistry) -> None:
    registry.group("a").counter("x")
    registry.group("b").counter("x")
    registry.group("ab").counter("x")

    registry.remove("a")

    assert set(registry.snapshot()) == {"b.x", "ab.x"}
