"""`ExecutionConfig`: how a job is spread out and run, apart from checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemark.config.configuration import Configuration
from tidemark.config.layered import LayeredConfig, require_instance, require_whole
from tidemark.config.loader import default_parallelism
from tidemark.config.modes import RuntimeExecutionMode
from tidemark.config.options import MAX_PARALLELISM_LIMIT, Options
from tidemark.errors import ConfigError
from tidemark.types.time import TimeLike, to_millis

__all__ = ["ExecutionConfig"]


class ExecutionConfig(LayeredConfig):
    """The execution settings of one environment; live, validated when set, setters chain."""

    PARALLELISM_DEFAULT = -1

    _options = (
        Options.PARALLELISM,
        Options.MAX_PARALLELISM,
        Options.AUTO_WATERMARK_INTERVAL,
        Options.RUNTIME_MODE,
    )

    def __init__(self, configuration: Configuration | None = None) -> None:
        """Start from `configuration`.

        Raises:
            ConfigError: A value in `configuration` does not fit.
        """
        super().__init__(configuration)
        self._global_job_parameters: dict[str, str] = {}
        self._object_reuse = False
        self._auto_generated_uids = True
        self._snapshot_compression = False
        self._closure_cleaner = True
        self._force_kryo = False
        self._generic_types = True
        self._latency_tracking_interval = 0

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
        return default_parallelism() if configured is None else configured

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

    def set_global_job_parameters(self, global_job_parameters: Mapping[str, Any]) -> ExecutionConfig:
        """Set parameters every function can read through its runtime context; values become text.

        Raises:
            TypeError: Not a mapping.
        """
        require_instance(global_job_parameters, Mapping, "The job parameters")
        self._global_job_parameters = {str(k): str(v) for k, v in global_job_parameters.items()}
        return self

    def get_global_job_parameters(self) -> dict[str, str]:
        """Return a copy of the parameters."""
        return dict(self._global_job_parameters)

    def enable_object_reuse(self) -> ExecutionConfig:
        """Accepted for compatibility; results do not change."""
        self._object_reuse = True
        return self

    def disable_object_reuse(self) -> ExecutionConfig:
        """Undo `enable_object_reuse`."""
        self._object_reuse = False
        return self

    def is_object_reuse_enabled(self) -> bool:
        """Return what was set; off by default."""
        return self._object_reuse

    def enable_auto_generated_uids(self) -> ExecutionConfig:
        """Let operators without a uid get one from their place in the graph."""
        self._auto_generated_uids = True
        return self

    def disable_auto_generated_uids(self) -> ExecutionConfig:
        """Require every stateful operator to be given a uid."""
        self._auto_generated_uids = False
        return self

    def has_auto_generated_uids_enabled(self) -> bool:
        """Return what was set; on by default."""
        return self._auto_generated_uids

    def set_use_snapshot_compression(self, use_snapshot_compression: bool) -> ExecutionConfig:
        """Compress full snapshots."""
        self._snapshot_compression = bool(use_snapshot_compression)
        return self

    def is_use_snapshot_compression(self) -> bool:
        """Return what was set; off by default."""
        return self._snapshot_compression

    def set_latency_tracking_interval(self, interval: TimeLike) -> ExecutionConfig:
        """Accepted for compatibility; has no effect."""
        self._latency_tracking_interval = to_millis(interval, "The latency tracking interval")
        return self

    def get_latency_tracking_interval(self) -> int:
        """Return what was set, in milliseconds."""
        return self._latency_tracking_interval

    def enable_closure_cleaner(self) -> ExecutionConfig:
        """Accepted for compatibility; Python has no closures to clean."""
        self._closure_cleaner = True
        return self

    def disable_closure_cleaner(self) -> ExecutionConfig:
        """Accepted for compatibility; Python has no closures to clean."""
        self._closure_cleaner = False
        return self

    def is_closure_cleaner_enabled(self) -> bool:
        """Return what was set; on by default."""
        return self._closure_cleaner

    def enable_force_kryo(self) -> ExecutionConfig:
        """Accepted for compatibility; there is no Kryo here."""
        self._force_kryo = True
        return self

    def disable_force_kryo(self) -> ExecutionConfig:
        """Accepted for compatibility; there is no Kryo here."""
        self._force_kryo = False
        return self

    def is_force_kryo_enabled(self) -> bool:
        """Return what was set; off by default."""
        return self._force_kryo

    def enable_generic_types(self) -> ExecutionConfig:
        """Accepted for compatibility; there is no Kryo here."""
        self._generic_types = True
        return self

    def disable_generic_types(self) -> ExecutionConfig:
        """Accepted for compatibility; there is no Kryo here."""
        self._generic_types = False
        return self

    def has_generic_types_disabled(self) -> bool:
        """Return what was set; generic types are on by default."""
        return not self._generic_types

    def add_default_kryo_serializer(
        self, type_class_name: str, serializer_class_name: str
    ) -> ExecutionConfig:
        """Accepted for compatibility and ignored."""
        return self

    def register_type_with_kryo_serializer(
        self, type_class_name: str, serializer_class_name: str
    ) -> ExecutionConfig:
        """Accepted for compatibility and ignored."""
        return self

    def register_kryo_type(self, type_class_name: str) -> ExecutionConfig:
        """Accepted for compatibility and ignored."""
        return self

    def register_pojo_type(self, type_class_name: str) -> ExecutionConfig:
        """Accepted for compatibility and ignored."""
        return self
