"""Serializers of lists, arrays and maps.

Encodings, version 1::

    LIST, arrays   count:varint | items
    MAP            count:varint | items of the keys | items of the values
    items          nulls:u8 | mask | field field ...   nulls is 1 if a mask of one bit per item follows,
                                                       0 if no item is None; those that are are left out
    field          the encoded value if its width is fixed, else  length:varint | encoded value

In Arrow these are list and map columns. A map key is never None, because Arrow's maps have no such key.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import accumulate, chain, pairwise
from typing import TYPE_CHECKING, Any, ClassVar

from tidemark.errors import SerializationError
from tidemark.state.serializers.base import BinarySerializer, TypeSerializer, length_prefix, read_length
from tidemark.state.serializers.compatibility import CompositeTypeSerializerSnapshot, TypeSerializerSnapshot
from tidemark.state.serializers.leaf import misfit
from tidemark.state.serializers.record import none_or, null_positions, unchanged

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "BasicArraySerializer",
    "BasicArraySerializerSnapshot",
    "ListSerializer",
    "ListSerializerSnapshot",
    "MapSerializer",
    "MapSerializerSnapshot",
    "ObjectArraySerializer",
    "ObjectArraySerializerSnapshot",
    "PrimitiveArraySerializer",
    "PrimitiveArraySerializerSnapshot",
]


class _ItemsCodec:
    """Encodes any number of values of one type."""

    def __init__(self, serializer: TypeSerializer[Any], canonical: bool = False) -> None:
        self._write = serializer.key_bytes if canonical else serializer.to_bytes
        self._read = serializer.from_bytes
        self._width = serializer.fixed_width
        self._none_is_marked = serializer.nullable
        self._code: str | None = getattr(serializer, "struct_code", None)

    def encode(self, items: Sequence[Any], nullable: bool) -> bytes:
        """Return the encoded items; with `nullable` None is left out and marked."""
        if self._code is not None:
            try:
                return b"\x00" + struct.pack(f">{len(items)}{self._code}", *items)
            except (struct.error, OverflowError):
                # A None or a misfit among them: go item by item.
                pass
        write, varies = self._write, self._width is None
        nulls = null_positions(items) if nullable else None
        pieces = [b"\x00"]
        if nulls is not None:
            mask = int("".join(["1" if null else "0" for null in reversed(nulls)]), 2)
            pieces = [b"\x01", mask.to_bytes((len(items) + 7) // 8, "big")]
        for item in items:
            if nulls is not None and item is None:
                continue
            data = write(item)
            if varies:
                pieces.append(length_prefix(len(data)))
            pieces.append(data)
        return b"".join(pieces)

    def decode(self, data: bytes, at: int, count: int, nullable: bool) -> tuple[list[Any], int]:
        """Return `count` items and the position behind them.

        Raises:
            IndexError, struct.error, SerializationError: `encode` does not write these bytes.
        """
        if count > 8 * len(data):
            # Damaged: even an item that is None takes one bit. Checked before memory is asked for.
            raise IndexError(count)
        read, width, marked = self._read, self._width, self._none_is_marked
        has_nulls = data[at]
        at += 1
        nulls = ""
        if has_nulls:
            end = at + (count + 7) // 8
            mask = int.from_bytes(data[at:end], "big")
            if has_nulls != 1 or not nullable or not mask or mask >> count:
                raise SerializationError("A list has marks for missing items that nobody writes.")
            nulls = format(mask, f"0{count}b")[::-1]
            at = end
        elif self._code is not None and width is not None:
            end = at + count * width
            return list(struct.unpack(f">{count}{self._code}", data[at:end])), end
        items: list[Any] = []
        for position in range(count):
            if nulls and nulls[position] == "1":
                items.append(None)
                continue
            length = width
            if length is None:
                length, at = read_length(data, at)
            item = read(data[at : at + length])
            if item is None and marked:
                raise SerializationError("An item of a list is None and not marked as missing.")
            items.append(item)
            at += length
        return items, at


def _undecodable(serializer: TypeSerializer[Any], data: bytes) -> SerializationError:
    return SerializationError(f"These bytes are no {serializer!r}: {data[:64]!r}")


def _offsets(values: Sequence[Any]) -> pa.Array:
    import pyarrow as pa

    return pa.array(list(accumulate(map(len, values), initial=0)), pa.int32())


class ListSerializer(BinarySerializer[list[Any]]):
    """LIST; the base of the array types, which differ in name and in whether an item may be None."""

    type_name: ClassVar[str] = "LIST"
    items_nullable: ClassVar[bool] = True
    snapshot_class: ClassVar[Callable[[Any], TypeSerializerSnapshot[list[Any]]]]

    def __init__(self, element: TypeSerializer[Any]) -> None:
        self.element = element
        self._codec = _ItemsCodec(element)
        self._key_codec = _ItemsCodec(element, canonical=True)

    def _items_of(self, value: Any) -> Sequence[Any]:
        if isinstance(value, (list, tuple)):
            return value
        if hasattr(value, "tolist"):
            items: list[Any] = value.tolist()
            return items
        raise misfit(self.type_name, value, "a list")

    def _encode(self, value: Any, codec: _ItemsCodec) -> bytes:
        items = self._items_of(value)
        return length_prefix(len(items)) + codec.encode(items, self.items_nullable)

    def to_bytes(self, value: Any) -> bytes:
        """Return the encoded list."""
        return self._encode(value, self._codec)

    def key_bytes(self, value: Any) -> bytes:
        """Return the canonical form."""
        return self._encode(value, self._key_codec)

    def from_bytes(self, data: bytes) -> list[Any]:
        """Return the list."""
        try:
            count, at = read_length(data, 0)
            items, at = self._codec.decode(data, at, count, self.items_nullable)
        except (IndexError, struct.error) as exc:
            raise _undecodable(self, data) from exc
        if at != len(data):
            raise _undecodable(self, data)
        return items

    def normalizer(self) -> Callable[[Any], Any]:
        """Return a function that copies the list and normalises its items."""
        item = self.element.normalizer()
        items_of = self._items_of
        if item is None:
            return lambda value: list(items_of(value))
        normalize = none_or(item) if self.items_nullable else item
        return lambda value: [normalize(v) for v in items_of(value)]

    def arrow_type(self) -> pa.DataType:
        """Return a list of the element's type."""
        import pyarrow as pa

        return pa.list_(self.element.arrow_type())

    def to_arrow(self, values: Sequence[Any]) -> pa.Array:
        """Return a list column."""
        return self._column([self._items_of(value) for value in values], None)

    def to_arrow_nullable(self, values: Sequence[Any]) -> pa.Array:
        """Return a list column; None becomes null."""
        items = [() if value is None else self._items_of(value) for value in values]
        return self._column(items, null_positions(values))

    def _column(self, values: Sequence[Sequence[Any]], nulls: list[bool] | None) -> pa.Array:
        import pyarrow as pa

        flat = list(chain.from_iterable(values))
        element = self.element
        items = element.to_arrow_nullable(flat) if self.items_nullable else element.to_arrow(flat)
        mask = None if nulls is None else pa.array(nulls, pa.bool_())
        return pa.ListArray.from_arrays(_offsets(values), items, type=self.arrow_type(), mask=mask)

    def _from_array(self, array: pa.Array) -> list[Any]:
        ends = array.offsets.to_pylist()
        first = ends[0] if ends else 0
        items = self.element.from_arrow(array.values.slice(first, (ends[-1] if ends else 0) - first))
        lists: list[Any] = [items[start - first : end - first] for start, end in pairwise(ends)]
        return _masked(lists, array)

    def snapshot_configuration(self) -> TypeSerializerSnapshot[list[Any]]:
        """Return a snapshot that nests the element's."""
        return type(self).snapshot_class(self)

    def __repr__(self) -> str:
        return f"{self.type_name}({self.element!r})"


