"""Copies of emitted values that user code may still change.

Results leave an operator in batches, some time after they were emitted. An object that is also kept in
state could be changed by a later record of the same batch, so operators whose state holds changeable
objects emit copies. Values that cannot change are passed on as they are.
"""

from __future__ import annotations

import copy
import datetime
import decimal
from typing import Any

from tidemark.api.output_tag import OutputTag
from tidemark.types.row import Row, row_of

__all__ = ["detached"]

_ATOMS = frozenset(
    {
        int,
        str,
        float,
        bool,
        bytes,
        complex,
        type(None),
        decimal.Decimal,
        datetime.date,
        datetime.time,
        datetime.datetime,
        datetime.timedelta,
        OutputTag,
    }
)


def detached(value: Any) -> Any:
    """A value equal to `value` that shares nothing changeable with it."""
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is tuple:
        for item in value:
            if type(item) not in _ATOMS:
                return tuple([detached(item) for item in value])
        return value
    if kind is list:
        return [item if type(item) in _ATOMS else detached(item) for item in value]
    if kind is dict:
        return {key: item if type(item) in _ATOMS else detached(item) for key, item in value.items()}
    if kind is Row:
        return row_of([detached(item) for item in value._values], value._fields, value._row_kind)
    return copy.deepcopy(value)
