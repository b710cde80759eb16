"""The logical graph: plain data that the API builds and an `Executor` runs.

A node is a source, an operator or a sink; its spec says which (`api.specs`). Keying, partitioning, side
outputs and union are properties of edges, not nodes: a union is several edges with the same `input_index`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tidemark.api.specs import IterationHeadSpec, OperatorSpec, SinkSpec, SourceSpec
from tidemark.types.typeinfo import TypeInformation

__all__ = [
    "Edge",
    "Graph",
    "Node",
    "NodeKind",
    "Ship",
]


class NodeKind(Enum):
    """Role of a node; the values are the `pact` texts of the execution plan."""

    SOURCE = "Data Source"
    OPERATOR = "Operator"
    SINK = "Data Sink"


class Ship(Enum):
    """How an edge distributes records over the receiving subtasks."""

    FORWARD = "FORWARD"
    HASH = "HASH"
    REBALANCE = "REBALANCE"
    RESCALE = "RESCALE"
    SHUFFLE = "SHUFFLE"
    BROADCAST = "BROADCAST"
    CUSTOM = "CUSTOM"
    GLOBAL = "GLOBAL"


@dataclass(slots=True)
class Edge:
    """A stream from one node to an input of another."""

    source: int
    input_index: int = 0
    ship: Ship = Ship.FORWARD
    key_selector: Callable[[Any], Any] | None = None
    key_type: TypeInformation | None = None
    """None means the key is pickled (canonically)."""
    partitioner: Callable[[Any, int], int] | None = None
    tag: str | None = None
    """Side output of the source node this edge carries; None is the main output."""
    explicit: bool = False
    """Whether the user asked for FORWARD; otherwise it means REBALANCE where the parallelism differs."""


@dataclass(slots=True)
class Node:
    """One source, operator or sink."""

    id: int
    kind: NodeKind
    name: str
    spec: OperatorSpec | SourceSpec | SinkSpec
    inputs: list[Edge] = field(default_factory=list)
    output_type: TypeInformation | None = None
    """Declared type of the main output; None means untyped (pickled)."""
    side_types: dict[str, TypeInformation | None] = field(default_factory=dict)
    parallelism: int | None = None
    """None means the environment's default."""
    max_parallelism: int | None = None
    uid: str | None = None
    uid_hash: str | None = None
    description: str | None = None
    forced_non_parallel: bool = False


@dataclass(slots=True)
class Graph:
    """Nodes by id, in creation order (every edge points from a lower id, except iteration feedback)."""

    nodes: dict[int, Node] = field(default_factory=dict)

    def add(self, node: Node) -> Node:
        """Add a node and return it."""
        self.nodes[node.id] = node
        return node

    def reachable_to(self, sinks: list[int]) -> Graph:
        """The part of the graph that feeds `sinks`, in id order."""
        wanted: set[int] = set()
        stack = list(sinks)
        while stack:
            node = self.nodes[stack.pop()]
            if node.id in wanted:
                continue
            wanted.add(node.id)
            stack += [edge.source for edge in node.inputs]
            if isinstance(node.spec, IterationHeadSpec):
                stack += [source for source, _tag in (*node.spec.feedback, *node.spec.criterion)]
        return Graph({key: self.nodes[key] for key in sorted(wanted)})
