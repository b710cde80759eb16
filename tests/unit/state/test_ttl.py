from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tidemark.errors import ConfigError
from tidemark.state.expiry import Expiry
from tidemark.state.ttl import StateTtlConfig
from tidemark.types.time import Duration, Time

Update, Visibility = StateTtlConfig.UpdateType, StateTtlConfig.StateVisibility


def test_the_boundary_counts_as_expired() -> None:
    assert not Expiry(10).is_expired(100, 109)
    assert Expiry(10).is_expired(100, 110)


@pytest.mark.parametrize("length", [Time.seconds(2), timedelta(seconds=2), 2000])
def test_the_length_is_given_in_any_unit(length: Any) -> None:
    config = StateTtlConfig.new_builder(length).build()

    assert config.ttl_ms == 2000
    assert config.get_ttl().to_milliseconds() == 2000


@pytest.mark.parametrize("length", [0, -5, Time.milliseconds(0)])
def test_the_length_is_positive(length: Any) -> None:
    with pytest.raises(ConfigError, match="positive"):
        StateTtlConfig.new_builder(length)


def test_the_defaults_are_those_of_the_specification() -> None:
    config = StateTtlConfig.new_builder(1).build()
    cleanup = config.get_cleanup_strategies()

    assert config.get_update_type() is Update.OnCreateAndWrite
    assert config.get_state_visibility() is Visibility.NeverReturnExpired
    assert config.get_ttl_time_characteristic() is StateTtlConfig.TtlTimeCharacteristic.ProcessingTime
    assert config.is_enabled()
    assert cleanup.is_cleanup_in_background()
    assert not cleanup.in_full_snapshot()
    assert cleanup.get_incremental_cleanup_strategy() == (5, False)
    compaction = cleanup.get_rocksdb_compact_filter_cleanup_strategy()
    assert compaction is not None
    assert compaction.get_query_time_after_num_entries() == 1000


def test_everything_can_be_set() -> None:
    config = (
        StateTtlConfig.new_builder(1)
        .set_ttl(7)
        .update_ttl_on_read_and_write()
        .return_expired_if_not_cleaned_up()
        .use_processing_time()
        .set_ttl_time_characteristic(StateTtlConfig.TtlTimeCharacteristic.ProcessingTime)
        .cleanup_full_snapshot()
        .cleanup_incrementally(9, True)
        .cleanup_in_rocksdb_compact_filter(50, Time.seconds(1))
        .build()
    )
    cleanup = config.get_cleanup_strategies()

    assert config.ttl_ms == 7
    assert config.get_update_type() is Update.OnReadAndWrite
    assert config.get_state_visibility() is Visibility.ReturnExpiredIfNotCleanedUp
    assert cleanup.in_full_snapshot()
    incremental = cleanup.get_incremental_cleanup_strategy()
    assert incremental is not None
    assert (incremental.get_cleanup_size(), incremental.run_cleanup_for_every_record()) == (9, True)
    assert cleanup.get_rocksdb_compact_filter_cleanup_strategy() == (50, Time.seconds(1))


def test_the_shortcuts_set_the_defaults_again() -> None:
    builder = StateTtlConfig.new_builder(1).set_update_type(Update.OnReadAndWrite)
    builder.set_state_visibility(Visibility.ReturnExpiredIfNotCleanedUp)

    config = builder.update_ttl_on_create_and_write().never_return_expired().build()

    assert config.get_update_type() is Update.OnCreateAndWrite
    assert config.get_state_visibility() is Visibility.NeverReturnExpired


def test_without_the_background_only_explicit_strategies_remain() -> None:
    bare = StateTtlConfig.new_builder(1).disable_cleanup_in_background().build().get_cleanup_strategies()
    explicit = StateTtlConfig.new_builder(1).cleanup_incrementally(3).disable_cleanup_in_background().build()
    again = StateTtlConfig.new_builder(1).disable_cleanup_in_background().cleanup_in_background().build()

    assert bare.get_incremental_cleanup_strategy() is None
    assert bare.get_rocksdb_compact_filter_cleanup_strategy() is None
    assert explicit.get_cleanup_strategies().get_incremental_cleanup_strategy() == (3, False)
    assert again.get_cleanup_strategies().is_cleanup_in_background()


def test_bad_settings_are_refused() -> None:
    nonsense: Any = "event time"
    with pytest.raises(ConfigError, match="cleanup_size"):
        StateTtlConfig.new_builder(1).cleanup_incrementally(0)
    with pytest.raises(ConfigError, match="characteristic"):
        StateTtlConfig.new_builder(1).set_ttl_time_characteristic(nonsense)


def test_update_type_disabled_means_no_time_to_live() -> None:
    assert not StateTtlConfig.new_builder(1).set_update_type(Update.Disabled).build().is_enabled()


@pytest.mark.parametrize("nothing", [(), (None,), (0,), (False,), ("",)])
def test_a_period_that_was_not_given_is_shown_as_pyflinks_and_means_none(nothing):
    config = StateTtlConfig.new_builder(1).cleanup_in_rocksdb_compact_filter(17, *nothing).build()
    strategy = config.get_cleanup_strategies().get_rocksdb_compact_filter_cleanup_strategy()

    assert strategy.get_query_time_after_num_entries() == 17
    assert strategy.get_periodic_compaction_time() == Duration.of_days(30)
    assert strategy.period_ms is None


@pytest.mark.parametrize("given", [Duration.of_hours(1), Time.hours(1), 3_600_000])
def test_a_period_comes_back_as_it_was_given(given):
    config = StateTtlConfig.new_builder(1).cleanup_in_rocksdb_compact_filter(17, given).build()
    strategy = config.get_cleanup_strategies().get_rocksdb_compact_filter_cleanup_strategy()

    assert strategy.get_periodic_compaction_time() is given
    assert strategy.period_ms == 3_600_000
