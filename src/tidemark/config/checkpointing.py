"""`CheckpointSettings`: what a job has been told about checkpoints, frozen when it is submitted."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from tidemark.config.configuration import Configuration
from tidemark.config.modes import CheckpointingMode, ExternalizedCheckpointRetention
from tidemark.config.options import Options

__all__ = ["CheckpointSettings", "retained_checkpoints"]

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CheckpointSettings:
    """Checkpoint settings of one job, times in milliseconds; defaults are those of the option table.

    Attributes:
        interval: Between triggers; -1 takes savepoints only.
        timeout: Age at which an attempt is given up.
        min_pause: Least time between the end of one checkpoint and the start of the next.
        max_concurrent: Checkpoints in the making at once, as it was set; `concurrency` is in force.
        tolerable_failures: Consecutive failures that do not fail the job.
        num_retained: Completed checkpoints to keep.
        retention: What stays when the job ends.
        mode: What a record may do to state when the job recovers.
    """

    interval: int = -1
    timeout: int = Options.CHECKPOINTING_TIMEOUT.default
    min_pause: int = Options.CHECKPOINTING_MIN_PAUSE.default
    max_concurrent: int = Options.CHECKPOINTING_MAX_CONCURRENT.default
    tolerable_failures: int = Options.CHECKPOINTING_TOLERABLE_FAILURES.default
    num_retained: int = Options.NUM_RETAINED.default
    retention: ExternalizedCheckpointRetention = Options.CHECKPOINTING_RETENTION.default
    mode: CheckpointingMode = Options.CHECKPOINTING_MODE.default

    @property
    def enabled(self) -> bool:
        """Whether checkpoints are taken periodically."""
        return self.interval > 0

    @property
    def concurrency(self) -> int:
        """The number of concurrent checkpoints in force: a pause between them leaves room for one only."""
        return 1 if self.min_pause > 0 else max(self.max_concurrent, 1)


def retained_checkpoints(configuration: Configuration) -> int:
    """Return how many completed checkpoints to keep; values below 1 count as 1, with a warning."""
    number = configuration.get(Options.NUM_RETAINED)
    if number < 1:
        _LOG.warning("Option %r is %d; at least 1 checkpoint is kept.", Options.NUM_RETAINED.key, number)
        return 1
    return number
