"""What the coordinator is told (events) and what it asks for (commands), as plain frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from tidemark.checkpoint.metadata.model import SubtaskState
from tidemark.errors import CheckpointError, FailureReason

__all__ = [
    "BarrierReached",
    "BarrierTimes",
    "Command",
    "Discard",
    "DiscardJob",
    "Event",
    "FailJob",
    "JobEnd",
    "JobEnded",
    "JobRestarting",
    "MetadataWritten",
    "NotifyAborted",
    "NotifyComplete",
    "Overdue",
    "RejectSavepoint",
    "SavepointRequest",
    "SavepointRequested",
    "SinksCommitted",
    "SlotAcknowledged",
    "SlotDeclined",
    "Started",
    "StorageFailed",
    "Tick",
    "TriggerBarrier",
    "WriteMetadata",
]


@dataclass(frozen=True, slots=True)
class SavepointRequest:
    """A user's wish for a savepoint; the directory is already the final one."""

    request_id: str
    directory: str


class JobEnd(Enum):
    """How a job ended."""

    FINISHED = "finished"
    CANCELED = "canceled"
    FAILED = "failed"
    SUSPENDED = "suspended"
    """Only this driver ended; another one goes on with the job."""


# Events


@dataclass(frozen=True, slots=True)
class Started:
    """An attempt runs: its slots process records from now on.

    Attributes:
        slots: Those that must acknowledge every snapshot.
    """

    slots: frozenset[int]


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; nothing else."""


@dataclass(frozen=True, slots=True)
class Overdue:
    """Amid an epoch: its end, which a due checkpoint or an acknowledged one waits for, has not come within the timeout.

    Attributes:
        blocked_ms: For how long one call into user code has kept a slot, the longest of all.
        held: Snapshots that every slot has acknowledged, and of which nothing has been written to a storage since.
    """

    blocked_ms: int
    held: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class BarrierReached:
    """No record is in flight: the end of an epoch, or a pause of an idle job. A snapshot may start here."""


@dataclass(frozen=True, slots=True)
class BarrierTimes:
    """How the barriers of a snapshot came to one subtask."""

    start_delay_ms: int
    """From the trigger to the first barrier; by two clocks if the driver is on another machine."""
    alignment_ms: int
    """From the first barrier to the last."""


@dataclass(frozen=True, slots=True)
class SlotAcknowledged:
    """A slot has written its part.

    Attributes:
        checkpoint_id: Of which snapshot.
        slot: Which slot.
        states: Operator uid -> state of the subtask in that slot.
        sync_ms: Duration of the synchronous part in this slot.
        async_ms: Duration of the asynchronous part.
        barriers: Operator uid -> how its barriers came; empty in epochs, where nothing is in flight.
    """

    checkpoint_id: int
    slot: int
    states: Mapping[str, SubtaskState] = field(default_factory=dict)
    sync_ms: int = 0
    async_ms: int = 0
    barriers: Mapping[str, BarrierTimes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SlotDeclined:
    """A slot cannot take part: user code, backend, storage or a size limit failed."""

    checkpoint_id: int
    slot: int
    reason: FailureReason
    message: str


@dataclass(frozen=True, slots=True)
class MetadataWritten:
    """`_metadata` is durable."""

    checkpoint_id: int
    directory: str
    digest: bytes = b""
    """Of what was written, to tell it from anybody else's."""


@dataclass(frozen=True, slots=True)
class SinksCommitted:
    """Every sink has let out what belongs to the snapshot: nobody has to go back behind it for its output."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class StorageFailed:
    """The driver could not write `_metadata`, or not prepare the snapshot.

    Attributes:
        checkpoint_id: Of which snapshot.
        message: What went wrong.
        vanished: Files that had been written are gone: somebody has moved or deleted the directory.
    """

    checkpoint_id: int
    message: str
    vanished: bool = False


@dataclass(frozen=True, slots=True)
class SavepointRequested:
    """A user asks for a savepoint; it starts at the next barrier."""

    request: SavepointRequest


@dataclass(frozen=True, slots=True)
class JobRestarting:
    """The attempt has failed; nothing pending can complete any more."""


@dataclass(frozen=True, slots=True)
class JobEnded:
    """The job is over; apply the retention rules.

    Attributes:
        how: Which end it was.
        unread: The job failed because its snapshots could not be read. They may be intact, so they stay,
            whatever the retention rules say.
    """

    how: JobEnd
    unread: bool = False


Event: TypeAlias = (
    Started
    | Tick
    | Overdue
    | BarrierReached
    | SlotAcknowledged
    | SlotDeclined
    | MetadataWritten
    | SinksCommitted
    | StorageFailed
    | SavepointRequested
    | JobRestarting
    | JobEnded
)


# Commands


@dataclass(frozen=True, slots=True)
class TriggerBarrier:
    """Record the positions of sources and sinks, and send this barrier to every slot, now.

    Attributes:
        checkpoint_id: The new snapshot.
        timestamp: When it was triggered.
        base: Newest completed checkpoint whose shared files slots may refer to.
        savepoint: The wish it fulfils, if it is a savepoint.
    """

    checkpoint_id: int
    timestamp: int
    base: int | None = None
    savepoint: SavepointRequest | None = None


@dataclass(frozen=True, slots=True)
class WriteMetadata:
    """All slots have acknowledged: write `_metadata`, then say `MetadataWritten` or `StorageFailed`."""

    checkpoint_id: int
    timestamp: int
    states: Mapping[str, tuple[SubtaskState, ...]]
    """Operator uid -> states of its subtasks, by index."""
    savepoint: SavepointRequest | None = None


@dataclass(frozen=True, slots=True)
class NotifyComplete:
    """Tell slots, sources, sinks and whoever waits for the savepoint."""

    checkpoint_id: int
    directory: str
    savepoint: SavepointRequest | None = None


@dataclass(frozen=True, slots=True)
class NotifyAborted:
    """Tell slots and whoever waits for the savepoint that the snapshot will not be."""

    checkpoint_id: int
    reason: FailureReason
    message: str
    savepoint: SavepointRequest | None = None


@dataclass(frozen=True, slots=True)
class RejectSavepoint:
    """A savepoint that was asked for will never start."""

    request: SavepointRequest
    reason: FailureReason
    message: str


@dataclass(frozen=True, slots=True)
class Discard:
    """Delete a snapshot: its `_metadata` first, then its directory, then these shared files.

    Attributes:
        checkpoint_id: Whose directory goes; None if only shared files go.
        shared: Names in `shared/` nothing refers to any more.
        savepoint: Set if it is an aborted savepoint, whose directory is elsewhere.
    """

    checkpoint_id: int | None
    shared: tuple[str, ...] = ()
    savepoint: SavepointRequest | None = None


@dataclass(frozen=True, slots=True)
class DiscardJob:
    """No checkpoint of the job is kept: delete its whole directory."""


@dataclass(frozen=True)
class FailJob:
    """Too many checkpoints failed in a row: end the attempt with this error."""

    error: CheckpointError


Command: TypeAlias = (
    TriggerBarrier
    | WriteMetadata
    | NotifyComplete
    | NotifyAborted
    | RejectSavepoint
    | Discard
    | DiscardJob
    | FailJob
)
