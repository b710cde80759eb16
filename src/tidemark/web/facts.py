"""A job as plain data: what a `JobView` tells, what travels between processes, and what histories keep.

Times are milliseconds since 1970, sizes bytes. None means that nobody knows. New fields need a default: histories
that older releases wrote are read again.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

__all__ = [
    "CheckpointFacts",
    "CheckpointHistory",
    "CheckpointSubtask",
    "Failure",
    "Input",
    "JobFacts",
    "OperatorStates",
    "Series",
    "Setting",
    "Shares",
    "SlotFacts",
    "StateFacts",
    "SubtaskFacts",
    "Times",
    "VertexFacts",
    "slot_id",
    "vertex_id",
]


_CONTROLLABLE = frozenset({"CREATED", "RUNNING", "RESTARTING"})
_LIVE = _CONTROLLABLE | {"CANCELLING", "FAILING"}


def vertex_id(uid: str) -> str:
    """The id of a vertex in paths: 32 hexadecimal digits, as Flink's clients expect, the same in every run."""
    return hashlib.md5(uid.encode(), usedforsecurity=False).hexdigest()


def slot_id(job_id: str, slot: int) -> str:
    """The id of a slot among the task managers."""
    return f"{job_id}-{slot}"


class Input(msgspec.Struct, frozen=True):
    """An edge into a vertex."""

    source: str
    """Id of the vertex it comes from."""
    ship_strategy: str


class Shares(msgspec.Struct, frozen=True):
    """Where some time went; the three make up 1."""

    busy: float
    backpressured: float
    """Waiting with records that those behind did not take yet."""
    idle: float


class Times(msgspec.Struct, frozen=True):
    """The same in milliseconds."""

    busy: int = 0
    backpressured: int = 0
    idle: int = 0


class SubtaskFacts(msgspec.Struct, frozen=True):
    """One subtask, in its current attempt; None is what nobody measures of one that runs in tasks."""

    index: int
    records_in: int | None = None
    records_out: int | None = None
    records_in_per_second: float | None = None
    records_out_per_second: float | None = None
    times: Times | None = None
    """In its current attempt."""
    shares: Shares | None = None
    """Since the last look."""
    barrier: tuple[int, int] | None = None
    """Start delay and alignment at the newest completed checkpoint, in ms; None where no barriers travel."""
    watermark: int | None = None
    host: str = ""
    native: dict[str, int] = {}
    """Figures of its RocksDB store that were asked for."""
    held_back: int | None = None
    """Frames that had to wait behind a barrier; None where no barriers travel."""


class VertexFacts(msgspec.Struct, frozen=True):
    """A source, operator or sink."""

    id: str
    uid: str
    name: str
    kind: str
    parallelism: int
    max_parallelism: int
    in_slots: bool
    inputs: tuple[Input, ...] = ()
    records_in: int = 0
    records_out: int = 0
    records_in_per_second: float = 0.0
    records_out_per_second: float = 0.0
    watermark: int | None = None
    state_bytes: int | None = None
    """Of the newest completed snapshot."""
    shares: Shares | None = None
    """Where the time of its subtasks went since the last look."""
    subtasks: tuple[SubtaskFacts, ...] = ()


class SlotFacts(msgspec.Struct, frozen=True):
    """A slot and the process it lives in."""

    index: int
    host: str
    pid: int
    rss: int
    cpu_s: float
    age_ms: int
    """How long ago it said this."""
    key_groups: dict[str, tuple[int, int]] = {}
    """Uid of each keyed operator -> first and last key group here."""
    query_statistics: dict[str, float] = {}
    """Figures of its queryable-state server, if they are switched on."""


class Failure(msgspec.Struct, frozen=True):
    """Why an attempt ended."""

    timestamp: int
    attempt: int
    name: str
    """Class of the exception."""
    message: str
    """Its first line."""
    trace: str
    slot: int | None = None
    operator: str | None = None
    """Uid."""


class Setting(msgspec.Struct, frozen=True):
    """A configuration key that is set; secrets are not shown."""

    key: str
    value: str
    layer: str
    """`code`, `configuration`, `environment`, `file` or `default`."""
    effect: bool = True
    reason: str | None = None
    """Why it changes nothing."""


