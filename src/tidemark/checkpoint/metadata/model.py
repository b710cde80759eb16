"""What a completed checkpoint or savepoint consists of, as plain frozen data.

Paths in handles are relative: to the directory of the snapshot (`_metadata` lies there too), or, for files
shared by incremental checkpoints, to the job's `shared/` directory beside it. A savepoint has no shared
files and can therefore be moved or copied as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tidemark.state.snapshot import OperatorStatePart, StateMeta

__all__ = [
    "METADATA_FILE",
    "CheckpointMetadata",
    "FileHandle",
    "NativeHandle",
    "OperatorState",
    "RowGroup",
    "SubtaskState",
    "TableHandle",
]

METADATA_FILE = "_metadata"


class RowGroup(NamedTuple):
    """One row group of a table file; the groups of a file follow each other without a gap."""

    first: int
    """Lowest key group in it."""
    last: int
    """Highest key group in it."""
    rows: int
    length: int
    """Bytes in the file; the first group also counts the file's magic bytes before it."""
    checksum: bytes


@dataclass(frozen=True, slots=True)
class TableHandle:
    """Finds the rows of one state of one subtask: a Parquet file, or its bytes right here."""

    meta: StateMeta
    rows: int = 0
    state_size: int = 0
    """Bytes of serialised state: keys, namespaces and values, without key groups and encoding."""
    file_size: int = 0
    path: str | None = None
    """Relative to the snapshot's directory; None if the table is inline or has no rows."""
    inline: bytes | None = None
    row_groups: tuple[RowGroup, ...] = ()
    footer_checksum: bytes = b""

    def overlaps(self, first: int, last: int) -> bool:
        """Whether it may hold rows of these key groups, both included."""
        return any(group.first <= last and group.last >= first for group in self.row_groups)


@dataclass(frozen=True, slots=True)
class FileHandle:
    """Finds one file of a native snapshot."""

    name: str
    """What the backend calls it."""
    size: int
    checksum: bytes
    path: str | None = None
    """Relative to the snapshot's directory, or a name in `shared/`; None if the content is inline."""
    shared: bool = False
    inline: bytes | None = None


@dataclass(frozen=True, slots=True)
class NativeHandle:
    """Keyed state of one subtask in its backend's own files."""

    kind: str
    files: tuple[FileHandle, ...]
    metas: tuple[StateMeta, ...]
    extra: bytes = b""

    @property
    def size(self) -> int:
        """Bytes of all files, shared ones included."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class SubtaskState:
    """All state of one subtask of one operator, and what writing it cost."""

    index: int
    key_groups: tuple[int, int] | None = None
    """First and last, both included; None for operators without a key."""
    tables: tuple[TableHandle, ...] = ()
    """Keyed states, unless native, and timers."""
    native: NativeHandle | None = None
    operator: tuple[OperatorStatePart, ...] = ()
    state_size: int = 0
    """Bytes of state this snapshot refers to."""
    written_size: int = 0
    """Bytes written for it; less than `state_size` if incremental."""
    sync_ms: int = 0
    async_ms: int = 0

    @property
    def has_state(self) -> bool:
        """Whether dropping this would lose anything."""
        return (
            self.native is not None
            or any(table.rows for table in self.tables)
            or any(part.elements for part in self.operator)
        )

    def shared_files(self) -> Iterator[str]:
        """Names in `shared/` this subtask refers to."""
        if self.native is not None:
            for file in self.native.files:
                if file.shared and file.path is not None:
                    yield file.path


@dataclass(frozen=True, slots=True)
class OperatorState:
    """State of one operator, matched with the job's operators by `uid`."""

    uid: str
    name: str
    parallelism: int
    max_parallelism: int
    subtasks: tuple[SubtaskState, ...] = ()

    @property
    def has_state(self) -> bool:
        """Whether any subtask holds something."""
        return any(subtask.has_state for subtask in self.subtasks)

    @property
    def is_keyed(self) -> bool:
        """Whether its subtasks own key groups."""
        return any(subtask.key_groups is not None for subtask in self.subtasks)

    @property
    def state_size(self) -> int:
        """Bytes of state over all subtasks."""
        return sum(subtask.state_size for subtask in self.subtasks)


@dataclass(frozen=True, slots=True)
class CheckpointMetadata:
    """Content of `_metadata`: everything needed to start a job again from this snapshot."""

    checkpoint_id: int
    timestamp: int
    job_id: str
    job_name: str = ""
    is_savepoint: bool = False
    source_positions: dict[str, bytes] = field(default_factory=dict)
    """Source uid -> position after the last record in this snapshot, in the source's own encoding."""
    sink_commits: dict[str, bytes] = field(default_factory=dict)
    """Sink uid -> what it has prepared and must (again) make visible when this snapshot is restored."""
    operators: tuple[OperatorState, ...] = ()
    watermarks: dict[str, int] = field(default_factory=dict)
    """Uid -> watermark of sources, timestamp assigners and operators at the barrier."""
    partition_marks: dict[str, bytes] = field(default_factory=dict)
    """Uid -> how far each partition behind that source or timestamp assigner has come, in the runtime's encoding."""
    properties: dict[str, str] = field(default_factory=dict)
    """Facts for humans (release that wrote it, backend); no decision depends on them."""
    format_version: int = 1
    lineage: str = ""
    """Id of the first job of the chain of restores this snapshot belongs to; 0.1.0 did not write it."""

    @property
    def lineage_id(self) -> str:
        """The lineage; that of a snapshot without one begins with the job that wrote it."""
        return self.lineage or self.job_id

    def operator(self, uid: str) -> OperatorState | None:
        """State of the operator with that uid, if there is any."""
        return next((operator for operator in self.operators if operator.uid == uid), None)

    def shared_files(self) -> frozenset[str]:
        """Names in `shared/` this snapshot refers to."""
        return frozenset(
            name
            for operator in self.operators
            for subtask in operator.subtasks
            for name in subtask.shared_files()
        )

    @property
    def state_size(self) -> int:
        """Bytes of state over all operators."""
        return sum(operator.state_size for operator in self.operators)

    @property
    def written_size(self) -> int:
        """Bytes written for this snapshot over all operators, without the metadata itself."""
        return sum(subtask.written_size for operator in self.operators for subtask in operator.subtasks)
