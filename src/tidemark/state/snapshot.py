"""What a snapshot of one operator subtask consists of, between the backend that cuts it and the storage.

Canonical form of keyed state: one Arrow table per state, rows sorted by key group, columns

    key_group: uint16 | key: typed or binary | [window_start, window_end | window_id: int64]
    | value-like kinds:  value            | [last_access: int64  with TTL]
    | list:              value: list<T>   | [last_access: list<int64>  with TTL]
    | map:               map_key, value   | [last_access: int64  with TTL]     one row per entry
    | timer:             timestamp: int64

A column is typed if its serializer has an Arrow form, else it holds the serialised bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from tidemark.state.descriptors import StateKind
from tidemark.state.namespace import NamespaceKind

if TYPE_CHECKING:
    import pyarrow as pa

    from tidemark.state.serializers.base import TypeSerializer

__all__ = [
    "FileContent",
    "Increment",
    "KeyedCut",
    "NativeCut",
    "OperatorCut",
    "OperatorStatePart",
    "Redistribution",
    "StateMeta",
    "StateTable",
    "state_schema",
]


@dataclass(frozen=True, slots=True)
class StateMeta:
    """What a snapshot remembers of one keyed state besides its rows. Serializer fields hold snapshots."""

    name: str
    kind: StateKind
    key: bytes
    value: bytes
    map_key: bytes | None = None
    namespace: NamespaceKind = NamespaceKind.VOID
    ttl: bool = False


class StateTable(Protocol):
    """Rows of one state at the cut. `batches` may run in another thread, once."""

    @property
    def meta(self) -> StateMeta:
        """Which state this is."""

    @property
    def schema(self) -> pa.Schema:
        """Schema of every batch, as drawn in the module docstring."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, sorted by key group; each batch holds whole key groups wherever they fit in memory."""


@dataclass(frozen=True, slots=True)
class Increment:
    """What a backend is asked for by an incremental checkpoint."""

    checkpoint_id: int
    base: int | None = None
    """The completed checkpoint whose files may be referred to; None: everything is to be written."""


FileContent = Path | Callable[[BinaryIO], None] | None
"""A local file, or what writes it (once, in any thread), or None if the base of the increment has it."""


@dataclass(frozen=True, slots=True)
class NativeCut:
    """Files of a backend's own format, frozen at the cut (hard links: they never change)."""

    kind: str
    files: Mapping[str, FileContent]
    """Name -> content. A name that was in an earlier cut of the same backend has the same content."""
    shared: frozenset[str]
    """Names whose content is immutable and may be shared between checkpoints (SST files)."""
    extra: bytes = b""


class KeyedCut(Protocol):
    """Frozen keyed state of one operator subtask."""

    metas: Sequence[StateMeta]

    @property
    def native(self) -> NativeCut | None:
        """Its files, if it is written natively; may wait for the backend, so ask behind the barrier."""

    def tables(self) -> Sequence[StateTable]:
        """Canonical tables of all states. Not called for a cut that is written natively."""

    def release(self) -> None:
        """The snapshot has been written or given up; the backend may drop what it kept. Any thread."""


class Redistribution(Enum):
    """How operator state spreads over a new number of subtasks."""

    SPLIT = "split"
    """All elements in order, cut into pieces of about the same length."""
    UNION = "union"
    """Every subtask gets all elements, also with the old parallelism."""
    BROADCAST = "broadcast"
    """Every subtask gets the copy of one old subtask."""
    RAW = "raw"
    """With the old parallelism each subtask gets its own elements again, else all of them."""


@dataclass(frozen=True, slots=True)
class OperatorStatePart:
    """One operator state of one subtask, serialised at the cut."""

    name: str
    mode: Redistribution
    elements: tuple[bytes, ...]
    """List modes: one entry per element. Broadcast: key bytes and value bytes alternating. Raw: blobs."""
    serializer: bytes = b""
    map_key_serializer: bytes = b""


@dataclass(slots=True)
class OperatorCut:
    """Everything one operator subtask contributes to a snapshot."""

    keyed: KeyedCut | None = None
    timers: list[StateTable] = field(default_factory=list)
    operator: list[OperatorStatePart] = field(default_factory=list)

    def tables(self) -> list[StateTable]:
        """All canonical tables: keyed states, then timers."""
        return [*(self.keyed.tables() if self.keyed is not None else ()), *self.timers]

    def release(self) -> None:
        """Let the backend drop what it kept for this cut."""
        if self.keyed is not None:
            self.keyed.release()


def state_schema(
    meta: StateMeta,
    key: TypeSerializer[Any],
    value: TypeSerializer[Any] | None,
    map_key: TypeSerializer[Any] | None = None,
) -> pa.Schema:
    """Arrow schema of a state's canonical table (see the module docstring)."""
    import pyarrow as pa

    fields = [pa.field("key_group", pa.uint16()), pa.field("key", key.arrow_type())]
    fields += [pa.field(column, pa.int64()) for column in meta.namespace.columns]
    if meta.kind is StateKind.TIMER:
        return pa.schema([*fields, pa.field("timestamp", pa.int64())])
    assert value is not None
    if map_key is not None:
        fields.append(pa.field("map_key", map_key.arrow_type()))
    is_list = meta.kind is StateKind.LIST
    fields.append(pa.field("value", pa.list_(value.arrow_type()) if is_list else value.arrow_type()))
    if meta.ttl:
        fields.append(pa.field("last_access", pa.list_(pa.int64()) if is_list else pa.int64()))
    return pa.schema(fields)