class JobFacts(msgspec.Struct, frozen=True):
    """A job without its checkpoints."""

    job_id: str
    name: str
    status: str
    start_time: int
    end_time: int | None = None
    now: int = 0
    """When this was true."""
    mode: str = ""
    """`epochs` or `continuous`."""
    mode_reason: str = ""
    """Why, for people."""
    attempt: int = 0
    epoch: int = 0
    records: int = 0
    replayed: int = 0
    records_in_per_second: float = 0.0
    latency_ms: float | None = None
    """How long records lately took from being read until everything they caused was done."""
    latency: dict[str, float] = {}
    """Quantiles of the latencies that were taken, in ms; empty if none are."""
    watermark: int | None = None
    restored_from: int | None = None
    started_from: str | None = None
    parallelism: int = 1
    max_parallelism: int | None = None
    batch_mode: bool = False
    target: str = ""
    state_backend: str = ""
    incremental: bool = False
    """Whether checkpoints refer to files of earlier ones."""
    checkpoint_storage: str = ""
    restart_strategy: str = ""
    checkpointing: dict[str, Any] = {}
    """The fields of `CheckpointSettings`, plain."""
    job_parameters: dict[str, str] = {}
    vertices: tuple[VertexFacts, ...] = ()
    slots: tuple[SlotFacts, ...] = ()
    failures: tuple[Failure, ...] = ()
    """Of attempts, newest first."""
    restarts: int = 0
    metrics: dict[str, Any] = {}
    """User metrics and counters, numbers summed over subtasks."""
    user_metrics: tuple[tuple[int | None, str, Any], ...] = ()
    """(slot or None for those of tasks, path, value) of every user metric."""
    settings: tuple[Setting, ...] = ()
    query_statistics: dict[str, float] = {}
    """Figures of the queryable-state proxy, if they are switched on."""
    pid: int = 0
    host: str = ""
    rss: int = 0
    cpu_s: float = 0.0

    @property
    def is_live(self) -> bool:
        """Whether it runs, or is about to run again or to end."""
        return self.status in _LIVE

    @property
    def is_controllable(self) -> bool:
        """Whether it can take a savepoint, now or as soon as it runs again."""
        return self.status in _CONTROLLABLE


class CheckpointSubtask(msgspec.Struct, frozen=True):
    """What one subtask did for a snapshot."""

    index: int
    acknowledged_at: int
    state_size: int
    written_size: int
    sync_ms: int
    async_ms: int
    start_delay_ms: int | None = None
    """From the trigger to the first barrier; None where no barriers travel."""
    alignment_ms: int = 0
    """From the first barrier to the last."""


class CheckpointFacts(msgspec.Struct, frozen=True):
    """One snapshot."""

    checkpoint_id: int
    status: str
    """`in-progress`, `completed` or `failed`."""
    is_savepoint: bool
    triggered_at: int
    slots: int
    acknowledged: int = 0
    ended_at: int | None = None
    state_size: int = 0
    written_size: int = 0
    sync_ms: int = 0
    async_ms: int = 0
    alignment_ms: int = 0
    """Longest of any subtask."""
    directory: str | None = None
    reason: str | None = None
    message: str | None = None
    discarded: bool = False
    quarantined: bool = False
    operators: dict[str, tuple[CheckpointSubtask, ...]] = {}
    """Id of a vertex -> its subtasks; empty in lists, and for snapshots of long ago."""


class CheckpointHistory(msgspec.Struct, frozen=True):
    """The snapshots of a job: counts over its whole life, and the records that are kept, newest first."""

    triggered: int = 0
    completed: int = 0
    failed: int = 0
    restored: int = 0
    in_progress: int = 0
    changes: int = 0
    """Grows with every change; the same number means the same records."""
    records: tuple[CheckpointFacts, ...] = ()
    restored_from: int | None = None
    restored_at: int | None = None


class StateFacts(msgspec.Struct, frozen=True):
    """One state of an operator over all its subtasks."""

    name: str
    kind: str
    type: str
    ttl_ms: int | None = None
    queryable: str | None = None
    entries: int | None = None
    bytes: int | None = None


class OperatorStates(msgspec.Struct, frozen=True):
    """The states of one operator."""

    uid: str
    name: str
    states: tuple[StateFacts, ...] = ()


class Series(msgspec.Struct, frozen=True):
    """Curves of the last minutes, one value per step."""

    step_ms: int = 1000
    timestamps: tuple[int, ...] = ()
    records_in_per_second: tuple[float, ...] = ()
    records_out_per_second: tuple[float, ...] = ()
    latency_ms: tuple[float | None, ...] = ()
    checkpoint_duration_ms: tuple[int | None, ...] = ()
    checkpoint_bytes: tuple[int | None, ...] = ()
