"""`ExecutionConfig`: how a job is spread out and run, apart from checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemark.api.deprecation import deprecated
from tidemark.api.java_settings import JavaSettings
from tidemark.config.configuration import Configuration
from tidemark.config.layered import require_instance, require_whole
from tidemark.config.loader import default_parallelism
from tidemark.config.modes import RuntimeExecutionMode
from tidemark.config.option import ConfigOption
from tidemark.config.options import MAX_PARALLELISM_LIMIT, Options
from tidemark.config.restart import RestartStrategies, RestartStrategyConfiguration
from tidemark.errors import ConfigError
from tidemark.types.time import TimeLike, to_millis

__all__ = ["ExecutionConfig"]


class ExecutionConfig(JavaSettings):
    """The execution settings of one environment; live, validated when set, setters chain."""

    PARALLELISM_DEFAULT = -1
    PARALLELISM_UNKNOWN = -2

    _options: tuple[ConfigOption[Any], ...] = (
        Options.PARALLELISM,
        Options.MAX_PARALLELISM,
        Options.AUTO_WATERMARK_INTERVAL,
        Options.RUNTIME_MODE,
        Options.TASK_CANCELLATION_INTERVAL,
        Options.TASK_CANCELLATION_TIMEOUT,
        Options.GLOBAL_JOB_PARAMETERS,
        Options.OBJECT_REUSE,
        Options.AUTO_GENERATE_UIDS,
        Options.SNAPSHOT_COMPRESSION,
        Options.LATENCY_INTERVAL,
        Options.GENERIC_TYPES,
        Options.FORCE_KRYO,
        Options.FORCE_AVRO,
        Options.CLOSURE_CLEANER_LEVEL,
    )

    def __init__(self, configuration: Configuration | None = None) -> None:
        """Start from `configuration`.

        Raises:
            ConfigError: A value in `configuration` does not fit.
        """
        super().__init__(configuration)
        self._default_parallelism: int | None = None
        self.restart_strategy: RestartStrategyConfiguration | None = None
        """What the program set; None: the configuration decides."""

    def set_parallelism(self, parallelism: int) -> ExecutionConfig:
        """Set the parallelism of every operator that does not override it.

        Raises:
            ConfigError: Not between 1 and 32768.
        """
        require_whole(parallelism, "The parallelism", 1, MAX_PARALLELISM_LIMIT)
        self._set(Options.PARALLELISM, parallelism)
        return self

    def get_parallelism(self) -> int:
        """Return the parallelism; the number of local cores when nobody set it."""
        configured = self._get(Options.PARALLELISM)
        return self.get_default_local_parallelism() if configured is None else configured

    def set_default_local_parallelism(self, parallelism: int) -> ExecutionConfig:
        """Set the parallelism that holds while nobody sets one.

        Raises:
            ConfigError: Not between 1 and 32768.
        """
        self._default_parallelism = require_whole(parallelism, "The parallelism", 1, MAX_PARALLELISM_LIMIT)
        return self

    def get_default_local_parallelism(self) -> int:
        """Return the parallelism that holds while nobody sets one: the number of local cores, if not set here."""
        return self._default_parallelism or default_parallelism()

    @property
    def programmatic(self) -> Configuration:
        """What was set through this object, with the default parallelism if it has to stand in."""
        own = super().programmatic
        if self._default_parallelism is not None and self._get(Options.PARALLELISM) is None:
            own.set(Options.PARALLELISM, self._default_parallelism)
        return own

    def set_max_parallelism(self, max_parallelism: int) -> ExecutionConfig:
        """Set the number of key groups of every keyed operator that does not override it.

        Raises:
            ConfigError: Not between 1 and 32768.
        """
        require_whole(max_parallelism, "The max parallelism", 1, MAX_PARALLELISM_LIMIT)
        self._set(Options.MAX_PARALLELISM, max_parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """Return the number of key groups, -1 when nobody set it."""
        configured = self._get(Options.MAX_PARALLELISM)
        return -1 if configured is None else configured

    def set_runtime_mode(self, mode: RuntimeExecutionMode) -> ExecutionConfig:
        """Choose streaming, batch or automatic."""
        require_instance(mode, RuntimeExecutionMode, "The runtime mode")
        self._set(Options.RUNTIME_MODE, mode)
        return self

    def get_runtime_mode(self) -> RuntimeExecutionMode:
        """Return the runtime mode."""
        return self._get(Options.RUNTIME_MODE)

    def set_auto_watermark_interval(self, interval: TimeLike) -> ExecutionConfig:
        """Set how often periodic watermark generators are asked.

        Raises:
            ConfigError: Negative.
        """
        millis = to_millis(interval, "The watermark interval")
        if millis < 0:
            raise ConfigError(f"The watermark interval must not be negative, got {millis} ms.")
        self._set(Options.AUTO_WATERMARK_INTERVAL, millis)
        return self

    def get_auto_watermark_interval(self) -> int:
        """Return the interval in milliseconds."""
        return self._get(Options.AUTO_WATERMARK_INTERVAL)

    def configure(self, configuration: Configuration) -> None:
        """Apply the options present in `configuration`; a strategy it names replaces one set here.

        Raises:
            ConfigError: A value does not fit; nothing was applied.
        """
        super().configure(configuration)
        if configuration.contains(Options.RESTART_STRATEGY):
            self.restart_strategy = None

    def use_restart_strategy(self, restart_strategy_configuration: RestartStrategyConfiguration) -> None:
        """Choose what happens when the job fails.

        Raises:
            TypeError: Not a `RestartStrategyConfiguration`.
        """
        if not isinstance(restart_strategy_configuration, RestartStrategyConfiguration):
            raise TypeError(
                "set_restart_strategy() needs a strategy of RestartStrategies, "
                f"not {restart_strategy_configuration!r}."
            )
        self.restart_strategy = restart_strategy_configuration

    def set_restart_strategy(
        self, restart_strategy_configuration: RestartStrategyConfiguration
    ) -> ExecutionConfig:
        """Choose what happens when the job fails. Deprecated: set it on the environment, or configure it.

        Raises:
            TypeError: Not a `RestartStrategyConfiguration`.
        """
        deprecated("ExecutionConfig.set_restart_strategy()", "set it on the environment, or configure it")
        self.use_restart_strategy(restart_strategy_configuration)
        return self

    def get_restart_strategy(self) -> RestartStrategyConfiguration:
        """Return what was set; the fallback to the configuration when nothing was."""
        return self.restart_strategy or RestartStrategies.fall_back_restart()

    def set_task_cancellation_interval(self, interval: TimeLike) -> ExecutionConfig:
        """Show every so often where cancelled user code hangs; 0 means never.

        Raises:
            ConfigError: Negative.
        """
        self._set(Options.TASK_CANCELLATION_INTERVAL, to_millis(interval, "The cancellation interval"))
        return self

    def get_task_cancellation_interval(self) -> int:
        """Return the interval in milliseconds."""
        return self._get(Options.TASK_CANCELLATION_INTERVAL)

    def set_task_cancellation_timeout(self, timeout: TimeLike) -> ExecutionConfig:
        """Give cancelled user code up after this long; 0 means never.

        Raises:
            ConfigError: Negative.
        """
        self._set(Options.TASK_CANCELLATION_TIMEOUT, to_millis(timeout, "The cancellation timeout"))
        return self

    def get_task_cancellation_timeout(self) -> int:
        """Return the timeout in milliseconds."""
        return self._get(Options.TASK_CANCELLATION_TIMEOUT)

    def set_global_job_parameters(self, global_job_parameters_dict: Mapping[str, Any]) -> ExecutionConfig:
        """Set parameters every function can read through its runtime context; values become text.

        Raises:
            TypeError: Not a mapping.
        """
        require_instance(global_job_parameters_dict, Mapping, "The job parameters")
        parameters = {str(k): str(v) for k, v in global_job_parameters_dict.items()}
        self._set(Options.GLOBAL_JOB_PARAMETERS, parameters)
        return self

    def get_global_job_parameters(self) -> dict[str, str]:
        """Return a copy of the parameters."""
        return self._get(Options.GLOBAL_JOB_PARAMETERS).copy()

    def enable_object_reuse(self) -> ExecutionConfig:
        """Accepted for compatibility; results do not change."""
        self._set(Options.OBJECT_REUSE, True)
        return self

    def disable_object_reuse(self) -> ExecutionConfig:
        """Undo `enable_object_reuse`."""
        self._set(Options.OBJECT_REUSE, False)
        return self

    def is_object_reuse_enabled(self) -> bool:
        """Return what was set; off by default."""
        return self._get(Options.OBJECT_REUSE)

    def enable_auto_generated_uids(self) -> ExecutionConfig:
        """Let operators without a uid get one from their place in the graph."""
        self._set(Options.AUTO_GENERATE_UIDS, True)
        return self

    def disable_auto_generated_uids(self) -> ExecutionConfig:
        """Require every stateful operator to be given a uid."""
        self._set(Options.AUTO_GENERATE_UIDS, False)
        return self

    def has_auto_generated_uids_enabled(self) -> bool:
        """Return what was set; on by default."""
        return self._get(Options.AUTO_GENERATE_UIDS)

    def set_use_snapshot_compression(self, use_snapshot_compression: bool) -> ExecutionConfig:
        """Compress full snapshots."""
        self._set(Options.SNAPSHOT_COMPRESSION, bool(use_snapshot_compression))
        return self

    def is_use_snapshot_compression(self) -> bool:
        """Return what was set; off by default."""
        return self._get(Options.SNAPSHOT_COMPRESSION)

    def set_latency_tracking_interval(self, interval: TimeLike) -> ExecutionConfig:
        """Take the latency of records so often, for metrics: `metrics.latency.interval`."""
        self._set(Options.LATENCY_INTERVAL, to_millis(interval, "The latency tracking interval"))
        return self

    def get_latency_tracking_interval(self) -> int:
        """Return what was set, in milliseconds."""
        return self._get(Options.LATENCY_INTERVAL)

    def __eq__(self, other: object) -> bool:
        """Whether the same settings hold, whoever made them."""
        return isinstance(other, ExecutionConfig) and self._settings() == other._settings()

    def __hash__(self) -> int:
        """Hash by content, as equality does; do not use settings you still change as a key."""
        return hash(str(self._settings()))

    def _settings(self) -> list[Any]:
        parameters = sorted(self.get_global_job_parameters().items())
        apart = (Options.PARALLELISM, Options.GLOBAL_JOB_PARAMETERS)
        others = [self._get(option) for option in self._options if option not in apart]
        return [self.get_parallelism(), self.restart_strategy, parameters, *others]