class BasicArraySerializer(ListSerializer):
    """BASIC_ARRAY."""

    type_name = "BASIC_ARRAY"


class ObjectArraySerializer(ListSerializer):
    """OBJECT_ARRAY."""

    type_name = "OBJECT_ARRAY"


class PrimitiveArraySerializer(ListSerializer):
    """PRIMITIVE_ARRAY of anything but bytes."""

    type_name = "PRIMITIVE_ARRAY"
    items_nullable = False


class _ArraySnapshot(CompositeTypeSerializerSnapshot[list[Any]]):
    """The snapshot of the element type; the class of the snapshot says which kind of list it is."""

    serializer_class: ClassVar[type[ListSerializer]]

    def __init__(self, serializer: ListSerializer | None = None) -> None:
        super().__init__(serializer if serializer is not None else self.serializer_class)

    def get_current_outer_snapshot_version(self) -> int:
        """Return the version of the settings, of which there are none."""
        return 1

    def get_nested_serializers(self, outer_serializer: ListSerializer) -> Sequence[TypeSerializer[Any]]:
        """Return the element serializer."""
        return [outer_serializer.element]

    def create_outer_serializer_with_nested_serializers(
        self, nested_serializers: Sequence[TypeSerializer[Any]]
    ) -> ListSerializer:
        """Return a list serializer of these elements."""
        return self.serializer_class(nested_serializers[0])


