"""NUMPY_ARRAY: `numpy.ndarray`, with element type and shape declared or left open.

Bytes, version 1; elements lie in C order, little-endian. What the type declares is not written again:

    [dtype length:u8 | dtype:ascii]   if the element type is open, as numpy's own text: `<f8`
    [dimensions:u8 | each:varint]     if the shape is open
    elements

Columns of snapshots are typed where they can be: a list of numbers if element type and shape are declared, such a list
beside its shape if only the shape is open, else the bytes of the elements beside their type and shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tidemark.errors import SerializationError
from tidemark.state.serializers.base import BinarySerializer, TypeSerializer, length_prefix, read_length
from tidemark.state.serializers.compatibility import TypeSerializerSchemaCompatibility, TypeSerializerSnapshot
from tidemark.state.serializers.leaf import misfit
from tidemark.state.serializers.streams import DataInputView, DataOutputView
from tidemark.types.numpy_types import NUMPY_KINDS, numpy_dtype_text

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

__all__ = ["NumpyArraySerializer", "NumpyArraySerializerSnapshot"]

_ARROW_KINDS = "iuf"
_OPEN = "open"
_MOST_DIMENSIONS = 64


class NumpyArraySerializer(BinarySerializer[Any]):
    """Arrays of one element type and shape, or of any where None is declared."""

    def __init__(
        self, dtype: str | None, shape: tuple[int, ...] | None, read_as: NumpyArraySerializer | None = None
    ) -> None:
        """Take numpy's text of the element type; `read_as` is a newer declaration that read arrays become."""
        self.dtype = dtype
        self.shape = shape
        self._read_as = read_as
        self.fixed_width = None
        if dtype is not None and shape is not None:
            import numpy as np

            self.fixed_width = np.dtype(dtype).itemsize * math.prod(shape)

    def array_of(self, value: Any) -> np.ndarray[Any, Any]:
        """An array of this type with the content of `value`, in C order.

        Raises:
            SerializationError: No array, or one that does not fit without losing something.
        """
        import numpy as np

        try:
            array = np.asarray(value)
            if value is None or array.dtype.kind not in NUMPY_KINDS:
                raise TypeError
            wanted = np.dtype(self.dtype) if self.dtype is not None else array.dtype.newbyteorder("<")
            # Lists say nothing about their element type; arrays do, and must not lose digits silently.
            if isinstance(value, np.ndarray) and not np.can_cast(array.dtype, wanted, "same_kind"):
                raise TypeError
            array = np.asarray(array, wanted, order="C")
        except (TypeError, ValueError, OverflowError):
            raise misfit(repr(self), value, "an array that becomes one of it without loss") from None
        if self.shape is not None and array.shape != self.shape:
            raise SerializationError(f"An array of declared type {self!r} has the shape {array.shape}.")
        return array

    def copy(self, element: Any) -> Any:
        """Return another array with the same content."""
        return element.copy()

    def normalizer(self) -> Callable[[Any], Any]:
        """Return a function that makes an array of the declared type, which nobody else can change."""
        import numpy as np

        def normalize(value: Any) -> Any:
            array = self.array_of(value)
            return array.copy() if np.shares_memory(array, value) else array

        return normalize

    def to_bytes(self, value: Any) -> bytes:
        """Return what the type leaves open, then the elements."""
        array = self.array_of(value)
        return self._head(array) + array.tobytes()

    def _head(self, array: np.ndarray[Any, Any]) -> bytes:
        head = b""
        if self.dtype is None:
            text = array.dtype.str.encode()
            head = bytes([len(text)]) + text
        if self.shape is None:
            head += bytes([array.ndim]) + b"".join(map(length_prefix, array.shape))
        return head

    def from_bytes(self, data: bytes) -> Any:
        """Return the array, which belongs to the caller.

        Raises:
            SerializationError: The bytes are not what `to_bytes` writes.
        """
        try:
            dtype, shape, at = self._read_head(data)
        except (IndexError, ValueError, TypeError):
            raise SerializationError(f"These bytes are no {self!r}: {data[:64]!r}") from None
        return self._array(memoryview(data)[at:], dtype, shape)

    def _read_head(self, data: bytes) -> tuple[str, tuple[int, ...], int]:
        dtype, shape, at = self.dtype, self.shape, 0
        if dtype is None:
            at = 1 + data[0]
            dtype = data[1:at].decode("ascii")
            if numpy_dtype_text(dtype) != dtype:
                raise ValueError(dtype)
        if shape is None:
            dimensions, at = data[at], at + 1
            if dimensions > _MOST_DIMENSIONS:
                raise ValueError(dimensions)
            lengths = []
            for _ in range(dimensions):
                length, at = read_length(data, at)
                lengths.append(length)
            shape = tuple(lengths)
        return dtype, shape, at

    def _array(self, elements: Any, dtype: str, shape: Sequence[int]) -> Any:
        import numpy as np

        kind = np.dtype(dtype)
        shape = tuple(shape)
        if len(elements) != math.prod(shape) * kind.itemsize:
            raise SerializationError(
                f"An array {dtype} of shape {shape} does not take {len(elements)} bytes; they are damaged."
            )
        if kind.kind == "b" and not set(bytes(elements)) <= {0, 1}:
            raise SerializationError("An array of truth values holds a byte that is neither 0 nor 1.")
        try:
            array = np.ndarray(shape, kind, elements).copy()
        except ValueError as exc:  # lengths that no array can have, beside one of 0
            raise SerializationError(f"There is no array of shape {shape}: {exc}.") from None
        return array if self._read_as is None else self._read_as.array_of(array)

    def _has_numbers(self) -> bool:
        return self.dtype is not None and self.dtype[1] in _ARROW_KINDS and self.dtype[2:] != "2"

    def arrow_type(self) -> pa.DataType:
        """Return a list of numbers, such a list beside its shape, or bytes beside type and shape."""
        import numpy as np
        import pyarrow as pa

        shape = ("shape", pa.list_(pa.int32()))
        if not self._has_numbers():
            return pa.struct([("dtype", pa.string()), shape, ("data", pa.binary())])
        numbers = pa.list_(pa.from_numpy_dtype(np.dtype(self.dtype)))
        return numbers if self.shape is not None else pa.struct([shape, ("values", numbers)])

    def to_arrow(self, values: Sequence[Any]) -> pa.Array:
        """Return a column of arrays."""
        return self._column([self.array_of(value) for value in values], None)

    def to_arrow_nullable(self, values: Sequence[Any]) -> pa.Array:
        """Return a column of arrays; None becomes null."""
        import numpy as np

        nothing = np.empty(0, self.dtype or "<f8")
        arrays = [nothing if value is None else self.array_of(value) for value in values]
        return self._column(arrays, [value is None for value in values])

    def _column(self, arrays: list[np.ndarray[Any, Any]], nulls: list[bool] | None) -> pa.Array:
        import pyarrow as pa

        mask = None if nulls is None or not any(nulls) else pa.array(nulls, pa.bool_())
        if self._has_numbers() and self.shape is not None:
            return _lists(arrays, self.arrow_type(), mask)
        shapes = pa.array([array.shape for array in arrays], pa.list_(pa.int32()))
        if self._has_numbers():
            fields = [shapes, _lists(arrays, self.arrow_type().field("values").type, None)]
        else:
            dtypes = pa.array([array.dtype.str for array in arrays], pa.string())
            fields = [dtypes, shapes, pa.array([array.tobytes() for array in arrays], pa.binary())]
        return pa.StructArray.from_arrays(fields, fields=list(self.arrow_type()), mask=mask)

    def _from_array(self, array: pa.Array) -> list[Any]:
        known = array.is_valid().to_pylist()
        return [
            made if valid else None for valid, made in zip(known, self._arrays(array, known), strict=True)
        ]

    def _arrays(self, column: pa.Array, known: list[bool]) -> Iterable[Any]:
        if not self._has_numbers():
            parts = zip(*(column.field(name).to_pylist() for name in ("dtype", "shape", "data")), strict=True)
            for valid, (dtype, shape, data) in zip(known, parts, strict=True):
                yield self._checked(data, dtype, shape) if valid else None
            return
        lists = column if self.shape is not None else column.field("values")
        shapes = [self.shape] * len(column) if self.shape is not None else column.field("shape").to_pylist()
        assert self.dtype is not None
        for valid, items, shape in zip(known, lists, shapes, strict=True):
            if not valid:
                yield None
            else:
                numbers = items.values.to_numpy(zero_copy_only=False)
                yield self._checked(numbers.tobytes(), self.dtype, shape)

    def _checked(self, data: bytes, dtype: str, shape: Sequence[int]) -> Any:
        declared = (self.dtype or dtype, self.shape or tuple(shape)) == (dtype, tuple(shape))
        if not declared or numpy_dtype_text(dtype) != dtype or min(shape, default=0) < 0:
            raise SerializationError(
                f"A stored array is {dtype} of shape {tuple(shape)}, declared is {self!r}."
            )
        return self._array(data, dtype, shape)

    def snapshot_configuration(self) -> TypeSerializerSnapshot[Any]:
        """Return a snapshot that holds element type and shape."""
        return NumpyArraySerializerSnapshot(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NumpyArraySerializer) and (self.dtype, self.shape) == (
            other.dtype,
            other.shape,
        )

    def __hash__(self) -> int:
        return hash((self.dtype, self.shape))

    def __repr__(self) -> str:
        shape = "" if self.shape is None else f", {self.shape}"
        return f"NUMPY_ARRAY({self.dtype or 'any'}{shape})"


