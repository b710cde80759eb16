"""What the driver and the long-running tasks of continuous execution tell each other, as plain frozen data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tidemark.protocol.failure import FailureInfo
from tidemark.protocol.frames import CutRequest

__all__ = [
    "AbortBarrier",
    "AddSplits",
    "Drain",
    "EndTask",
    "Heartbeat",
    "InjectBarrier",
    "LimitWatermark",
    "NoMoreSplits",
    "Pause",
    "Resume",
    "TaskAcknowledged",
    "TaskAlive",
    "TaskCommand",
    "TaskDeclined",
    "TaskDirective",
    "TaskEvent",
    "TaskFailed",
    "TaskLost",
    "TaskProgress",
    "TaskRows",
    "TaskStarted",
]


@dataclass(frozen=True, slots=True)
class TaskDirective:
    """What every task of an attempt is told at its start."""

    attempt: int
    tasks: int
    """How many there are."""
    staging: dict[int, str] = field(default_factory=dict)
    """File sink -> where tasks put files for the driver to publish."""
    watermarks: dict[str, int] = field(default_factory=dict)
    """Uid -> watermark of the snapshot the attempt starts from."""
    partition_marks: dict[str, bytes] = field(default_factory=dict)
    """Uid -> how far each partition behind a generator had come then."""
    buffer_timeout_ms: int = 0
    """How long records may wait in a task for others to travel with."""
    watermark_interval_ms: int = 200
    publish_at_once: bool = False
    """The job has no checkpoints: what sinks stage is not held back."""


# Driver -> task


@dataclass(frozen=True, slots=True)
class AddSplits:
    """Read these, too."""

    source: int
    splits: list[Any]


@dataclass(frozen=True, slots=True)
class NoMoreSplits:
    """The source has no other splits for this task than those it was given."""

    source: int


@dataclass(frozen=True, slots=True)
class InjectBarrier:
    """Send this barrier on every channel, behind everything read so far."""

    request: CutRequest


@dataclass(frozen=True, slots=True)
class AbortBarrier:
    """The checkpoint was given up; a barrier that has not been sent yet need not be exact any more."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class Pause:
    """Read nothing until `Resume`."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Go on reading."""


@dataclass(frozen=True, slots=True)
class Drain:
    """Read nothing any more, as if every source had ended here."""


@dataclass(frozen=True, slots=True)
class EndTask:
    """The attempt is over for this task."""


@dataclass(frozen=True, slots=True)
class LimitWatermark:
    """Read no source of an alignment group beyond this watermark."""

    group: str
    watermark: int


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The driver is there."""


TaskCommand: TypeAlias = (
    AddSplits
    | NoMoreSplits
    | InjectBarrier
    | AbortBarrier
    | Pause
    | Resume
    | Drain
    | EndTask
    | LimitWatermark
    | Heartbeat
)


# Task -> driver


@dataclass(frozen=True, slots=True)
class TaskStarted:
    """The task runs and reads its control link."""

    task: int


@dataclass(frozen=True, slots=True)
class TaskAlive:
    """The task's process runs, whatever user code does in it."""

    task: int


@dataclass(frozen=True, slots=True)
class TaskRows:
    """Rows of sinks for the driver, in order with the task's acknowledgements."""

    task: int
    rows: list[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class TaskAcknowledged:
    """The task has sent barrier `checkpoint_id` on all its channels."""

    task: int
    checkpoint_id: int
    positions: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Source -> split that is being read -> where its reader stood."""
    ended: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Source -> split that was read to its end since the barrier before -> where that is."""
    staged: dict[int, list[Any]] = field(default_factory=dict)
    """File sink -> files written since the barrier before."""
    marks: dict[int, tuple[int, bool]] = field(default_factory=dict)
    """Vertex -> its watermark on this channel, and whether that is idle."""
    partitions: dict[int, list[Any]] = field(default_factory=dict)
    """Vertex with a strategy -> marks of the splits it follows here (`watermark_generators.NamedMark`)."""
    records_in: int = 0
    """Records the task has read in front of the barrier, in all of its attempt."""


@dataclass(frozen=True, slots=True)
class TaskDeclined:
    """The task could not send a barrier in time: a loop does not run empty."""

    task: int
    checkpoint_id: int
    message: str


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """How the task is doing; what is counted is counted since the event before."""

    task: int
    records_in: int = 0
    records_out: dict[int, int] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    """All so far."""
    watermark: int = 0
    """Of the slowest vertex on this channel."""
    finished: bool = False
    """The end of time has passed every vertex on this channel, and nothing is under way."""
    busy_ms: int = 0
    waiting_ms: int = 0
    """For slots that had not answered, with something to send."""
    idle_ms: int = 0
    ended: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Source -> split that has been read to its end -> where that was."""
    staged: dict[int, list[Any]] = field(default_factory=dict)
    """File sink -> files to be published at once, in a job without checkpoints."""
    side_records: dict[tuple[int, str], int] = field(default_factory=dict)
    """(vertex, side output) -> records it sent there."""
    groups: dict[str, int] = field(default_factory=dict)
    """Watermark alignment group -> how far the slowest of its sources is here."""
    marks: dict[int, tuple[int, bool]] = field(default_factory=dict)
    """Sources, assigners and slot vertices -> watermark here, and whether they are idle."""
    latency_ms: float | None = None
    """How long records took from being read until everything they caused was done, if that was taken."""


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """User code, a slot or the task itself failed."""

    task: int
    failure: FailureInfo


@dataclass(frozen=True, slots=True)
class TaskLost:
    """The task's connection broke, it was silent for too long, or its Spark job ended."""

    task: int
    why: str


TaskEvent: TypeAlias = (
    TaskStarted
    | TaskAlive
    | TaskRows
    | TaskAcknowledged
    | TaskDeclined
    | TaskProgress
    | TaskFailed
    | TaskLost
)
