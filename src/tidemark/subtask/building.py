"""From a vertex of the physical plan to the operator that a slot runs for it."""

from __future__ import annotations

from typing import Any

from tidemark.api.specs import FunctionSinkSpec, FunctionSourceSpec
from tidemark.operators.base import Operator
from tidemark.operators.factory import create_operator
from tidemark.operators.sink import SinkOperator
from tidemark.operators.source import SourceOperator
from tidemark.plan.vertex import Vertex

__all__ = ["operator_of"]


def operator_of(vertex: Vertex) -> Operator:
    """The operator a slot runs for a vertex: a source function, a sink function, or what the graph says."""
    spec = vertex.spec
    if isinstance(spec, FunctionSourceSpec):
        return SourceOperator(spec.function, vertex.output_type)
    if isinstance(spec, FunctionSinkSpec):
        return SinkOperator(spec.function)
    types: dict[int, Any] = {}
    for edge, kind in zip(vertex.inputs, vertex.input_types, strict=True):
        types.setdefault(edge.input_index, kind)
    return create_operator(
        spec, vertex.key_type() if vertex.keyed else None, [types[index] for index in sorted(types)] or [None]
    )
