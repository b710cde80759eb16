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

__all__ = ["RecordCodec", "fields_normalizer", "none_or", "null_positions", "struct_column", "unchanged"]


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
    """Encodes a fixed number of fields one after the other.

    `encode` and `decode` are compiled for the given fields: a loop over serializers costs more than the
    fields themselves, and this runs for every state access of a serialising backend. The loops are still
    here, for records with a None in them and for whatever has to end in a good error message.
    """

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
        self._none_is_marked = [nullable and serializer.nullable for serializer in serializers]
        self.encode: Callable[[Sequence[Any]], bytes] = self._compiled_encode()
        self.decode: Callable[[bytes, int], list[Any]] = self._compiled_decode()

    def encode_slowly(self, values: Sequence[Any]) -> bytes:
        """Return the encoded record.

        Raises:
            SerializationError: A value does not fit its field.
        """
        pieces: list[bytes] = []
        append = pieces.append
        if self._mask_width:
            mask = sum([1 << at for at, value in enumerate(values) if value is None])
            append(mask.to_bytes(self._mask_width, "big"))
        for (write, varies), value in zip(self._writers, values, strict=True):
            if value is not None or not self._mask_width:
                data = write(value)
                if varies:
                    append(length_prefix(len(data)))
                append(data)
        return b"".join(pieces)

    def decode_slowly(self, data: bytes, at: int = 0) -> list[Any]:
        """Return the fields encoded in `data` from position `at` to the end.

        Raises:
            SerializationError: `encode` does not write these bytes.
        """
        mask = int.from_bytes(data[at : at + self._mask_width], "big")
        at += self._mask_width
        values: list[Any] = []
        try:
            for (read, width), marked in zip(self._readers, self._none_is_marked, strict=True):
                if mask & 1:
                    values.append(None)
                else:
                    if width is None:
                        width, at = read_length(data, at)
                    value = read(data[at : at + width])
                    if value is None and marked:
                        raise SerializationError("A field of a record is None and not marked as missing.")
                    values.append(value)
                    at += width
                mask >>= 1
        except IndexError:
            at = -1
        if at != len(data) or mask:
            raise SerializationError(
                f"A record of {len(self._readers)} fields does not decode: {data[:64]!r}"
            )
        return values

    def _compiled_encode(self) -> Callable[[Sequence[Any]], bytes]:
        """Compile, for a text and a long: `v0, v1 = values; d0 = w0(v0); d1 = w1(v1); return ...`."""
        count = len(self._writers)
        if not count:
            return self.encode_slowly
        scope: dict[str, Any] = {"slowly": self.encode_slowly, "prefix": length_prefix}
        parts = [repr(bytes(self._mask_width))] if self._mask_width else []
        lines = ["def encode(values):", f"    {''.join([f'v{i}, ' for i in range(count)])}= values"]
        if self._mask_width:
            some = " or ".join([f"v{i} is None" for i in range(count)])
            lines.append(f"    if {some}: return slowly(values)")
        for i, (write, varies) in enumerate(self._writers):
            scope[f"w{i}"] = write
            lines.append(f"    d{i} = w{i}(v{i})")
            parts.append(f"prefix(len(d{i})) + d{i}" if varies else f"d{i}")
        # Joining pays from a handful of pieces on; below that, concatenation is quicker.
        whole = " + ".join(parts) if count < 6 else f"b''.join(({', '.join(parts)},))"
        lines.append(f"    return {whole}")
        encode: Callable[[Sequence[Any]], bytes] = _compiled("encode", lines, scope)
        return encode

    def _compiled_decode(self) -> Callable[[bytes, int], list[Any]]:
        """Compile the reverse: slice by slice, with the position in `at`."""
        count = len(self._readers)
        if not count:
            return self.decode_slowly
        scope: dict[str, Any] = {"slowly": self.decode_slowly, "read_length": read_length}
        lines = ["def decode(data, at=0):", "    start = at"]
        if self._mask_width:
            lines.append(f"    if data[at : at + {self._mask_width}] != {bytes(self._mask_width)!r}:")
            lines.append("        return slowly(data, start)")
            lines.append(f"    at += {self._mask_width}")
        lines.append("    try:")
        for i, (read, width) in enumerate(self._readers):
            scope[f"r{i}"] = read
            if width is None:
                lines.append("        n = data[at]")
                lines.append("        if n < 128: at += 1")
                lines.append("        else: n, at = read_length(data, at)")
                lines.append(f"        v{i} = r{i}(data[at : at + n]); at += n")
            else:
                lines.append(f"        v{i} = r{i}(data[at : at + {width}]); at += {width}")
        lines.append("    except IndexError: return slowly(data, start)")
        unmarked = [f"v{i} is None" for i, marked in enumerate(self._none_is_marked) if marked]
        lines.append(f"    if {' or '.join(['at != len(data)', *unmarked])}: return slowly(data, start)")
        lines.append(f"    return [{', '.join([f'v{i}' for i in range(count)])}]")
        decode: Callable[[bytes, int], list[Any]] = _compiled("decode", lines, scope)
        return decode


def _compiled(name: str, lines: list[str], scope: dict[str, Any]) -> Any:
    exec("\n".join(lines), scope)
    return scope[name]


def fields_normalizer(
    serializers: Sequence[TypeSerializer[Any]],
    fields_of: Callable[[Any], Sequence[Any]],
    *,
    nullable: bool,
    result: str = "fields",
    scope: dict[str, Any] | None = None,
) -> Callable[[Any], Any]:
    """Compile a function from a value to its normalised fields, without a loop over serializers.

    Args:
        serializers: One per field.
        fields_of: From any accepted value to its fields; tuples of the right length are not asked about.
        nullable: Whether any field may be None.
        result: What to return: an expression of `value` as given, the tuple `fields` and names of `scope`.
        scope: What `result` may use.
    """
    names = [f"v{i}" for i in range(len(serializers))]
    within: dict[str, Any] = {"fields_of": fields_of, **(scope or {})}
    done = []
    for i, serializer in enumerate(serializers):
        normalize = within[f"n{i}"] = serializer.normalizer()
        call = f"v{i}" if normalize is None else f"n{i}(v{i})"
        done.append(f"None if v{i} is None else {call}" if nullable and normalize is not None else call)
    lines = [
        "def normalize(value):",
        *(_unchanged(serializers, names) if result == "fields" and not nullable else ()),
        f"    values = value if type(value) is tuple and len(value) == {len(names)} else fields_of(value)",
        *([f"    {', '.join(names)}, = values"] if names else []),
        f"    fields = ({''.join([f'{field}, ' for field in done])})",
        f"    return {result}",
    ]
    normalizer: Callable[[Any], Any] = _compiled("normalize", lines, within)
    return normalizer


def _unchanged(serializers: Sequence[TypeSerializer[Any]], names: list[str]) -> list[str]:
    """Lines that return a tuple as it is if all its fields pass: no call, no new tuple."""
    checks = [getattr(serializer, "passes", None) for serializer in serializers]
    if not checks or None in checks:
        return []
    passed = " and ".join([str(check).format(name) for check, name in zip(checks, names, strict=True)])
    return [
        f"    if type(value) is tuple and len(value) == {len(names)}:",
        f"        {', '.join(names)}, = value",
        f"        if {passed}:",
        "            return value",
    ]


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