class NumpyArraySerializerSnapshot(TypeSerializerSnapshot[Any]):
    """Element type and shape; arrays can move to a wider element type and to an open one or an open shape."""

    def __init__(self, serializer: NumpyArraySerializer | None = None) -> None:
        self._stored = serializer or NumpyArraySerializer(None, None)
        self._new: NumpyArraySerializer | None = None

    def get_current_version(self) -> int:
        """Return the version of this format: element type and shape as text."""
        return 1

    def write_snapshot(self, out: DataOutputView) -> None:
        """Write both; `open` stands for what was not declared."""
        out.write_utf(self._stored.dtype or _OPEN)
        shape = self._stored.shape
        out.write_utf(_OPEN if shape is None else ",".join(map(str, shape)))

    def read_snapshot(
        self, read_version: int, in_: DataInputView, user_code_class_loader: Any = None
    ) -> None:
        """Read both.

        Raises:
            SerializationError: They are not what was written.
        """
        dtype, shape = in_.read_utf(), in_.read_utf()
        try:
            if dtype != _OPEN and numpy_dtype_text(dtype) != dtype:
                raise ValueError(dtype)
            lengths = None if shape == _OPEN else tuple(int(part) for part in shape.split(",") if part)
            if min(lengths or (), default=0) < 0:
                raise ValueError(shape)
        except (TypeError, ValueError):
            raise SerializationError(f"No arrays are stored as {dtype!r} of shape {shape!r}.") from None
        self._stored = NumpyArraySerializer(None if dtype == _OPEN else dtype, lengths)

    def resolve_schema_compatibility(
        self, new_serializer: TypeSerializer[Any]
    ) -> TypeSerializerSchemaCompatibility:
        """Accept the same declaration as it is, and one that loses nothing after migration."""
        if not isinstance(new_serializer, NumpyArraySerializer):
            return TypeSerializerSchemaCompatibility.incompatible()
        if new_serializer == self._stored:
            return TypeSerializerSchemaCompatibility.compatible_as_is()
        import numpy as np

        old, new = self._stored, new_serializer
        widens = new.dtype is None or (old.dtype is not None and np.can_cast(old.dtype, new.dtype, "safe"))
        if not widens or new.shape not in (None, old.shape):
            return TypeSerializerSchemaCompatibility.incompatible()
        self._new = new_serializer
        return TypeSerializerSchemaCompatibility.compatible_after_migration()

    def restore_serializer(self) -> TypeSerializer[Any]:
        """Return a serializer that reads what was stored, as arrays of the new declaration once that is known."""
        return NumpyArraySerializer(self._stored.dtype, self._stored.shape, self._new)

    def __repr__(self) -> str:
        return repr(self._stored)


def _lists(arrays: list[np.ndarray[Any, Any]], kind: pa.DataType, mask: pa.Array | None) -> pa.Array:
    """A list column with the elements of each array."""
    import numpy as np
    import pyarrow as pa

    ends = np.cumsum([0, *(array.size for array in arrays)], dtype=np.int32)
    flat: Any = np.concatenate([array.reshape(-1) for array in arrays]) if arrays else []
    return pa.ListArray.from_arrays(
        pa.array(ends, pa.int32()), pa.array(flat, kind.value_type), kind, mask=mask
    )
