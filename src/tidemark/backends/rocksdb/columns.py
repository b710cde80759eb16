"""Between serialised rows and Arrow columns, without making Python objects where that can be avoided.

A column of a custom or pickled type holds the serialised bytes as they are; fixed-width numbers and
strings are reinterpreted in bulk; only the rest goes through objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tidemark.state.serializers.base import TypeSerializer
from tidemark.state.serializers.builtin import StringSerializer

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CarriedSerializer", "bytes_from_arrow", "bytes_to_arrow", "key_bytes_from_arrow"]

_PLAIN = {
    "b": pa.int8(),
    "h": pa.int16(),
    "i": pa.int32(),
    "q": pa.int64(),
    "f": pa.float32(),
    "d": pa.float64(),
}


class CarriedSerializer(TypeSerializer[Any]):
    """Stands in for a serializer whose class is gone: its values are carried along unread.

    A value that was bytes in Arrow stays these bytes; a typed one becomes a one-row Arrow message.
    """

    immutable = True

    def __init__(self, column_type: pa.DataType) -> None:
        self.column_type = column_type
        self._schema = pa.schema([("value", column_type)])

    def serialize(self, element: bytes, stream: Any) -> None:
        """Write the bytes as they are."""
        stream.write(element)

    def deserialize(self, stream: Any) -> bytes:
        """Read everything that is left."""
        return stream.read()  # type: ignore[no-any-return]

    def arrow_type(self) -> pa.DataType:
        """The type of the column that was restored."""
        return self.column_type

    def pack(self, column: pa.Array) -> list[bytes]:
        """One byte string per value of a restored column."""
        if self.column_type == pa.binary():
            return column.to_pylist()  # type: ignore[no-any-return]
        rows = pa.RecordBatch.from_arrays([column], schema=self._schema)
        return [rows.slice(at, 1).serialize().to_pybytes() for at in range(rows.num_rows)]

    def unpack(self, raws: Sequence[bytes]) -> pa.Array:
        """The column again."""
        if self.column_type == pa.binary():
            return pa.array(raws, pa.binary())
        rows = [pa.ipc.read_record_batch(pa.py_buffer(raw), self._schema).column(0) for raw in raws]
        return pa.concat_arrays(rows) if rows else pa.array([], self.column_type)

    def to_text(self) -> str:
        """The column type in a form that can be stored."""
        data: bytes = self._schema.serialize().to_pybytes()
        return data.hex()

    @staticmethod
    def from_text(text: str) -> CarriedSerializer:
        """Inverse of `to_text`."""
        return CarriedSerializer(pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(text))).field(0).type)


def _is_opaque(serializer: TypeSerializer[Any]) -> bool:
    cls = type(serializer)
    return cls.to_arrow is TypeSerializer.to_arrow and cls._from_array is TypeSerializer._from_array


def _plain_dtype(serializer: TypeSerializer[Any]) -> str | None:
    """Big-endian numpy type of the encoded values, if they are plain numbers in Arrow too."""
    code = getattr(serializer, "struct_code", None)
    width = serializer.fixed_width
    if code is None or width is None or _PLAIN.get(code) != serializer.arrow_type():
        return None
    return f">{'f' if code in 'fd' else 'i'}{width}"


def bytes_to_arrow(serializer: TypeSerializer[Any], raws: Sequence[bytes]) -> pa.Array:
    """Column of the values whose encodings are `raws`."""
    if isinstance(serializer, CarriedSerializer):
        return serializer.unpack(raws)
    if _is_opaque(serializer):
        return pa.array(raws, pa.binary())
    dtype = _plain_dtype(serializer)
    if dtype is not None:
        values: NDArray[Any] = np.frombuffer(b"".join(raws), dtype=dtype)
        return pa.array(values.astype(dtype.replace(">", "<")))
    if type(serializer) is StringSerializer:
        try:
            return pa.array(raws, pa.binary()).cast(pa.utf8())
        except pa.ArrowInvalid:
            # A None, or text with lone surrogates; the serializer knows both.
            pass
    from_bytes = serializer.from_bytes
    return serializer.to_arrow([from_bytes(raw) for raw in raws])


def bytes_from_arrow(serializer: TypeSerializer[Any], column: pa.Array) -> list[bytes]:
    """Encodings of the values of a column; the inverse of `bytes_to_arrow`."""
    if isinstance(column, pa.ChunkedArray):
        return [raw for chunk in column.iterchunks() for raw in bytes_from_arrow(serializer, chunk)]
    if isinstance(serializer, CarriedSerializer):
        return serializer.pack(column)
    if _is_opaque(serializer) and not column.null_count:
        return column.to_pylist()  # type: ignore[no-any-return]
    dtype = _plain_dtype(serializer)
    if dtype is not None and not column.null_count and column.type == serializer.arrow_type():
        data = column.to_numpy(zero_copy_only=False).astype(dtype).tobytes()
        width = int(dtype[2:])
        return [data[at : at + width] for at in range(0, len(data), width)]
    if type(serializer) is StringSerializer and not column.null_count:
        return column.cast(pa.binary()).to_pylist()  # type: ignore[no-any-return]
    to_bytes = serializer.to_bytes
    return [to_bytes(value) for value in serializer.from_arrow(column)]


def key_bytes_from_arrow(serializer: TypeSerializer[Any], column: pa.Array) -> list[bytes]:
    """Canonical encodings of a column of keys or map keys."""
    if type(serializer).key_bytes is TypeSerializer.key_bytes:
        return bytes_from_arrow(serializer, column)
    key_bytes = serializer.key_bytes
    return [key_bytes(key) for key in serializer.from_arrow(column)]
