"""`CheckpointConfig`: when checkpoints are taken, how strict they are, and what stays when a job ends."""

from __future__ import annotations

import logging
import os
from typing import Any

from tidemark.api.checkpoint_storage import CheckpointStorage, FileSystemCheckpointStorage
from tidemark.config.checkpointing import CheckpointSettings
from tidemark.config.configuration import Configuration
from tidemark.config.layered import LayeredConfig, require_instance, require_whole
from tidemark.config.modes import CheckpointingMode, ExternalizedCheckpointRetention
from tidemark.config.options import Options
from tidemark.errors import ConfigError
from tidemark.types.time import Duration, TimeLike, to_millis

__all__ = ["CheckpointConfig"]

_LOG = logging.getLogger(__name__)
_ALL_FAILURES_TOLERATED = 2147483647
_SHORTEST_MS = 10


class CheckpointConfig(LayeredConfig):
    """The checkpoint settings of one environment; live, validated when set, setters chain."""

    DEFAULT_MODE = Options.CHECKPOINTING_MODE.default
    DEFAULT_TIMEOUT = Options.CHECKPOINTING_TIMEOUT.default
    DEFAULT_MIN_PAUSE_BETWEEN_CHECKPOINTS = Options.CHECKPOINTING_MIN_PAUSE.default
    DEFAULT_MAX_CONCURRENT_CHECKPOINTS = Options.CHECKPOINTING_MAX_CONCURRENT.default

    _options = (
        Options.CHECKPOINTING_INTERVAL,
        Options.CHECKPOINTING_MODE,
        Options.CHECKPOINTING_TIMEOUT,
        Options.CHECKPOINTING_MIN_PAUSE,
        Options.CHECKPOINTING_MAX_CONCURRENT,
        Options.CHECKPOINTING_TOLERABLE_FAILURES,
        Options.CHECKPOINTING_RETENTION,
        Options.CHECKPOINTING_UNALIGNED,
        Options.CHECKPOINTING_FORCE_UNALIGNED,
        Options.CHECKPOINTING_ALIGNED_TIMEOUT,
    )

    def __init__(self, configuration: Configuration | None = None) -> None:
        """Start from `configuration`: file, variables and user configuration, merged.

        Raises:
            ConfigError: A value in `configuration` does not fit.
        """
        super().__init__(configuration)
        self._storage: CheckpointStorage | None = None
        self._force = False

    def _check(self, configuration: Configuration) -> None:
        super()._check(configuration)
        interval = configuration.get(Options.CHECKPOINTING_INTERVAL)
        if interval is not None and 0 < interval < _SHORTEST_MS:
            raise ConfigError(
                f"Option {Options.CHECKPOINTING_INTERVAL.key!r} must be at least {_SHORTEST_MS} ms, "
                f"or 0 for no checkpoints; got {interval} ms.",
                key=Options.CHECKPOINTING_INTERVAL.key,
            )

    def configure(self, configuration: Configuration) -> None:
        """Apply the options present in `configuration`; a place it names replaces a storage set here.

        Raises:
            ConfigError: A value does not fit; nothing was applied.
        """
        super().configure(configuration)
        if configuration.contains(Options.CHECKPOINTS_DIR) or configuration.contains(
            Options.CHECKPOINTING_STORAGE
        ):
            self._storage = None

    def is_checkpointing_enabled(self) -> bool:
        """Tell whether checkpoints are taken periodically."""
        return self.get_checkpoint_interval() > 0

    def disable_checkpointing(self) -> CheckpointConfig:
        """Stop taking periodic checkpoints, whatever the configuration says."""
        self._set(Options.CHECKPOINTING_INTERVAL, -1)
        return self

    def set_checkpoint_interval(self, checkpoint_interval: TimeLike) -> CheckpointConfig:
        """Take a checkpoint every so often.

        Raises:
            ConfigError: Below 10 ms.
        """
        self._set(
            Options.CHECKPOINTING_INTERVAL,
            _at_least(checkpoint_interval, "The checkpoint interval", _SHORTEST_MS),
        )
        return self

    def get_checkpoint_interval(self) -> int:
        """Return milliseconds between checkpoints, -1 when they are off."""
        interval = self._get(Options.CHECKPOINTING_INTERVAL)
        return interval if interval is not None and interval > 0 else -1

    def get_effective_checkpoint_interval(self) -> int:
        """Return the interval as the pause between checkpoints stretches it, -1 when they are off."""
        return self.settings().interval

    def set_checkpointing_mode(self, checkpointing_mode: CheckpointingMode) -> CheckpointConfig:
        """Choose the guarantee."""
        require_instance(checkpointing_mode, CheckpointingMode, "The checkpointing mode")
        self._set(Options.CHECKPOINTING_MODE, checkpointing_mode)
        return self

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """Return the guarantee."""
        return self._get(Options.CHECKPOINTING_MODE)

    set_checkpointing_consistency_mode = set_checkpointing_mode
    get_checkpointing_consistency_mode = get_checkpointing_mode

    def set_checkpoint_timeout(self, checkpoint_timeout: TimeLike) -> CheckpointConfig:
        """Abort attempts that take longer.

        Raises:
            ConfigError: Below 10 ms.
        """
        self._set(
            Options.CHECKPOINTING_TIMEOUT,
            _at_least(checkpoint_timeout, "The checkpoint timeout", _SHORTEST_MS),
        )
        return self

    def get_checkpoint_timeout(self) -> int:
        """Return the timeout in milliseconds."""
        return self._get(Options.CHECKPOINTING_TIMEOUT)

    def set_min_pause_between_checkpoints(self, min_pause_between_checkpoints: TimeLike) -> CheckpointConfig:
        """Start an attempt no sooner than this after the previous one ended.

        Raises:
            ConfigError: Negative.
        """
        self._set(
            Options.CHECKPOINTING_MIN_PAUSE,
            _at_least(min_pause_between_checkpoints, "The pause between checkpoints", 0),
        )
        return self

    def get_min_pause_between_checkpoints(self) -> int:
        """Return the pause in milliseconds."""
        return self._get(Options.CHECKPOINTING_MIN_PAUSE)

    def set_max_concurrent_checkpoints(self, max_concurrent_checkpoints: int) -> CheckpointConfig:
        """Let that many attempts run at once.

        Raises:
            ConfigError: Below 1.
        """
        require_whole(max_concurrent_checkpoints, "The number of concurrent checkpoints", 1)
        self._set(Options.CHECKPOINTING_MAX_CONCURRENT, max_concurrent_checkpoints)
        return self

    def get_max_concurrent_checkpoints(self) -> int:
        """Return the number as it was set."""
        return self._get(Options.CHECKPOINTING_MAX_CONCURRENT)

    def get_effective_max_concurrent_checkpoints(self) -> int:
        """Return the number in force: a pause between checkpoints leaves room for one only."""
        return self.settings().concurrency

    def set_fail_on_checkpointing_errors(self, fail_on_checkpointing_errors: bool) -> CheckpointConfig:
        """Fail the job on the first failed checkpoint, or never because of one."""
        return self.set_tolerable_checkpoint_failure_number(
            0 if fail_on_checkpointing_errors else _ALL_FAILURES_TOLERATED
        )

    set_fail_tasks_on_checkpointing_errors = set_fail_on_checkpointing_errors

    def is_fail_on_checkpointing_errors(self) -> bool:
        """Tell whether the first failed checkpoint fails the job."""
        return self.get_tolerable_checkpoint_failure_number() == 0

    is_fail_tasks_on_checkpointing_errors = is_fail_on_checkpointing_errors

    def set_tolerable_checkpoint_failure_number(
        self, tolerable_checkpoint_failure_number: int
    ) -> CheckpointConfig:
        """Tolerate that many failed checkpoints in a row.

        Raises:
            ConfigError: Negative.
        """
        require_whole(tolerable_checkpoint_failure_number, "The number of tolerable checkpoint failures", 0)
        self._set(Options.CHECKPOINTING_TOLERABLE_FAILURES, tolerable_checkpoint_failure_number)
        return self

    def get_tolerable_checkpoint_failure_number(self) -> int:
        """Return how many failed checkpoints in a row are tolerated."""
        return self._get(Options.CHECKPOINTING_TOLERABLE_FAILURES)

    def set_externalized_checkpoint_retention(
        self, retention_mode: ExternalizedCheckpointRetention
    ) -> CheckpointConfig:
        """Choose which checkpoints stay when the job is cancelled or fails."""
        require_instance(retention_mode, ExternalizedCheckpointRetention, "The checkpoint retention")
        self._set(Options.CHECKPOINTING_RETENTION, retention_mode)
        return self

    def get_externalized_checkpoint_retention(self) -> ExternalizedCheckpointRetention:
        """Return which checkpoints stay."""
        return self._get(Options.CHECKPOINTING_RETENTION)

    def enable_externalized_checkpoints(
        self, cleanup_mode: ExternalizedCheckpointRetention
    ) -> CheckpointConfig:
        """Choose which checkpoints stay, by the name of the 1.x line."""
        return self.set_externalized_checkpoint_retention(cleanup_mode)

    set_externalized_checkpoint_cleanup = enable_externalized_checkpoints
    get_externalized_checkpoint_cleanup = get_externalized_checkpoint_retention

    def is_externalized_checkpoints_enabled(self) -> bool:
        """Tell whether some checkpoints outlive the job."""
        kept = self.get_externalized_checkpoint_retention()
        return kept is not ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS

    def set_force_checkpointing(self, force_checkpointing: bool = True) -> CheckpointConfig:
        """Allow checkpoints of iterative jobs, which lose records on the feedback edge."""
        self._force = bool(force_checkpointing)
        return self

    def is_force_checkpointing(self) -> bool:
        """Tell whether iterative jobs may be checkpointed."""
        return self._force

    def enable_unaligned_checkpoints(self, enabled: bool = True) -> CheckpointConfig:
        """Accepted for compatibility; results do not change."""
        self._set(Options.CHECKPOINTING_UNALIGNED, bool(enabled))
        return self

    def disable_unaligned_checkpoints(self) -> CheckpointConfig:
        """Undo `enable_unaligned_checkpoints`."""
        return self.enable_unaligned_checkpoints(False)

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Return what was set."""
        return self._get(Options.CHECKPOINTING_UNALIGNED)

    def set_force_unaligned_checkpoints(self, force_unaligned_checkpoints: bool = True) -> CheckpointConfig:
        """Accepted for compatibility; results do not change."""
        self._set(Options.CHECKPOINTING_FORCE_UNALIGNED, bool(force_unaligned_checkpoints))
        return self

    def is_force_unaligned_checkpoints(self) -> bool:
        """Return what was set."""
        return self._get(Options.CHECKPOINTING_FORCE_UNALIGNED)

    def set_aligned_checkpoint_timeout(self, alignment_timeout: TimeLike) -> CheckpointConfig:
        """Accepted for compatibility; results do not change.

        Raises:
            ConfigError: Negative.
        """
        self._set(
            Options.CHECKPOINTING_ALIGNED_TIMEOUT,
            _at_least(alignment_timeout, "The aligned checkpoint timeout", 0),
        )
        return self

    def get_aligned_checkpoint_timeout(self) -> Duration:
        """Return what was set."""
        return Duration.of_millis(self._get(Options.CHECKPOINTING_ALIGNED_TIMEOUT))

    set_alignment_timeout = set_aligned_checkpoint_timeout
    get_alignment_timeout = get_aligned_checkpoint_timeout

    def set_checkpoint_storage(self, storage: Any) -> CheckpointConfig:
        """Choose where checkpoints go: a `CheckpointStorage`, or a directory.

        Raises:
            TypeError: Neither.
        """
        if isinstance(storage, str | os.PathLike):
            return self.set_checkpoint_storage_dir(storage)
        if not isinstance(storage, CheckpointStorage):
            raise TypeError(
                f"The checkpoint storage must be a CheckpointStorage or a directory, got {storage!r}."
            )
        self._storage = storage
        return self

    def set_checkpoint_storage_dir(self, checkpoint_path: str | os.PathLike[str]) -> CheckpointConfig:
        """Write checkpoints to files in this directory (path or URI).

        Raises:
            ConfigError: The path is empty.
        """
        path = os.fspath(checkpoint_path)
        if not path:
            raise ConfigError("The checkpoint directory must not be empty.")
        self._storage = FileSystemCheckpointStorage(path)
        return self

    def get_checkpoint_storage(self) -> CheckpointStorage | None:
        """Return the storage set here, or `None`: then backend and configuration decide."""
        return self._storage

    def settings(self, num_retained: int = Options.NUM_RETAINED.default) -> CheckpointSettings:
        """Return what holds now, frozen for a job; a pause stretches the interval."""
        interval, pause = self.get_checkpoint_interval(), self.get_min_pause_between_checkpoints()
        return CheckpointSettings(
            interval=max(interval, pause) if interval > 0 else -1,
            timeout=self.get_checkpoint_timeout(),
            min_pause=pause,
            max_concurrent=self.get_max_concurrent_checkpoints(),
            tolerable_failures=self.get_tolerable_checkpoint_failure_number(),
            num_retained=num_retained,
            retention=self.get_externalized_checkpoint_retention(),
            mode=self.get_checkpointing_mode(),
        )

    def validate(self) -> None:
        """Check what only the whole can tell; called when a job is submitted.

        Raises:
            ConfigError: Unaligned checkpoints together with `AT_LEAST_ONCE`.
        """
        if (
            self.is_unaligned_checkpoints_enabled()
            and self.get_checkpointing_mode() is not CheckpointingMode.EXACTLY_ONCE
        ):
            raise ConfigError(
                "Unaligned checkpoints need EXACTLY_ONCE. Change the checkpointing mode or disable them."
            )
        if self.get_max_concurrent_checkpoints() != self.get_effective_max_concurrent_checkpoints():
            _LOG.warning(
                "A pause of %d ms between checkpoints allows one at a time; max concurrent checkpoints = %d "
                "has no effect.",
                self.get_min_pause_between_checkpoints(),
                self.get_max_concurrent_checkpoints(),
            )


def _at_least(value: TimeLike, what: str, minimum: int) -> int:
    millis = to_millis(value, what)
    if millis < minimum:
        raise ConfigError(f"{what} must be at least {minimum} ms, got {millis} ms.")
    return millis
