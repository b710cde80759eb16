"""What values with a fixed list of fields share: the byte codec and the struct column.

Encoding, version 1::

    record  nulls | field field ...    nulls only where fields may be None; such fields are then left out
    field   the encoded value if its width is fixed, else  length:varint | encoded value
    nulls   one bit per field, field 0 lowest, big-endian, as many whole bytes as needed
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tidemark.errors import SerializationError
from tidemark.state.serializers.base import TypeSerializer, length_prefix, read_length

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RecordCodec", "none_or", "null_positions", "struct_column", "unchanged"]


def unchanged(value: Any) -> Any:
    """Return `value`; stands for a normaliser that has nothing to do."""
    return value


def none_or(normalize: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    """Return `normalize` extended to None."""
    if normalize is None:
        return unchanged
    inner = normalize
    return lambda value: None if value is None else inner(value)


class RecordCodec:
    """Encodes a fixed number of fields one after the other."""

    def __init__(
        self, serializers: Sequence[TypeSerializer[Any]], nullable: bool, canonical: bool = False
    ) -> None:
        """Prepare the codec.

        Args:
            serializers: One per field.
            nullable: Whether a null mask stands in front and any field may be None.
            canonical: Whether to write key bytes; reading is the same.
        """
        self._writers = [
            (serializer.key_bytes if canonical else serializer.to_bytes, serializer.fixed_width is None)
            for serializer in serializers
        ]
        self._readers = [(serializer.from_bytes, serializer.fixed_width) for serializer in serializers]
        self._mask_width = (len(serializers) + 7) // 8 if nullable else 0

    def encode(self, values: Sequence[Any]) -> list[bytes]:
        """Return the pieces whose concatenation is the encoded record."""
        pieces: list[bytes] = []
        append = pieces.append
        if self._mask_width:
            mask = 0
            for at, value in enumerate(values):
                if value is None:
                    mask |= 1 << at
            append(mask.to_bytes(self._mask_width, "big"))
            for (write, varies), value in zip(self._writers, values, strict=True):
                if value is not None:
                    data = write(value)
                    if varies:
                        append(length_prefix(len(data)))
                    append(data)
            return pieces
        for (write, varies), value in zip(self._writers, values, strict=True):
            data = write(value)
            if varies:
                append(length_prefix(len(data)))
            append(data)
        return pieces

    def decode(self, data: bytes, at: int = 0) -> list[Any]:
        """Return the fields encoded in `data` from position `at` to the end.

        Raises:
            SerializationError: There are too few or too many bytes.
        """
        mask = int.from_bytes(data[at : at + self._mask_width], "big")
        at += self._mask_width
        values: list[Any] = []
        append = values.append
        try:
            for read, width in self._readers:
                if mask & 1:
                    append(None)
                else:
                    if width is None:
                        width, at = read_length(data, at)
                    append(read(data[at : at + width]))
                    at += width
                mask >>= 1
        except IndexError:
            at = -1
        if at != len(data):
            raise SerializationError(
                f"A record of {len(self._readers)} fields does not decode: {data[:64]!r}"
            )
        return values


def struct_column(
    serializers: Sequence[TypeSerializer[Any]],
    columns: Sequence[Sequence[Any]],
    fields: Sequence[pa.Field],
    nulls: Sequence[bool] | None,
    nullable: bool,
    extra: pa.Array | None = None,
) -> pa.Array:
    """Return a struct column made of one column of Python values per field.

    Args:
        serializers: One per column.
        columns: The values of each field.
        fields: Names and types of the children.
        nulls: Which records are None; None if there are none.
        nullable: Whether a field may be None although its type has no None.
        extra: A last child that has no serializer.
    """
    import pyarrow as pa

    as_nullable = nullable or nulls is not None
    arrays = [
        serializer.to_arrow_nullable(column) if as_nullable else serializer.to_arrow(column)
        for serializer, column in zip(serializers, columns, strict=True)
    ]
    if extra is not None:
        arrays.append(extra)
    mask = None if nulls is None else pa.array(nulls, pa.bool_())
    return pa.StructArray.from_arrays(arrays, fields=list(fields), mask=mask)


def null_positions(values: Sequence[Any]) -> list[bool] | None:
    """Return which values are None, or None if no value is."""
    nulls = [value is None for value in values]
    return nulls if True in nulls else None
