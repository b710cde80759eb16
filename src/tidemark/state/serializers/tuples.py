"""The tuple serializer.

Encoding, version 1: the record of `record.py` without a null mask. In Arrow a struct of f0, f1, ...; a
tuple without fields has one child `$empty`, since Parquet cannot store a struct without children.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from tidemark.state.serializers.base import BinarySerializer, TypeSerializer
from tidemark.state.serializers.compatibility import CompositeTypeSerializerSnapshot, TypeSerializerSnapshot
from tidemark.state.serializers.leaf import misfit
from tidemark.state.serializers.record import RecordCodec, fields_normalizer, null_positions, struct_column
from tidemark.state.serializers.streams import DataInputView, DataOutputView
from tidemark.types.row import Row

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["TupleSerializer", "TupleSerializerSnapshot"]

_SEQUENCES = frozenset({tuple, list, Row})


class TupleSerializer(BinarySerializer[tuple[Any, ...]]):
    """TUPLE: a list or `Row` of the right length is accepted and becomes a tuple."""

    def __init__(self, fields: Sequence[TypeSerializer[Any]]) -> None:
        self.fields = tuple(fields)
        self.immutable = all([field.immutable for field in fields])
        self.identity_key = all([field.identity_key for field in fields])
        codes = [getattr(field, "struct_code", None) for field in self.fields]
        widths = [field.fixed_width for field in self.fields]
        self._codec = RecordCodec(self.fields, nullable=False)
        self._key_codec = RecordCodec(self.fields, nullable=False, canonical=True)
        self._struct: struct.Struct | None = None
        if codes and None not in codes:
            # The same bytes as the codec's, in one call.
            self._struct = struct.Struct(">" + "".join([str(code) for code in codes]))
        if codes and None not in widths:
            self.fixed_width = sum([width for width in widths if width is not None])

    def _fields_of(self, value: Any) -> Sequence[Any]:
        if isinstance(value, (tuple, list, Row)) and len(value) == len(self.fields):
            return value._values if isinstance(value, Row) else value
        raise misfit("TUPLE", value, f"a tuple of {len(self.fields)} fields")

    def to_bytes(self, value: Any) -> bytes:
        """Return the encoded tuple."""
        if self._struct is not None and type(value) is tuple:
            try:
                return self._struct.pack(*value)
            except (struct.error, OverflowError):
                # The general way explains what is wrong.
                return self._codec.encode(self._fields_of(value))
        return self._codec.encode(self._fields_of(value))

    def key_bytes(self, value: Any) -> bytes:
        """Return the canonical form."""
        if self._struct is not None:
            return self.to_bytes(value)
        return self._key_codec.encode(self._fields_of(value))

    def from_bytes(self, data: bytes) -> tuple[Any, ...]:
        """Return the tuple."""
        if self._struct is not None and len(data) == self.fixed_width:
            return self._struct.unpack(data)
        return tuple(self._codec.decode(data, 0))

    def normalizer(self) -> Callable[[Any], Any]:
        """Return a function that normalises every field."""
        return fields_normalizer(self.fields, self._fields_of, nullable=False)

    def arrow_type(self) -> pa.DataType:
        """Return a struct with children f0, f1, ..."""
        import pyarrow as pa

        if not self.fields:
            return pa.struct([("$empty", pa.int8())])
        return pa.struct([(f"f{i}", field.arrow_type()) for i, field in enumerate(self.fields)])

    def to_arrow(self, values: Sequence[Any]) -> pa.Array:
        """Return a struct column."""
        return self._column(values, None)

    def to_arrow_nullable(self, values: Sequence[Any]) -> pa.Array:
        """Return a struct column; None becomes null."""
        return self._column(values, null_positions(values))

    def _column(self, values: Sequence[Any], nulls: list[bool] | None) -> pa.Array:
        import pyarrow as pa

        rows = values if nulls is None else [value for value in values if value is not None]
        width = len(self.fields)
        if not set(map(type, rows)) <= _SEQUENCES or not set(map(len, rows)) <= {width}:
            for value in rows:
                self._fields_of(value)
        if nulls is None:
            columns: list[list[Any]] = [list(map(itemgetter(i), values)) for i in range(width)]
        else:
            # Missing tuples fill their fields with None; the others must not hide one among them.
            normalize = self.normalizer()
            for value in rows:
                normalize(value)
            columns = [[None if value is None else value[i] for value in values] for i in range(width)]
        extra = pa.nulls(len(values), pa.int8()) if not width else None
        return struct_column(self.fields, columns, list(self.arrow_type()), nulls, False, extra)

    def _from_array(self, array: pa.Array) -> list[Any]:
        if not self.fields:
            rows: list[Any] = [()] * len(array)
        else:
            columns = [field.from_arrow(array.field(i)) for i, field in enumerate(self.fields)]
            rows = list(zip(*columns, strict=True))
        if array.null_count:
            valid = array.is_valid().to_pylist()
            rows = [row if ok else None for row, ok in zip(rows, valid, strict=True)]
        return rows

    def snapshot_configuration(self) -> TypeSerializerSnapshot[tuple[Any, ...]]:
        """Return a snapshot that nests those of the fields."""
        return TupleSerializerSnapshot(self)

    def __reduce__(self) -> tuple[Any, ...]:
        # Compiled functions do not pickle; the other side compiles its own.
        return TupleSerializer, (self.fields,)

    def __repr__(self) -> str:
        return f"TUPLE({', '.join([repr(field) for field in self.fields])})"


class TupleSerializerSnapshot(CompositeTypeSerializerSnapshot[tuple[Any, ...]]):
    """The number of fields and their snapshots."""

    def __init__(self, serializer: TupleSerializer | None = None) -> None:
        super().__init__(serializer if serializer is not None else TupleSerializer)
        self._width = 0 if serializer is None else len(serializer.fields)

    def get_current_outer_snapshot_version(self) -> int:
        """Return the version of the settings: the number of fields."""
        return 1

    def write_outer_snapshot(self, out: DataOutputView) -> None:
        """Write the number of fields."""
        out.write_int(self._width)

    def read_outer_snapshot(
        self, read_outer_snapshot_version: int, in_: DataInputView, user_code_class_loader: Any = None
    ) -> None:
        """Read the number of fields."""
        self._width = in_.read_int()

    def is_outer_snapshot_compatible(self, new_serializer: TupleSerializer) -> bool:
        """Whether the number of fields is the same."""
        return len(new_serializer.fields) == self._width

    def get_nested_serializers(self, outer_serializer: TupleSerializer) -> Sequence[TypeSerializer[Any]]:
        """Return the serializers of the fields."""
        return outer_serializer.fields

    def create_outer_serializer_with_nested_serializers(
        self, nested_serializers: Sequence[TypeSerializer[Any]]
    ) -> TupleSerializer:
        """Return a tuple serializer of these fields."""
        return TupleSerializer(nested_serializers)
