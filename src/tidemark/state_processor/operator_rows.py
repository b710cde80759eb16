"""Operator state as elements and as columns: lists by subtask, one copy of a broadcast map.

list, union:  subtask: int32 | position: int32 | value
broadcast:    map_key | value
raw:          subtask: int32 | value: binary
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tidemark.errors import StateMigrationException
from tidemark.state.serializers.base import TypeSerializer
from tidemark.state.serializers.compatibility import load_serializer_snapshot
from tidemark.state.snapshot import OperatorStatePart, Redistribution
from tidemark.state_processor.columns import conform_batch, shown_schema

__all__ = ["operator_batch", "operator_schema", "pairs_of_one_copy"]

Parts = list[tuple[int, OperatorStatePart]]


def operator_schema(parts: Parts) -> pa.Schema:
    """Columns of one operator state, given its parts of all subtasks (at least one)."""
    part = parts[0][1]
    value = _arrow_type(_serializer(part.serializer))
    if part.mode is Redistribution.BROADCAST:
        return shown_schema(
            pa.schema([("map_key", _arrow_type(_serializer(part.map_key_serializer))), ("value", value)])
        )
    fields = [("subtask", pa.int32())]
    if part.mode is not Redistribution.RAW:
        fields.append(("position", pa.int32()))
    return shown_schema(pa.schema([*fields, ("value", value)]))


def operator_batch(parts: Parts) -> pa.RecordBatch:
    """All rows of one operator state."""
    part = parts[0][1]
    serializer = _serializer(part.serializer)
    if part.mode is Redistribution.BROADCAST:
        keys, values = pairs_of_one_copy(parts)
        columns = {
            "map_key": _column(keys, _serializer(part.map_key_serializer)),
            "value": _column(values, serializer),
        }
    else:
        elements = [(index, at, data) for index, p in parts for at, data in enumerate(p.elements)]
        columns = {
            "subtask": pa.array([index for index, _, _ in elements], pa.int32()),
            "position": pa.array([at for _, at, _ in elements], pa.int32()),
            "value": _column([data for _, _, data in elements], serializer),
        }
    schema = operator_schema(parts)
    wide = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    return conform_batch(wide, schema)


def pairs_of_one_copy(parts: Parts) -> tuple[list[bytes], list[bytes]]:
    """Keys and values of a broadcast state, taken from the first subtask: all copies are equal."""
    elements = parts[0][1].elements if parts else ()
    return list(elements[0::2]), list(elements[1::2])


def _serializer(snapshot: bytes) -> TypeSerializer[Any] | None:
    """The serializer behind a snapshot; None if there is none, or its classes are not to be had here."""
    if not snapshot:
        return None
    try:
        return load_serializer_snapshot(snapshot).restore_serializer()
    except StateMigrationException:
        return None


def _arrow_type(serializer: TypeSerializer[Any] | None) -> pa.DataType:
    return pa.binary() if serializer is None else serializer.arrow_type()


def _column(data: list[bytes], serializer: TypeSerializer[Any] | None) -> pa.Array:
    if serializer is None or serializer.arrow_type() == pa.binary():
        # What has no typed column shows the bytes that are stored.
        return pa.array(data, pa.binary())
    return serializer.to_arrow([serializer.from_bytes(element) for element in data])
