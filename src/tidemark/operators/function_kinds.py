"""Which kind of operator a user function belongs in, told by its class."""

from __future__ import annotations

from typing import Any

from tidemark.api.functions import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    FilterFunction,
    FlatMapFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    ReduceFunction,
    SinkFunction,
)
from tidemark.api.specs import OperatorKind

__all__ = ["one_input_kind", "two_input_kind"]

_ONE_INPUT: tuple[tuple[type[Any], OperatorKind], ...] = (
    (MapFunction, OperatorKind.MAP),
    (FlatMapFunction, OperatorKind.FLAT_MAP),
    (FilterFunction, OperatorKind.FILTER),
    (ProcessFunction, OperatorKind.PROCESS),
    (KeyedProcessFunction, OperatorKind.PROCESS),
    (ReduceFunction, OperatorKind.REDUCE),
    (SinkFunction, OperatorKind.SINK_FUNCTION),
)
_TWO_INPUTS: tuple[tuple[type[Any], OperatorKind], ...] = (
    (CoMapFunction, OperatorKind.CO_MAP),
    (CoFlatMapFunction, OperatorKind.CO_FLAT_MAP),
    (CoProcessFunction, OperatorKind.CO_PROCESS),
    (KeyedCoProcessFunction, OperatorKind.CO_PROCESS),
)


def one_input_kind(function: Any, *, keyed: bool) -> OperatorKind:
    """Kind of the operator for a function of one input; a plain callable is a map.

    Raises:
        TypeError: It is no such function, or it needs a key and the stream has none.
    """
    for base, kind in _ONE_INPUT:
        if isinstance(function, base):
            if base in (KeyedProcessFunction, ReduceFunction) and not keyed:
                raise TypeError(f"{type(function).__name__} needs a keyed stream: give a key selector.")
            return kind
    if callable(function):
        return OperatorKind.MAP
    raise TypeError(f"{type(function).__name__} is neither a function of one input nor a callable.")


def two_input_kind(function: Any) -> OperatorKind:
    """Kind of the operator for a function of two inputs.

    Raises:
        TypeError: It is no such function.
    """
    for base, kind in _TWO_INPUTS:
        if isinstance(function, base):
            return kind
    raise TypeError(f"{type(function).__name__} is not a function of two inputs.")
