"""Adds nodes to the logical graph; the stream classes and the environment are its only users."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from tidemark.api.graph import Edge, Graph, Node, NodeKind
from tidemark.api.specs import OperatorSpec, SinkSpec, SourceSpec
from tidemark.types.typeinfo import TypeInformation, to_type_info

if TYPE_CHECKING:
    from tidemark.api.environment import StreamExecutionEnvironment
    from tidemark.api.stream import DataStream

__all__ = ["GraphBuilder", "callable_or", "optional_type", "stream_from_source"]


class GraphBuilder:
    """The graph of one environment while it grows."""

    begun: ClassVar[int] = 0
    """Graphs that got their first node in this process; a program that began one and ran no job forgot something."""

    submitted: ClassVar[int] = 0
    """Jobs that `execute` and its kin were called for in this process."""
    planned: ClassVar[int] = 0
    """Plans that were asked for in this process: a program that shows one need not run it."""
    sunk: ClassVar[int] = 0
    """Sinks that were added in this process."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.sinks: list[int] = []
        """Nodes that the next `execute` runs."""

    def add(
        self,
        kind: NodeKind,
        name: str,
        spec: OperatorSpec | SourceSpec | SinkSpec,
        inputs: Sequence[Sequence[Edge]] = (),
        output_type: TypeInformation | None = None,
    ) -> Node:
        """Add a node; `inputs` has, for each input, the edges of the stream connected to it."""
        if not self.graph.nodes:
            GraphBuilder.begun += 1
        node = Node(
            id=len(self.graph.nodes) + 1,
            kind=kind,
            name=name,
            spec=spec,
            inputs=[replace(edge, input_index=at) for at, edges in enumerate(inputs) for edge in edges],
            output_type=output_type,
        )
        return self.graph.add(node)

    def add_sink(self, name: str, spec: SinkSpec, edges: Sequence[Edge]) -> Node:
        """Add a sink for the next `execute`."""
        node = self.add(NodeKind.SINK, name, spec, [edges])
        self.sinks.append(node.id)
        GraphBuilder.sunk += 1
        return node

    def upstream_of(self, edges: Sequence[Edge]) -> list[Node]:
        """Every node that feeds these edges, directly or not, in id order."""
        return list(self.graph.reachable_to([edge.source for edge in edges]).nodes.values())


def stream_from_source(
    environment: StreamExecutionEnvironment,
    spec: SourceSpec,
    name: str,
    type_info: TypeInformation | None = None,
    parallelism: int | None = None,
) -> DataStream:
    """The stream of a new source; `parallelism` fixes it for good."""
    from tidemark.api.stream import DataStream

    node = environment._builder.add(NodeKind.SOURCE, name, spec, output_type=type_info)
    node.parallelism = parallelism
    node.forced_non_parallel = parallelism == 1
    return DataStream(environment, [Edge(node.id)], type_info, node)


def optional_type(declaration: Any) -> TypeInformation | None:
    """A type the user may leave out.

    Raises:
        TypeError: Neither None nor a type.
    """
    return None if declaration is None else to_type_info(declaration)


def callable_or(function: Any, kind: type, what: str) -> Any:
    """`function` if it is of `kind` or can be called.

    Raises:
        TypeError: Neither; `what` names the method.
    """
    if not isinstance(function, kind) and not callable(function):
        raise TypeError(
            f"{what}() needs a {kind.__name__} or a callable, not {function!r} ({type(function).__name__})."
        )
    return function


@atexit.register
def _remind() -> None:
    """Tell the author of a program that ends without `execute()`; `tidemark run` says so itself.

    Only of a file that was run as such: whoever runs tests or types into a shell may well build a graph for nothing.
    """
    program = sys.argv[0] if sys.argv else ""
    is_file = program.endswith(".py") and getattr(sys.modules.get("__main__"), "__spec__", None) is None
    is_over = not hasattr(sys, "last_value") and not sys.flags.interactive
    if is_file and is_over and GraphBuilder.sunk and not (GraphBuilder.submitted or GraphBuilder.planned):
        print(f"{program} ended without running a job. Call execute() on its environment.", file=sys.stderr)
