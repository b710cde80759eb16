"""What the driver tells the tasks of an epoch, and what they tell it at their end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tidemark.protocol.failure import FailureInfo

__all__ = ["EpochDirective", "TaskReport"]


@dataclass(frozen=True, slots=True)
class EpochDirective:
    """What the driver tells every task of an epoch."""

    attempt: int
    epoch: int
    watermarks: dict[int, int]
    """Watermark each vertex has in this epoch (absent: none yet)."""
    staging: dict[int, str] = field(default_factory=dict)
    """File sink -> where its tasks put files for the driver to publish."""


@dataclass(slots=True)
class TaskReport:
    """What a task tells the driver at its end."""

    source: int
    partition: int
    records_in: int = 0
    records_out: dict[int, int] = field(default_factory=dict)
    observed: dict[int, int | None] = field(default_factory=dict)
    """Vertex with a watermark strategy -> highest timestamp seen by this task (None: no record)."""
    origins: dict[int, dict[tuple[Any, ...], int]] = field(default_factory=dict)
    """The same by the partition that rows name, for vertices fused to such a source: value of their columns ->
    highest timestamp."""
    split: str | None = None
    """What tells the split that was read from the source's others, if its partition number does not."""
    timers: dict[tuple[int, int], int | None] = field(default_factory=dict)
    """(vertex, slot) -> time of its next processing-time timer."""
    position: Any = None
    """Where the source's reader of this partition stands now."""
    staged: dict[int, list[Any]] = field(default_factory=dict)
    """File sink -> staged files."""
    large_frames: set[int] = field(default_factory=set)
    """Sinks that want DataFrames of whose rows some were left with Spark."""
    fed_back: dict[int, int] = field(default_factory=dict)
    """Head of an iteration in rounds -> records that came back to it."""
    unsettled: dict[int, int] = field(default_factory=dict)
    """Head of an iteration in rounds -> records of its criterion."""
    metrics: dict[str, Any] = field(default_factory=dict)
    failure: FailureInfo | None = None
