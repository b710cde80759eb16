"""Between canonical Arrow columns and the columns people read: same values, friendlier types.

Canonical tables carry what only we need: `uint16` key groups, which Spark has no type for, and the child
`$kind` of row structs. What is shown has neither. `conform` goes both ways: it rebuilds a column in
another type of the same shape, matching struct children by name.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.errors import ConfigError
from tidemark.state.serializers.base import TypeSerializer

__all__ = [
    "as_struct",
    "conform",
    "conform_batch",
    "element_schema",
    "shown_schema",
    "shown_type",
]

_HIDDEN = "$kind"


def shown_type(kind: pa.DataType) -> pa.DataType:
    """The type under which a canonical column is shown."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, shown_type(f.type)) for f in kind if f.name != _HIDDEN])
    if pa.types.is_map(kind):
        return pa.map_(shown_type(kind.key_type), shown_type(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(shown_type(kind.value_type))
    if pa.types.is_uint16(kind):
        return pa.int32()
    return kind


def shown_schema(schema: pa.Schema) -> pa.Schema:
    """The columns of a canonical table as they are shown."""
    return pa.schema([pa.field(field.name, shown_type(field.type)) for field in schema])


def element_schema(serializer: TypeSerializer[Any]) -> pa.Schema:
    """Columns that show the elements of a stream: the fields of a record, else one column `value`."""
    kind = shown_type(serializer.arrow_type())
    return pa.schema(list(kind)) if pa.types.is_struct(kind) else pa.schema([pa.field("value", kind)])


def as_struct(batch: pa.RecordBatch, kind: pa.DataType) -> pa.Array:
    """The rows of a batch with the columns of `element_schema` as one column of an element's type."""
    if not pa.types.is_struct(kind):
        return conform(batch.column(0), kind)
    columns = [
        conform(batch.column(at), field.type)
        if at < batch.num_columns
        else pa.nulls(batch.num_rows, field.type)
        for at, field in enumerate(kind)
    ]
    return pa.StructArray.from_arrays(columns, fields=list(kind))


def conform_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of `schema`, by name, in its types."""
    columns = [conform(batch.column(field.name), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def conform(array: pa.Array | pa.ChunkedArray, wanted: pa.DataType) -> pa.Array:
    """Rebuild a column in a type of the same shape; struct children match by name, missing ones are null.

    Raises:
        ConfigError: A value does not fit the type.
    """
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
        if isinstance(array, pa.ChunkedArray):
            array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if array.type.equals(wanted):
        return array
    if pa.types.is_struct(wanted) and pa.types.is_struct(array.type):
        return _conform_struct(array, wanted)
    if pa.types.is_map(wanted) and pa.types.is_map(array.type):
        return _conform_map(array, wanted)
    if pa.types.is_list(wanted) and pa.types.is_list(array.type):
        offsets, start, length = _offsets(array)
        values = conform(array.values.slice(start, length), wanted.value_type)
        return pa.ListArray.from_arrays(offsets, values, type=wanted, mask=_nulls(array))
    try:
        return array.cast(wanted)
    except pa.ArrowException as exc:
        raise ConfigError(f"A column of type {array.type} cannot be read as {wanted}: {exc}") from exc


def _conform_struct(array: pa.StructArray, wanted: pa.StructType) -> pa.Array:
    names = {field.name: at for at, field in enumerate(array.type)}
    children = [
        conform(array.field(names[field.name]), field.type)
        if field.name in names
        else pa.nulls(len(array), field.type)
        for field in wanted
    ]
    return pa.StructArray.from_arrays(children, fields=list(wanted), mask=_nulls(array))


def _conform_map(array: pa.MapArray, wanted: pa.MapType) -> pa.Array:
    offsets, start, length = _offsets(array)
    keys = conform(array.keys.slice(start, length), wanted.key_type)
    items = conform(array.items.slice(start, length), wanted.item_type)
    return pa.MapArray.from_arrays(offsets, keys, items, type=wanted, mask=_nulls(array))


def _offsets(array: Any) -> tuple[pa.Array, int, int]:
    """Offsets from 0, and the slice of the child values they mean."""
    numbers = array.offsets.to_numpy(zero_copy_only=False)
    start = int(numbers[0]) if len(numbers) else 0
    end = int(numbers[-1]) if len(numbers) else 0
    return pa.array((numbers - start).astype(np.int32), pa.int32()), start, end - start


def _nulls(array: pa.Array) -> pa.Array | None:
    return pc.is_null(array) if array.null_count else None
