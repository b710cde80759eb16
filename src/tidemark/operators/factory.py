"""From an `OperatorSpec` of the logical graph to the operator that runs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tidemark.api.specs import (
    AsyncWaitSpec,
    BatchSpec,
    BroadcastProcessSpec,
    DeltaSpec,
    FunctionSpec,
    IterationHeadSpec,
    OperatorKind,
    OperatorSpec,
    QueryableSpec,
    ReduceSpec,
    TimestampsSpec,
    TransformSpec,
    WindowSpec,
)
from tidemark.operators.async_wait import AsyncWaitOperator
from tidemark.operators.base import Operator
from tidemark.operators.batch_process import BatchProcessOperator
from tidemark.operators.broadcast import BroadcastOperator, KeyedBroadcastOperator
from tidemark.operators.co import (
    CoFlatMapOperator,
    CoMapOperator,
    CoProcessOperator,
    KeyedCoFlatMapOperator,
    KeyedCoMapOperator,
    KeyedCoProcessOperator,
)
from tidemark.operators.column_reduce import ColumnReduceOperator, reduces_by_column
from tidemark.operators.column_session_window import column_window_operator
from tidemark.operators.column_window import windows_by_column
from tidemark.operators.function_operator import PassThroughOperator
from tidemark.operators.keyed import (
    KeyedFilterOperator,
    KeyedFlatMapOperator,
    KeyedMapOperator,
    KeyedProcessOperator,
)
from tidemark.operators.own import KeyedOwnOperator, OwnOperator
from tidemark.operators.queryable import QueryableStateOperator
from tidemark.operators.reduce import ReduceOperator
from tidemark.operators.sink import SinkOperator
from tidemark.operators.stateless import FilterOperator, FlatMapOperator, MapOperator, ProcessOperator
from tidemark.operators.stateless_batches import FilterBatchOperator, MapBatchOperator
from tidemark.operators.supersteps import DeltaOperator, SuperstepHead
from tidemark.operators.timestamps import TimestampsOperator
from tidemark.operators.window import WindowOperator

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
    match spec:
        case FunctionSpec(kind=OperatorKind.SINK_FUNCTION):
            return SinkOperator(spec.function)
        case FunctionSpec():
            plain, keyed = _BY_KIND[spec.kind]
            return keyed(spec.function, key_type) if spec.keyed else plain(spec.function)
        case BatchSpec(keyed=True):
            return BatchProcessOperator(spec.function, key_type, spec.input_type, spec.output_type)
        case BatchSpec(kind=OperatorKind.MAP_BATCH):
            return MapBatchOperator(spec.function, spec.input_type, spec.output_type)
        case BatchSpec():
            return FilterBatchOperator(spec.function, spec.input_type)
        case TimestampsSpec():
            return TimestampsOperator(spec.strategy)
        case ReduceSpec() if input_types[0] is not None and reduces_by_column(spec.function, input_types[0]):
            return ColumnReduceOperator(spec.function, key_type, input_types[0])
        case ReduceSpec():
            return ReduceOperator(spec.function, key_type, input_types[0])
        case BroadcastProcessSpec(keyed=True):
            return KeyedBroadcastOperator(spec.function, spec.descriptors, key_type)
        case BroadcastProcessSpec():
            return BroadcastOperator(spec.function, spec.descriptors)
        case WindowSpec() if windows_by_column(spec):
            return column_window_operator(spec, key_type)
        case WindowSpec():
            return WindowOperator(spec, key_type)
        case QueryableSpec():
            return QueryableStateOperator(spec.descriptor, spec.query_name, key_type)
        case AsyncWaitSpec():
            return AsyncWaitOperator(spec, input_types[0])
        case TransformSpec(keyed=True):
            return KeyedOwnOperator(spec.operator, key_type)
        case TransformSpec():
            return OwnOperator(spec.operator)
        case DeltaSpec():
            return DeltaOperator(spec.function, spec.element_type, key_type)
        case IterationHeadSpec() if spec.max_iterations is not None:
            return SuperstepHead()
        case IterationHeadSpec():
            return PassThroughOperator()
    raise AssertionError(f"no operator for {type(spec).__name__}")
