"""The row serializer.

Encoding, version 1: `kind:u8` and then the record of `record.py` with a null mask. In Arrow a struct
of the fields and one more child `$kind`, null for an insert, so that a change stream keeps its meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from tidemark.errors import ConfigError, SerializationError
from tidemark.state.serializers.base import BinarySerializer, TypeSerializer
from tidemark.state.serializers.compatibility import CompositeTypeSerializerSnapshot, TypeSerializerSnapshot
from tidemark.state.serializers.leaf import misfit
from tidemark.state.serializers.record import RecordCodec, fields_normalizer, null_positions, struct_column
from tidemark.state.serializers.streams import DataInputView, DataOutputView
from tidemark.types.row import Row, RowKind, row_of, rows_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RowSerializer", "RowSerializerSnapshot"]

_KINDS = tuple(RowKind)
_INSERT = RowKind.INSERT
_names_of = attrgetter("_fields")
_values_of = attrgetter("_values")


class RowSerializer(BinarySerializer[Row]):
    """ROW and ROW_NAMED: fields may be None, the kind of the row is kept.

    Accepts rows, tuples and lists by position, rows with the same set of names and dictionaries by name.
    What comes out has names, f0, f1, ... if none were declared.
    """

    def __init__(self, fields: Sequence[TypeSerializer[Any]], names: Sequence[str] | None = None) -> None:
        self.fields = tuple(fields)
        self.names = _plain_names(len(self.fields)) if names is None else tuple(names)
        if "$kind" in self.names:
            raise ConfigError("A row field cannot be called '$kind': that column holds the kind of the row.")
        self._codec = RecordCodec(self.fields, nullable=True)
        self._key_codec = RecordCodec(self.fields, nullable=True, canonical=True)

    def _fields_of(self, value: Any) -> Sequence[Any]:
        """Return the field values in declared order."""
        if isinstance(value, Row):
            names = value._fields
            if names is not None and names != self.names:
                by_name = value.as_dict()
                if by_name.keys() == set(self.names):
                    return [by_name[name] for name in self.names]
            value = value._values
        elif isinstance(value, dict) and value.keys() == set(self.names):
            return [value[name] for name in self.names]
        if isinstance(value, (tuple, list)) and len(value) == len(self.fields):
            return value
        raise misfit("ROW", value, f"a Row of the fields {', '.join(self.names)}")

    def _encode(self, value: Any, codec: RecordCodec) -> bytes:
        kind = value._row_kind.value if isinstance(value, Row) else 0
        return bytes((kind,)) + codec.encode(self._fields_of(value))

    def to_bytes(self, value: Any) -> bytes:
        """Return the encoded row."""
        return self._encode(value, self._codec)

    def key_bytes(self, value: Any) -> bytes:
        """Return the canonical form."""
        return self._encode(value, self._key_codec)

    def from_bytes(self, data: bytes) -> Row:
        """Return the row, with the declared names."""
        if not data or data[0] >= len(_KINDS):
            raise SerializationError(f"These bytes are no ROW: {data[:64]!r}")
        return row_of(self._codec.decode(data, 1), self.names, _KINDS[data[0]])

    def normalizer(self) -> Callable[[Any], Any]:
        """Return a function that names the row and normalises its fields."""
        return fields_normalizer(
            self.fields,
            self._fields_of,
            nullable=True,
            result="row_of(fields, names, value._row_kind if isinstance(value, Row) else insert)",
            scope={"row_of": row_of, "names": self.names, "Row": Row, "insert": _INSERT},
        )

    def arrow_type(self) -> pa.DataType:
        """Return a struct with a child per field, and the row kind."""
        import pyarrow as pa

        children = [(name, field.arrow_type()) for name, field in zip(self.names, self.fields, strict=True)]
        return pa.struct([*children, ("$kind", pa.int8())])

    def to_arrow(self, values: Sequence[Any]) -> pa.Array:
        """Return a struct column."""
        return self._column(values, None)

    def to_arrow_nullable(self, values: Sequence[Any]) -> pa.Array:
        """Return a struct column; None becomes null."""
        return self._column(values, null_positions(values))

    def _column(self, values: Sequence[Any], nulls: list[bool] | None) -> pa.Array:
        import pyarrow as pa

        rows = self._plain_rows(values)
        if rows is None:
            fields_of, empty = self._fields_of, (None,) * len(self.fields)
            rows = [empty if nulls is not None and value is None else fields_of(value) for value in values]
        columns = [[row[i] for row in rows] for i in range(len(self.fields))]
        kinds = [value._row_kind for value in values if isinstance(value, Row)]
        if kinds.count(_INSERT) == len(kinds):
            kind_column = pa.nulls(len(values), pa.int8())
        else:
            codes = [value._row_kind.value if isinstance(value, Row) else 0 for value in values]
            kind_column = pa.array([code or None for code in codes], pa.int8())
        return struct_column(self.fields, columns, list(self.arrow_type()), nulls, True, kind_column)

    def _plain_rows(self, values: Sequence[Any]) -> list[Sequence[Any]] | None:
        """Return the field values if all are rows that need no reordering, which is the usual case."""
        if set(map(type, values)) != {Row} or not set(map(_names_of, values)) <= {None, self.names}:
            return None
        rows: list[Sequence[Any]] = list(map(_values_of, values))
        return rows if set(map(len, rows)) == {len(self.fields)} else None

    def _from_array(self, array: pa.Array) -> list[Any]:
        width, names = len(self.fields), self.names
        columns = [field.from_arrow(array.field(i)) for i, field in enumerate(self.fields)]
        values = zip(*columns, strict=True) if columns else repeat((), len(array))
        rows: list[Any] = rows_of(values, len(array), names)
        kinds = array.field(width)
        if kinds.null_count != len(array):
            for row, kind in zip(rows, kinds.to_pylist(), strict=True):
                row._row_kind = _KINDS[kind or 0]
        if array.null_count:
            valid = array.is_valid().to_pylist()
            rows = [row if ok else None for row, ok in zip(rows, valid, strict=True)]
        return rows

    def snapshot_configuration(self) -> TypeSerializerSnapshot[Row]:
        """Return a snapshot that nests those of the fields."""
        return RowSerializerSnapshot(self)

    def __reduce__(self) -> tuple[Any, ...]:
        # Compiled functions do not pickle; the other side compiles its own.
        return RowSerializer, (self.fields, self.names)

    def __repr__(self) -> str:
        pairs = zip(self.names, self.fields, strict=True)
        return f"ROW({', '.join([f'{name}: {field!r}' for name, field in pairs])})"


class RowSerializerSnapshot(CompositeTypeSerializerSnapshot[Row]):
    """The field names and the snapshots of the fields."""

    def __init__(self, serializer: RowSerializer | None = None) -> None:
        super().__init__(serializer if serializer is not None else RowSerializer)
        self._named = serializer is not None and serializer.names != _plain_names(len(serializer.fields))
        self._names = () if serializer is None else serializer.names

    def get_current_outer_snapshot_version(self) -> int:
        """Return the version of the settings: the field names."""
        return 1

    def write_outer_snapshot(self, out: DataOutputView) -> None:
        """Write whether the fields have other names than f0, f1, ..., and how they are called."""
        out.write_boolean(self._named)
        out.write_int(len(self._names))
        for name in self._names:
            out.write_utf(name)

    def read_outer_snapshot(
        self, read_outer_snapshot_version: int, in_: DataInputView, user_code_class_loader: Any = None
    ) -> None:
        """Read the names."""
        self._named = in_.read_boolean()
        self._names = tuple([in_.read_utf() for _ in range(in_.read_int())])

    def is_outer_snapshot_compatible(self, new_serializer: RowSerializer) -> bool:
        """Whether the fields are called the same."""
        return new_serializer.names == self._names

    def get_nested_serializers(self, outer_serializer: RowSerializer) -> Sequence[TypeSerializer[Any]]:
        """Return the serializers of the fields."""
        return outer_serializer.fields

    def create_outer_serializer_with_nested_serializers(
        self, nested_serializers: Sequence[TypeSerializer[Any]]
    ) -> RowSerializer:
        """Return a row serializer of these fields."""
        return RowSerializer(nested_serializers, self._names)


def _plain_names(count: int) -> tuple[str, ...]:
    return tuple([f"f{i}" for i in range(count)])
