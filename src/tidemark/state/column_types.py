"""How values of a declared type lie in arrays: numpy for numbers, objects for the rest, a part per field.

::

    numbers, BOOLEAN      one numpy array; functions see it as it is
    TUPLE of anything     a part per field; functions see a tuple of columns
    ROW of anything       a part per field, which fields are None (bits), the row kind; functions see an Arrow struct
    anything else         one array of Python objects; functions see an Arrow array of the type

Where a value is missing numbers are 0 and Arrow arrays null, unless there is a default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.errors import ConfigError
from tidemark.state.serializers.leaf import LeafSerializer
from tidemark.state.serializers.rows import RowSerializer
from tidemark.state.serializers.tuples import TupleSerializer

if TYPE_CHECKING:
    from tidemark.state.serializers.base import TypeSerializer

__all__ = ["ColumnType", "column_type_of"]

Part = np.ndarray[Any, Any]

_DTYPES: dict[Any, np.dtype[Any]] = {
    pa.int8(): np.dtype(np.int8),
    pa.int16(): np.dtype(np.int16),
    pa.int32(): np.dtype(np.int32),
    pa.int64(): np.dtype(np.int64),
    pa.float32(): np.dtype(np.float32),
    pa.float64(): np.dtype(np.float64),
    pa.bool_(): np.dtype(np.bool_),
}
_MOST_FIELDS = 63


class ColumnType:
    """The arrays of one type; this one keeps Python objects.

    Attributes:
        serializer: The type.
        dtypes: What each part is an array of.
    """

    dtypes: tuple[np.dtype[Any], ...] = (np.dtype(object),)

    def __init__(self, serializer: TypeSerializer[Any]) -> None:
        self.serializer = serializer

    def split(self, column: pa.Array) -> list[Part]:
        """The parts of an Arrow column of the type."""
        return [_objects(self.serializer.from_arrow(column))]

    def join(self, parts: list[Part]) -> pa.Array:
        """The Arrow column again."""
        return self.serializer.to_arrow_nullable(parts[0].tolist())

    def shown(self, parts: list[Part], absent: Part, default: Any) -> Any:
        """What a function gets: `default` wherever `absent` is true."""
        [held] = parts
        if absent.any():
            held = held.copy()
            for at in np.flatnonzero(absent).tolist():
                held[at] = default
        return self.serializer.to_arrow_nullable(held.tolist())

    def given(self, column: Any, length: int) -> tuple[list[Part], Part | None]:
        """What a function wrote, as parts, and which of it is null, if anything is.

        Raises:
            ConfigError: It has another length.
            SerializationError: It does not fit the type.
        """
        column = self._arrow(column, length)
        nulls = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
        return self.split(column), nulls

    def _arrow(self, column: Any, length: int) -> pa.Array:
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        elif not isinstance(column, pa.Array):
            column = self.serializer.to_arrow_nullable(list(column))
        if len(column) != length:
            raise _other_length(len(column), length)
        wanted = self.serializer.arrow_type()
        return column if column.type == wanted else column.cast(wanted)


class _Numbers(ColumnType):
    """Numbers and booleans."""

    def __init__(self, serializer: TypeSerializer[Any], dtype: np.dtype[Any]) -> None:
        super().__init__(serializer)
        self.dtypes = (dtype,)

    def split(self, column: pa.Array) -> list[Part]:
        if column.null_count:
            column = column.fill_null(False if self.dtypes[0] == np.bool_ else 0)
        return [column.to_numpy(zero_copy_only=False)]

    def join(self, parts: list[Part]) -> pa.Array:
        return pa.array(parts[0])

    def shown(self, parts: list[Part], absent: Part, default: Any) -> Any:
        [held] = parts
        held[absent] = 0 if default is None else default
        return held

    def given(self, column: Any, length: int) -> tuple[list[Part], Part | None]:
        if not isinstance(column, np.ndarray):
            column = self._arrow(column, length)
            nulls = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
            return self.split(column), nulls
        if column.shape != (length,):
            raise _other_length(len(column) if column.ndim else 1, length)
        dtype = self.dtypes[0]
        if column.dtype == dtype:
            return [column], None
        if not np.can_cast(column.dtype, dtype, "same_kind"):
            raise ConfigError(
                f"An array of {column.dtype} was written to state of type {self.serializer!r}: cast it first."
            )
        cast = column.astype(dtype)
        if dtype.kind == "i" and not np.array_equal(cast, column):
            raise ConfigError(f"A number that was written does not fit state of type {self.serializer!r}.")
        return [cast], None


class _Fields(ColumnType):
    """What tuples and rows share: the parts of their fields, one behind the other."""

    def __init__(self, serializer: TupleSerializer | RowSerializer) -> None:
        super().__init__(serializer)
        self.fields = [column_type_of(field) for field in serializer.fields]
        self._widths = [len(field.dtypes) for field in self.fields]
        self.dtypes = tuple([dtype for field in self.fields for dtype in field.dtypes])

    def by_field(self, parts: list[Part]) -> list[list[Part]]:
        """The parts of each field."""
        found, at = [], 0
        for width in self._widths:
            found.append(parts[at : at + width])
            at += width
        return found


class _Tuples(_Fields):
    """Tuples: no field is ever None."""

    def split(self, column: pa.Array) -> list[Part]:
        return [part for i, field in enumerate(self.fields) for part in field.split(column.field(i))]

    def join(self, parts: list[Part]) -> pa.Array:
        columns = [f.join(part) for f, part in zip(self.fields, self.by_field(parts), strict=True)]
        return pa.StructArray.from_arrays(columns, fields=list(self.serializer.arrow_type()))

    def shown(self, parts: list[Part], absent: Part, default: Any) -> Any:
        defaults = [None] * len(self.fields) if default is None else default
        fields = zip(self.fields, self.by_field(parts), defaults, strict=True)
        return tuple([field.shown(part, absent, value) for field, part, value in fields])

    def given(self, column: Any, length: int) -> tuple[list[Part], Part | None]:
        if not isinstance(column, tuple):
            column = self._arrow(column, length)
            nulls = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
            return self.split(column), nulls
        if len(column) != len(self.fields):
            raise ConfigError(f"{len(column)} columns were written to state of type {self.serializer!r}.")
        parts: list[Part] = []
        for field, each in zip(self.fields, column, strict=True):
            found, nulls = field.given(each, length)
            if nulls is not None and not field.serializer.nullable:
                raise ConfigError(f"A field of state of type {self.serializer!r} is null; tuples have none.")
            parts += found
        return parts, None


class _Rows(_Fields):
    """Rows: the last two parts say which fields are None and which kind a row is."""

    def __init__(self, serializer: RowSerializer) -> None:
        super().__init__(serializer)
        self.dtypes = (*self.dtypes, np.dtype(np.int64), np.dtype(np.int8))

    def split(self, column: pa.Array) -> list[Part]:
        parts: list[Part] = []
        missing = np.zeros(len(column), np.int64)
        for i, field in enumerate(self.fields):
            child = column.field(i)
            if child.null_count:
                missing |= child.is_null().to_numpy(zero_copy_only=False).astype(np.int64) << i
            parts += field.split(child)
        kinds = column.field(len(self.fields))
        return [*parts, missing, kinds.fill_null(0).to_numpy(zero_copy_only=False)]

    def join(self, parts: list[Part]) -> pa.Array:
        *held, missing, kinds = parts
        some = bool(missing.any())
        columns = []
        for i, (field, part) in enumerate(zip(self.fields, self.by_field(held), strict=True)):
            column = field.join(part)
            if some:
                null = (missing >> i & 1).astype(bool)
                if null.any():
                    column = pc.if_else(pa.array(null), pa.scalar(None, column.type), column)
            columns.append(column)
        columns.append(pa.array(kinds, mask=kinds == 0))
        return pa.StructArray.from_arrays(columns, fields=list(self.serializer.arrow_type()))

    def shown(self, parts: list[Part], absent: Part, default: Any) -> Any:
        column = self.join(parts)
        if not absent.any():
            return column
        other = pa.scalar(None, column.type) if default is None else self.serializer.to_arrow([default])[0]
        return pc.if_else(pa.array(absent), other, column)


def column_type_of(serializer: TypeSerializer[Any]) -> ColumnType:
    """How values of a type lie in arrays."""
    if isinstance(serializer, LeafSerializer) and not serializer.nullable:
        dtype = _DTYPES.get(serializer.arrow_type())
        if dtype is not None:
            return _Numbers(serializer, dtype)
    if type(serializer) is TupleSerializer and serializer.fields:
        return _Tuples(serializer)
    if type(serializer) is RowSerializer and len(serializer.fields) <= _MOST_FIELDS:
        return _Rows(serializer)
    return ColumnType(serializer)


def _objects(values: list[Any]) -> Part:
    # Not np.array(): that would make a matrix of a list of tuples.
    return np.fromiter(values, object, len(values))


def _other_length(found: int, wanted: int) -> ConfigError:
    return ConfigError(f"{found} values were written for {wanted} keys: one value per key is needed.")
