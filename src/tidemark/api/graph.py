"""The logical graph: plain data that the API builds and an `Executor` runs.

A node is a source, an operator or a sink. Keying, partitioning, side outputs and union are properties of
edges, not nodes: a union is several edges with the same `input_index`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tidemark.types.typeinfo import TypeInformation

__all__ = [
    "Edge",
    "Graph",
    "Node",
    "NodeKind",
    "OperatorKind",
    "OperatorSpec",
    "Ship",
    "SinkSpec",
    "SourceSpec",
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


class OperatorKind(Enum):
    """What an operator does with its function; `operators.factory` knows the code behind each."""

    MAP = "map"
    FLAT_MAP = "flat_map"
    FILTER = "filter"
    PROCESS = "process"
    TIMESTAMPS = "timestamps"
    REDUCE = "reduce"
    CO_MAP = "co_map"
    CO_FLAT_MAP = "co_flat_map"
    CO_PROCESS = "co_process"
    BROADCAST_PROCESS = "broadcast_process"
    WINDOW = "window"
    SINK_FUNCTION = "sink_function"
    QUERYABLE = "queryable"
    ITERATION_HEAD = "iteration_head"


@dataclass(slots=True)
class OperatorSpec:
    """Everything needed to build the operator of a node, apart from its place in the graph.

    `function` is the user's function object or callable. A keyed operator is one whose input edges are
    HASH edges; `keyed` repeats that. `options` holds what only some kinds need, under documented names:

    * BROADCAST_PROCESS: `descriptors` (list of MapStateDescriptor); input 0 is the data, 1 the broadcast side
    * WINDOW: `assigner`, `trigger`, `evictor`, `allowed_lateness`, `late_tag`, `reduce`, `aggregate`,
      `accumulator_type`, `window_function` (object with apply/process), `all_windows` (bool),
      `function_kind` ("apply" | "process" | None)
    * TIMESTAMPS: `strategy` (WatermarkStrategy)
    * QUERYABLE: `query_name`, `descriptor`
    * REDUCE: nothing; `function` has two arguments
    * ITERATION_HEAD: `max_wait_ms`, `feedback` (list of node ids and tags, filled by close_with)
    """

    kind: OperatorKind
    function: Any = None
    keyed: bool = False
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class SourceSpec:
    """Where records come from.

    `kind`: "collection" (`options['elements']`), "sequence" (`start`, `end`), "files" (`paths`, `charset`,
    `monitor_ms`), "function" (`function`: a SourceFunction), "spark_stream" (`dataframe`,
    `partition_columns`, `closed`: see `spark_sources`), "spark_batch" (`dataframe`), "scripted" (tests). A
    collection may also have `timestamps` (one per element).
    """

    kind: str
    bounded: bool
    options: dict[str, Any] = field(default_factory=dict)
    strategy: Any = None
    """WatermarkStrategy attached by `from_source`, or None."""


@dataclass(slots=True)
class SinkSpec:
    """Where records go, and with which guarantee.

    `kind`: "print" (`identifier`), "collect" (`buffer`: a `CollectBuffer` that stays in the driver), "files"
    (`sink`: a built FileSink), "function" (`function`: a SinkFunction), "foreach_batch" (`function`),
    "spark_writer" (`format`, `options`, `path`).
    """

    kind: str
    guarantee: str
    """"exactly-once", "at-least-once" or "none"."""
    options: dict[str, Any] = field(default_factory=dict)


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

    def outputs_of(self, node_id: int) -> Iterator[tuple[Node, Edge]]:
        """The edges that leave a node, with the nodes they enter."""
        for node in self.nodes.values():
            for edge in node.inputs:
                if edge.source == node_id:
                    yield node, edge

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
            if isinstance(node.spec, OperatorSpec):
                stack += [source for source, _tag in node.spec.options.get("feedback", ())]
        return Graph({key: self.nodes[key] for key in sorted(wanted)})
