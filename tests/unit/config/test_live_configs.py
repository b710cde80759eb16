from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tidemark.api.checkpoint_config import CheckpointConfig
from tidemark.api.checkpoint_storage import CheckpointStorage, FileSystemCheckpointStorage
from tidemark.api.execution_config import ExecutionConfig
from tidemark.config import (
    CheckpointingMode,
    Configuration,
    ExternalizedCheckpointCleanup,
    ExternalizedCheckpointRetention,
    RestartStrategies,
    RestartStrategyConfiguration,
    RuntimeExecutionMode,
    resolve_restart_strategy,
    retained_checkpoints,
)
from tidemark.config.loader import default_parallelism
from tidemark.errors import ConfigError
from tidemark.types.time import Duration, Time


def conf(**values: Any) -> Configuration:
    return Configuration.from_dict({k.replace("__", ".").replace("_", "-"): v for k, v in values.items()})


class TestCheckpointConfig:
    def test_defaults(self) -> None:
        config = CheckpointConfig()

        assert config.get_checkpoint_interval() == -1
        assert config.get_effective_checkpoint_interval() == -1
        assert not config.is_checkpointing_enabled()
        assert config.get_checkpointing_mode() is CheckpointingMode.EXACTLY_ONCE
        assert config.get_checkpoint_timeout() == CheckpointConfig.DEFAULT_TIMEOUT == 600_000
        assert config.get_min_pause_between_checkpoints() == 0
        assert config.get_max_concurrent_checkpoints() == 1
        assert config.is_fail_on_checkpointing_errors()
        assert config.get_tolerable_checkpoint_failure_number() == 0
        assert not config.is_externalized_checkpoints_enabled()
        assert not config.is_force_checkpointing()
        assert not config.is_unaligned_checkpoints_enabled()
        assert not config.is_force_unaligned_checkpoints()
        assert config.get_aligned_checkpoint_timeout() == Duration.of_millis(0)
        assert config.get_checkpoint_storage() is None

    def test_setters_chain_and_take_every_form_of_time(self) -> None:
        config = (
            CheckpointConfig()
            .set_checkpoint_interval(Time.seconds(1))
            .set_checkpointing_mode(CheckpointingMode.AT_LEAST_ONCE)
            .set_checkpoint_timeout(timedelta(minutes=1))
            .set_min_pause_between_checkpoints(Duration.of_millis(500))
            .set_max_concurrent_checkpoints(2)
            .set_tolerable_checkpoint_failure_number(3)
            .set_externalized_checkpoint_retention(ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION)
            .set_force_checkpointing(True)
            .enable_unaligned_checkpoints()
            .set_force_unaligned_checkpoints(True)
            .set_aligned_checkpoint_timeout(20)
        )

        assert config.get_checkpoint_interval() == 1000
        assert config.is_checkpointing_enabled()
        assert config.get_checkpointing_consistency_mode() is CheckpointingMode.AT_LEAST_ONCE
        assert config.get_checkpoint_timeout() == 60_000
        assert config.get_min_pause_between_checkpoints() == 500
        assert config.get_max_concurrent_checkpoints() == 2
        assert config.get_tolerable_checkpoint_failure_number() == 3
        assert config.get_externalized_checkpoint_cleanup().name == "RETAIN_ON_CANCELLATION"
        assert config.is_externalized_checkpoints_enabled()
        assert config.is_force_checkpointing()
        assert config.is_unaligned_checkpoints_enabled()
        assert config.is_force_unaligned_checkpoints()
        assert config.get_aligned_checkpoint_timeout().to_millis() == 20
        assert not config.disable_unaligned_checkpoints().is_unaligned_checkpoints_enabled()

    @pytest.mark.parametrize(
        "call",
        [
            lambda c: c.set_checkpoint_interval(9),
            lambda c: c.set_checkpoint_timeout(9),
            lambda c: c.set_min_pause_between_checkpoints(-1),
            lambda c: c.set_max_concurrent_checkpoints(0),
            lambda c: c.set_tolerable_checkpoint_failure_number(-1),
            lambda c: c.set_aligned_checkpoint_timeout(-1),
            lambda c: c.set_checkpoint_storage_dir(""),
        ],
    )
    def test_numbers_out_of_range_are_value_errors(self, call: Callable[[CheckpointConfig], Any]) -> None:
        with pytest.raises(ValueError, match="must"):
            call(CheckpointConfig())

    @pytest.mark.parametrize(
        "call",
        [
            lambda c: c.set_checkpoint_interval("10 s"),
            lambda c: c.set_checkpointing_mode("EXACTLY_ONCE"),
            lambda c: c.set_max_concurrent_checkpoints(1.5),
            lambda c: c.set_externalized_checkpoint_retention(1),
            lambda c: c.set_checkpoint_storage(3),
            lambda c: c.set_checkpoint_storage(None),
        ],
    )
    def test_values_of_the_wrong_type_are_type_errors(self, call: Callable[[CheckpointConfig], Any]) -> None:
        with pytest.raises(TypeError, match="must be"):
            call(CheckpointConfig())

    def test_failing_on_errors_and_the_tolerable_number_are_one_value(self) -> None:
        config = CheckpointConfig().set_fail_on_checkpointing_errors(False)
        assert config.get_tolerable_checkpoint_failure_number() == 2147483647
        assert not config.is_fail_on_checkpointing_errors()

        config.set_fail_tasks_on_checkpointing_errors(True)
        assert config.get_tolerable_checkpoint_failure_number() == 0

    def test_older_externalized_names_are_the_same(self) -> None:
        assert ExternalizedCheckpointCleanup is ExternalizedCheckpointRetention

        config = CheckpointConfig().enable_externalized_checkpoints(
            ExternalizedCheckpointCleanup.DELETE_ON_CANCELLATION
        )

        assert config.get_externalized_checkpoint_retention().name == "DELETE_ON_CANCELLATION"

    def test_configuration_gives_values_and_setters_win(self) -> None:
        config = CheckpointConfig(
            conf(execution__checkpointing__interval="5 s", execution__checkpointing__mode="at_least_once")
        )
        assert config.get_checkpoint_interval() == 5000
        assert config.get_checkpointing_mode() is CheckpointingMode.AT_LEAST_ONCE

        config.set_checkpoint_interval(100)
        assert config.get_checkpoint_interval() == 100
        assert config.programmatic.to_dict() == {"execution.checkpointing.interval": "100"}

    def test_disabling_wins_over_the_configuration(self) -> None:
        config = CheckpointConfig(conf(execution__checkpointing__interval="5 s"))

        config.disable_checkpointing()

        assert config.get_checkpoint_interval() == -1

    def test_configure_applies_only_the_keys_present(self) -> None:
        config = CheckpointConfig().set_checkpoint_interval(100).set_checkpoint_timeout(50)

        config.configure(conf(execution__checkpointing__timeout="1 min", unrelated="x"))

        assert (config.get_checkpoint_interval(), config.get_checkpoint_timeout()) == (100, 60_000)
        assert not config.programmatic.contains_key("unrelated")

    def test_bad_configuration_changes_nothing(self) -> None:
        config = CheckpointConfig()

        with pytest.raises(ConfigError, match="timeout"):
            config.configure(
                conf(execution__checkpointing__min_pause="1 s", execution__checkpointing__timeout="1 ms")
            )
        assert config.get_min_pause_between_checkpoints() == 0

    @pytest.mark.parametrize("text", ["0", "-1"])
    def test_interval_of_zero_in_a_file_means_off(self, text: str) -> None:
        config = CheckpointConfig(conf(execution__checkpointing__interval=text))

        assert not config.is_checkpointing_enabled()

    def test_interval_too_short_in_a_file_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="at least 10 ms"):
            CheckpointConfig(conf(execution__checkpointing__interval="5 ms"))

    def test_pause_stretches_the_interval_and_leaves_room_for_one(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        config = (
            CheckpointConfig()
            .set_checkpoint_interval(100)
            .set_min_pause_between_checkpoints(500)
            .set_max_concurrent_checkpoints(3)
        )

        assert config.get_effective_checkpoint_interval() == 500
        assert config.get_max_concurrent_checkpoints() == 3
        assert config.get_effective_max_concurrent_checkpoints() == 1
        with caplog.at_level(logging.WARNING):
            config.validate()
        assert "one at a time" in caplog.text

    def test_unaligned_needs_exactly_once(self) -> None:
        config = CheckpointConfig().enable_unaligned_checkpoints()
        config.validate()

        config.set_checkpointing_mode(CheckpointingMode.AT_LEAST_ONCE)
        with pytest.raises(ConfigError, match="EXACTLY_ONCE"):
            config.validate()

    def test_storage_may_be_an_object_or_a_directory(self) -> None:
        class Mine(CheckpointStorage): ...

        storage, files = Mine(), FileSystemCheckpointStorage("file:///x")

        assert CheckpointConfig().set_checkpoint_storage(storage).get_checkpoint_storage() is storage
        assert CheckpointConfig().set_checkpoint_storage("file:///x").get_checkpoint_storage() == files
        assert CheckpointConfig().set_checkpoint_storage_dir("file:///x").get_checkpoint_storage() == files

    def test_at_least_one_checkpoint_is_retained(self, caplog: pytest.LogCaptureFixture) -> None:
        assert retained_checkpoints(conf()) == 1
        assert retained_checkpoints(conf(state__checkpoints__num_retained="3")) == 3
        with caplog.at_level(logging.WARNING):
            assert retained_checkpoints(conf(execution__checkpointing__num_retained="0")) == 1
        assert "at least 1" in caplog.text


class TestExecutionConfig:
    def test_defaults(self) -> None:
        config = ExecutionConfig()

        assert config.get_parallelism() == default_parallelism() >= 1
        assert config.get_max_parallelism() == -1
        assert config.get_auto_watermark_interval() == 200
        assert config.get_global_job_parameters() == {}
        assert config.get_runtime_mode() is RuntimeExecutionMode.STREAMING
        assert not config.is_object_reuse_enabled()
        assert config.has_auto_generated_uids_enabled()
        assert not config.is_use_snapshot_compression()

    def test_setters_chain(self) -> None:
        config = (
            ExecutionConfig()
            .set_parallelism(3)
            .set_max_parallelism(32768)
            .set_auto_watermark_interval(Time.seconds(1))
            .set_global_job_parameters({"a": 1})
            .set_runtime_mode(RuntimeExecutionMode.BATCH)
            .enable_object_reuse()
            .disable_auto_generated_uids()
            .set_use_snapshot_compression(True)
            .set_latency_tracking_interval(5)
        )

        assert (config.get_parallelism(), config.get_max_parallelism()) == (3, 32768)
        assert config.get_auto_watermark_interval() == 1000
        assert config.get_global_job_parameters() == {"a": "1"}
        assert config.get_runtime_mode() is RuntimeExecutionMode.BATCH
        assert config.is_object_reuse_enabled()
        assert not config.disable_object_reuse().is_object_reuse_enabled()
        assert not config.has_auto_generated_uids_enabled()
        assert config.enable_auto_generated_uids().has_auto_generated_uids_enabled()
        assert config.is_use_snapshot_compression()
        assert config.get_latency_tracking_interval() == 5

    @pytest.mark.parametrize("number", [0, -1, 32769])
    def test_parallelism_is_limited(self, number: int) -> None:
        with pytest.raises(ValueError, match="between 1 and 32768"):
            ExecutionConfig().set_parallelism(number)
        with pytest.raises(ValueError, match="between 1 and 32768"):
            ExecutionConfig().set_max_parallelism(number)

    def test_wrong_values_are_refused(self) -> None:
        with pytest.raises(TypeError, match="must be an int"):
            ExecutionConfig().set_parallelism("2")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="negative"):
            ExecutionConfig().set_auto_watermark_interval(-1)
        with pytest.raises(TypeError, match="Mapping"):
            ExecutionConfig().set_global_job_parameters([1])  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="RuntimeExecutionMode"):
            ExecutionConfig().set_runtime_mode("BATCH")  # type: ignore[arg-type]

    def test_configuration_gives_values_and_setters_win(self) -> None:
        config = ExecutionConfig(conf(parallelism__default="4", execution__runtime_mode="batch"))
        assert (config.get_parallelism(), config.get_runtime_mode().name) == (4, "BATCH")

        assert config.set_parallelism(2).get_parallelism() == 2

    def test_kryo_and_closure_cleaner_are_accepted(self) -> None:
        config = ExecutionConfig().disable_closure_cleaner().enable_force_kryo().disable_generic_types()
        assert not config.is_closure_cleaner_enabled()
        assert config.is_force_kryo_enabled()
        assert config.has_generic_types_disabled()

        config.enable_closure_cleaner().disable_force_kryo().enable_generic_types()
        assert config.is_closure_cleaner_enabled()
        assert not config.is_force_kryo_enabled()
        assert not config.has_generic_types_disabled()
        assert config.add_default_kryo_serializer("a", "b") is config
        assert config.register_type_with_kryo_serializer("a", "b") is config
        assert config.register_kryo_type("a").register_pojo_type("b") is config


