"""The closed choices of the configuration, as enums."""

from __future__ import annotations

from enum import Enum

__all__ = [
    "CheckpointingMode",
    "ClosureCleanerLevel",
    "ExecutionMode",
    "ExternalizedCheckpointCleanup",
    "ExternalizedCheckpointRetention",
    "FallbackPolicy",
    "HighAvailability",
    "RuntimeExecutionMode",
    "StandbyPolicy",
]


class CheckpointingMode(Enum):
    """How often a record may affect state when a job recovers."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1


class ClosureCleanerLevel(Enum):
    """How much Flink looks for what Java functions drag along; Python functions are not looked at."""

    NONE = 0
    TOP_LEVEL = 1
    RECURSIVE = 2


class ExternalizedCheckpointRetention(Enum):
    """Which checkpoints stay on disk when a job ends without finishing."""

    DELETE_ON_CANCELLATION = 0
    RETAIN_ON_CANCELLATION = 1
    NO_EXTERNALIZED_CHECKPOINTS = 2


ExternalizedCheckpointCleanup = ExternalizedCheckpointRetention
"""The same choice under its older name."""


class FallbackPolicy(Enum):
    """What to do with visible output when only a checkpoint older than it can be restored."""

    NEVER = 0
    WITHDRAW = 1
    DUPLICATE = 2


class HighAvailability(Enum):
    """Where drivers of one job agree who runs it."""

    NONE = 0
    FILESYSTEM = 1


class StandbyPolicy(Enum):
    """What a driver does that finds another one running its job."""

    WAIT = 0
    REFUSE = 1


class ExecutionMode(Enum):
    """Whether a streaming job runs epoch by epoch or without end."""

    AUTO = 0
    EPOCHS = 1
    CONTINUOUS = 2


class RuntimeExecutionMode(Enum):
    """Whether a job runs as an unbounded stream or over complete input."""

    STREAMING = 0
    BATCH = 1
    AUTOMATIC = 2
