"""The states of one RocksDB backend: which it has, under which number, registered or restored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from tidemark.backends.registration import RegisteredStates, check_restored
from tidemark.backends.rocksdb.column_rows import ColumnRows
from tidemark.backends.rocksdb.columns import CarriedSerializer
from tidemark.backends.rocksdb.restore import restored_serializers
from tidemark.backends.rocksdb.tables import AnyRows
from tidemark.clock import Clock
from tidemark.errors import StateMigrationException
from tidemark.state.backend import KeyContext
from tidemark.state.canonical import StateSerializers
from tidemark.state.expiry import Living
from tidemark.state.serializers.base import TypeSerializer
from tidemark.state.snapshot import StateMeta

__all__ = ["RestoredRows", "StateCatalog"]


@dataclass(frozen=True, slots=True)
class RestoredRows:
    """A state as a snapshot brought it, and the serializers its rows are written with."""

    meta: StateMeta
    serializers: StateSerializers

    def readers(self) -> StateSerializers:
        """The serializers whose values users know; where a class is gone, those that carry the rows."""
        try:
            return replace(StateSerializers.of(self.meta), key=self.serializers.key)
        except StateMigrationException:
            return self.serializers


class StateCatalog:
    """States by name.

    Attributes:
        numbers: Number of each state in row keys.
        registered: States the job asked for.
        tables: Their tables.
        restored: States that came by restore, registered since or not.
    """

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.registered = RegisteredStates()
        self.tables: dict[str, AnyRows | ColumnRows] = {}
        self.restored: dict[str, RestoredRows] = {}

    def number(self, name: str) -> int:
        """Number of a state, a new one if it has none."""
        return self.numbers.setdefault(name, len(self.numbers))

    def meta(self, name: str) -> StateMeta:
        """What a snapshot taken now says about a state."""
        if name in self.registered:
            return self.registered.spec(name).meta()
        return self.restored[name].meta

    def serializers(self, name: str) -> StateSerializers:
        """The serializers the rows of a state are written with now."""
        if name in self.registered:
            return self.registered.spec(name).serializers
        return self.restored[name].serializers

    def restore(
        self, meta: StateMeta, key: TypeSerializer[object], column_type: Callable[[str], pa.DataType]
    ) -> StateSerializers:
        """Enter a restored state; the serializers of its rows.

        Raises:
            StateMigrationException: Keys are of another type, or another old subtask wrote another form.
        """
        restored = self.restored.get(meta.name)
        if restored is None or restored.meta is not meta:
            check_restored(meta, None if restored is None else restored.meta, key)
        if restored is None:
            restored = RestoredRows(meta, restored_serializers(meta, key, column_type))
            self.restored[meta.name] = restored
        return restored.serializers

    def in_full_snapshot(self, name: str, context: KeyContext, clock: Clock) -> Living | None:
        """The units of a state that a full snapshot holds; None: all of them."""
        if name not in self.registered:
            return None
        return self.registered.spec(name).in_full_snapshot(context, clock)

    def carried_types(self) -> dict[str, str]:
        """`<column>:<state>` -> column type, of restored states whose serializer class is gone."""
        carried = {}
        for name, restored in self.restored.items():
            columns = {"value": restored.serializers.value, "map_key": restored.serializers.map_key}
            for column, serializer in columns.items():
                if name not in self.registered and isinstance(serializer, CarriedSerializer):
                    carried[f"{column}:{name}"] = serializer.to_text()
        return carried

    def restore_carried(
        self, metas: Sequence[StateMeta], key: TypeSerializer[object], carried: dict[str, str]
    ) -> None:
        """Enter the states of a native snapshot; `carried` is what `carried_types` said there."""
        for meta in metas:
            types = {
                column: CarriedSerializer.from_text(text).column_type
                for column in ("value", "map_key")
                if (text := carried.get(f"{column}:{meta.name}")) is not None
            }
            self.restore(meta, key, lambda column, found=types: found.get(column, pa.binary()))  # type: ignore[misc]