class ListSerializerSnapshot(_ArraySnapshot):
    """Snapshot of LIST."""

    serializer_class = ListSerializer


class BasicArraySerializerSnapshot(_ArraySnapshot):
    """Snapshot of BASIC_ARRAY."""

    serializer_class = BasicArraySerializer


class ObjectArraySerializerSnapshot(_ArraySnapshot):
    """Snapshot of OBJECT_ARRAY."""

    serializer_class = ObjectArraySerializer


class PrimitiveArraySerializerSnapshot(_ArraySnapshot):
    """Snapshot of PRIMITIVE_ARRAY."""

    serializer_class = PrimitiveArraySerializer


ListSerializer.snapshot_class = ListSerializerSnapshot
BasicArraySerializer.snapshot_class = BasicArraySerializerSnapshot
ObjectArraySerializer.snapshot_class = ObjectArraySerializerSnapshot
PrimitiveArraySerializer.snapshot_class = PrimitiveArraySerializerSnapshot


class MapSerializer(BinarySerializer[dict[Any, Any]]):
    """MAP: values may be None, keys may not."""

    def __init__(self, key: TypeSerializer[Any], value: TypeSerializer[Any]) -> None:
        self.key = key
        self.value = value
        self._keys, self._values = _ItemsCodec(key), _ItemsCodec(value)
        self._canonical = _ItemsCodec(key, canonical=True), _ItemsCodec(value, canonical=True)

    def _entries_of(self, value: Any) -> dict[Any, Any]:
        if isinstance(value, dict):
            if None in value:
                raise misfit("MAP", value, "a dict without the key None")
            return value
        raise misfit("MAP", value, "a dict")

    def to_bytes(self, value: Any) -> bytes:
        """Return the encoded map, in its own order."""
        entries = self._entries_of(value)
        keys = self._keys.encode(list(entries), False)
        return length_prefix(len(entries)) + keys + self._values.encode(list(entries.values()), True)

    def key_bytes(self, value: Any) -> bytes:
        """Return the encoded map, sorted by the key bytes of its keys."""
        entries = sorted(self._entries_of(value).items(), key=lambda entry: self.key.key_bytes(entry[0]))
        keys, values = self._canonical
        encoded = keys.encode([entry[0] for entry in entries], False)
        return length_prefix(len(entries)) + encoded + values.encode([entry[1] for entry in entries], True)

    def from_bytes(self, data: bytes) -> dict[Any, Any]:
        """Return the map."""
        try:
            count, at = read_length(data, 0)
            keys, at = self._keys.decode(data, at, count, False)
            values, at = self._values.decode(data, at, count, True)
        except (IndexError, struct.error) as exc:
            raise _undecodable(self, data) from exc
        try:
            entries = dict(zip(keys, values, strict=True))
        except TypeError as exc:
            # No dict has such keys, so none was written.
            raise _undecodable(self, data) from exc
        if at != len(data) or len(entries) != count:
            raise _undecodable(self, data)
        return entries

    def normalizer(self) -> Callable[[Any], Any]:
        """Return a function that copies the map and normalises keys and values."""
        key = self.key.normalizer() or unchanged
        value = none_or(self.value.normalizer())
        entries_of = self._entries_of
        return lambda mapping: {key(k): value(v) for k, v in entries_of(mapping).items()}

    def arrow_type(self) -> pa.DataType:
        """Return a map of the key's and the value's type."""
        import pyarrow as pa

        return pa.map_(self.key.arrow_type(), self.value.arrow_type())

    def to_arrow(self, values: Sequence[Any]) -> pa.Array:
        """Return a map column."""
        return self._column([self._entries_of(value) for value in values], None)

    def to_arrow_nullable(self, values: Sequence[Any]) -> pa.Array:
        """Return a map column; None becomes null."""
        entries = [{} if value is None else self._entries_of(value) for value in values]
        return self._column(entries, null_positions(values))

    def _column(self, values: Sequence[dict[Any, Any]], nulls: list[bool] | None) -> pa.Array:
        import pyarrow as pa

        keys = self.key.to_arrow(list(chain.from_iterable(values)))
        items = self.value.to_arrow_nullable(list(chain.from_iterable([m.values() for m in values])))
        mask = None if nulls is None else pa.array(nulls, pa.bool_())
        return pa.MapArray.from_arrays(_offsets(values), keys, items, type=self.arrow_type(), mask=mask)

    def _from_array(self, array: pa.Array) -> list[Any]:
        ends = array.offsets.to_pylist()
        first = ends[0] if ends else 0
        length = (ends[-1] if ends else 0) - first
        keys = self.key.from_arrow(array.keys.slice(first, length))
        items = self.value.from_arrow(array.items.slice(first, length))
        maps: list[Any] = [
            dict(zip(keys[start - first : end - first], items[start - first : end - first], strict=True))
            for start, end in pairwise(ends)
        ]
        return _masked(maps, array)

    def snapshot_configuration(self) -> TypeSerializerSnapshot[dict[Any, Any]]:
        """Return a snapshot that nests those of key and value."""
        return MapSerializerSnapshot(self)

    def __repr__(self) -> str:
        return f"MAP({self.key!r}, {self.value!r})"


class MapSerializerSnapshot(CompositeTypeSerializerSnapshot[dict[Any, Any]]):
    """The snapshots of key and value."""

    def __init__(self, serializer: MapSerializer | None = None) -> None:
        super().__init__(serializer if serializer is not None else MapSerializer)

    def get_current_outer_snapshot_version(self) -> int:
        """Return the version of the settings, of which there are none."""
        return 1

    def get_nested_serializers(self, outer_serializer: MapSerializer) -> Sequence[TypeSerializer[Any]]:
        """Return key and value serializer."""
        return [outer_serializer.key, outer_serializer.value]

    def create_outer_serializer_with_nested_serializers(
        self, nested_serializers: Sequence[TypeSerializer[Any]]
    ) -> MapSerializer:
        """Return a map serializer of this key and value."""
        return MapSerializer(nested_serializers[0], nested_serializers[1])


def _masked(values: list[Any], array: pa.Array) -> list[Any]:
    """Put None where the column is null."""
    if not array.null_count:
        return values
    return [value if ok else None for value, ok in zip(values, array.is_valid().to_pylist(), strict=True)]