class TestRestartStrategies:
    def test_fixed_delay(self) -> None:
        strategy = RestartStrategies.fixed_delay_restart(3, Time.seconds(10))

        assert strategy.get_restart_attempts() == 3
        assert strategy.get_delay_between_attempts_interval() == timedelta(seconds=10)
        assert strategy == RestartStrategies.fixed_delay_restart(3, 10_000)
        assert strategy != RestartStrategies.fixed_delay_restart(4, 10_000)
        assert isinstance(strategy, RestartStrategies.FixedDelayRestartStrategyConfiguration)
        assert "10000 ms" in strategy.get_description()

    def test_failure_rate(self) -> None:
        strategy = RestartStrategies.failure_rate_restart(3, timedelta(minutes=5), 10_000)

        assert strategy.get_max_failure_rate() == 3
        assert strategy.get_failure_interval() == timedelta(minutes=5)
        assert strategy.get_delay_between_attempts_interval() == timedelta(seconds=10)
        assert "300000 ms" in strategy.get_description()

    def test_the_other_two(self) -> None:
        none, fallback = RestartStrategies.no_restart(), RestartStrategies.fall_back_restart()

        assert none == RestartStrategies.no_restart() != fallback
        assert none.get_description() != fallback.get_description()
        assert isinstance(none, RestartStrategyConfiguration)

    @pytest.mark.parametrize("delay", ["10 s", None, 1.5])
    def test_delays_of_the_wrong_type_are_type_errors(self, delay: Any) -> None:
        with pytest.raises(TypeError, match="restart delay"):
            RestartStrategies.fixed_delay_restart(3, delay)
        with pytest.raises(TypeError, match="restart delay"):
            RestartStrategies.failure_rate_restart(3, 1000, delay)
        with pytest.raises(TypeError, match="failure interval"):
            RestartStrategies.failure_rate_restart(3, delay, 1000)

    @pytest.mark.parametrize(
        "make",
        [
            lambda: RestartStrategies.fixed_delay_restart(-1, 0),
            lambda: RestartStrategies.fixed_delay_restart(1, -1),
            lambda: RestartStrategies.failure_rate_restart(0, 1, 1),
            lambda: RestartStrategies.failure_rate_restart(1, 0, 1),
            lambda: RestartStrategies.exponential_delay_restart(0, 1, 1.5, 1, 0.1),
            lambda: RestartStrategies.exponential_delay_restart(1, 1, 0.9, 1, 0.1),
            lambda: RestartStrategies.exponential_delay_restart(1, 1, float("nan"), 1, 0.1),
            lambda: RestartStrategies.exponential_delay_restart(1, 1, 1.5, 1, 1.1),
        ],
    )
    def test_numbers_out_of_range_are_value_errors(self, make: Callable[[], Any]) -> None:
        with pytest.raises(ValueError, match="must"):
            make()

    @pytest.mark.parametrize(
        ("settings", "checkpointing", "expected"),
        [
            ({}, False, RestartStrategies.no_restart()),
            ({}, True, RestartStrategies.exponential_delay_restart(1000, 60_000, 1.5, 3_600_000, 0.1)),
            ({"restart-strategy": "off"}, True, RestartStrategies.no_restart()),
            ({"restart-strategy.type": "fixed-delay"}, False, RestartStrategies.fixed_delay_restart(1, 1000)),
            (
                {
                    "restart-strategy": "fixeddelay",
                    "restart-strategy.fixed-delay.attempts": "3",
                    "restart-strategy.fixed-delay.delay": "10 s",
                },
                True,
                RestartStrategies.fixed_delay_restart(3, 10_000),
            ),
            (
                {
                    "restart-strategy": "failure-rate",
                    "restart-strategy.failure-rate.max-failures-per-interval": "3",
                    "restart-strategy.failure-rate.failure-rate-interval": "5 min",
                    "restart-strategy.failure-rate.delay": "10 s",
                },
                True,
                RestartStrategies.failure_rate_restart(3, 300_000, 10_000),
            ),
            (
                {"restart-strategy": "failurerate"},
                True,
                RestartStrategies.failure_rate_restart(1, 60_000, 1000),
            ),
        ],
    )
    @pytest.mark.parametrize("programmed", [None, RestartStrategies.fall_back_restart()])
    def test_configuration_decides_when_the_program_does_not(
        self,
        programmed: RestartStrategyConfiguration | None,
        settings: dict[str, str],
        checkpointing: bool,
        expected: RestartStrategyConfiguration,
    ) -> None:
        configuration = Configuration.from_dict(settings)

        assert resolve_restart_strategy(programmed, configuration, checkpointing) == expected

    def test_program_wins(self) -> None:
        chosen = RestartStrategies.no_restart()

        assert resolve_restart_strategy(chosen, conf(restart_strategy="fixed-delay"), True) is chosen

    def test_unknown_strategy_is_an_error(self) -> None:
        with pytest.raises(ConfigError, match="Unknown restart strategy 'often'"):
            resolve_restart_strategy(None, conf(restart_strategy="often"), True)
