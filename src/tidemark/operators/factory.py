"""From an `OperatorSpec` of the logical graph to the operator that runs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tidemark.api.graph import OperatorKind, OperatorSpec
from tidemark.operators.base import Operator
from tidemark.operators.broadcast import BroadcastOperator, KeyedBroadcastOperator
from tidemark.operators.co import (
    CoFlatMapOperator,
    CoMapOperator,
    CoProcessOperator,
    KeyedCoFlatMapOperator,
    KeyedCoMapOperator,
    KeyedCoProcessOperator,
)
from tidemark.operators.function_operator import PassThroughOperator
from tidemark.operators.keyed import (
    KeyedFilterOperator,
    KeyedFlatMapOperator,
    KeyedMapOperator,
    KeyedProcessOperator,
)
from tidemark.operators.queryable import QueryableStateOperator
from tidemark.operators.reduce import ReduceOperator
from tidemark.operators.sink import SinkOperator
from tidemark.operators.stateless import FilterOperator, FlatMapOperator, MapOperator, ProcessOperator
from tidemark.operators.timestamps import TimestampsOperator
from tidemark.operators.window import WindowOperator, WindowSettings
from tidemark.types.time import to_millis

if TYPE_CHECKING:
    from tidemark.types.typeinfo import TypeInformation

__all__ = ["create_operator"]

_BY_KIND: dict[OperatorKind, tuple[Callable[..., Operator], Callable[..., Operator]]] = {
    OperatorKind.MAP: (MapOperator, KeyedMapOperator),
    OperatorKind.FLAT_MAP: (FlatMapOperator, KeyedFlatMapOperator),
    OperatorKind.FILTER: (FilterOperator, KeyedFilterOperator),
    OperatorKind.PROCESS: (ProcessOperator, KeyedProcessOperator),
    OperatorKind.CO_MAP: (CoMapOperator, KeyedCoMapOperator),
    OperatorKind.CO_FLAT_MAP: (CoFlatMapOperator, KeyedCoFlatMapOperator),
    OperatorKind.CO_PROCESS: (CoProcessOperator, KeyedCoProcessOperator),
}
"""Kinds that need nothing but their function: the class without keys and the one with."""


def create_operator(
    spec: OperatorSpec,
    key_type: TypeInformation | None = None,
    input_types: Sequence[TypeInformation | None] = (None,),
) -> Operator:
    """Build the operator of a node.

    Args:
        spec: What the graph says about the node.
        key_type: Type of the key of its HASH edges; None means pickled. Ignored unless `spec.keyed`.
        input_types: Declared type of the records of each input; None means pickled.
    """
    kind = spec.kind
    if kind in _BY_KIND:
        plain, keyed = _BY_KIND[kind]
        return keyed(spec.function, key_type) if spec.keyed else plain(spec.function)
    options = spec.options
    if kind is OperatorKind.TIMESTAMPS:
        return TimestampsOperator(options["strategy"])
    if kind is OperatorKind.REDUCE:
        return ReduceOperator(spec.function, key_type, input_types[0])
    if kind is OperatorKind.BROADCAST_PROCESS:
        descriptors = options["descriptors"]
        if spec.keyed:
            return KeyedBroadcastOperator(spec.function, descriptors, key_type)
        return BroadcastOperator(spec.function, descriptors)
    if kind is OperatorKind.WINDOW:
        return WindowOperator(_window_settings(options, input_types[0]), key_type)
    if kind is OperatorKind.SINK_FUNCTION:
        return SinkOperator(spec.function)
    if kind is OperatorKind.QUERYABLE:
        return QueryableStateOperator(options["descriptor"], options["query_name"], key_type)
    return PassThroughOperator()


def _window_settings(options: dict[str, Any], element_type: TypeInformation | None) -> WindowSettings:
    return WindowSettings(
        assigner=options["assigner"],
        trigger=options.get("trigger"),
        allowed_lateness=to_millis(options.get("allowed_lateness") or 0),
        late_tag=options.get("late_tag"),
        reduce=options.get("reduce"),
        aggregate=options.get("aggregate"),
        accumulator_type=options.get("accumulator_type"),
        window_function=options.get("window_function"),
        function_kind=options.get("function_kind"),
        all_windows=bool(options.get("all_windows")),
        element_type=element_type,
    )
