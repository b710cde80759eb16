"""The physical plan: every node with its identity, parallelism and place, plain data for tasks and slots.

A vertex runs either fused in the Spark task (`Placement.TASK`) or next to its state in the slots
(`Placement.SLOT`). Functions with a life cycle of their own (open, close, operator state) live in slots,
because a task lasts one epoch only.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tidemark.api.graph import Edge, Graph, Node, NodeKind, Ship
from tidemark.api.specs import (
    BatchSpec,
    FunctionSinkSpec,
    FunctionSourceSpec,
    FunctionSpec,
    IterationHeadSpec,
    OperatorKind,
    SinkSpec,
    SourceSpec,
    TimestampsSpec,
)
from tidemark.config.file_systems import file_system_options
from tidemark.errors import UnsupportedOperationException
from tidemark.plan.vertex import Placement, Vertex
from tidemark.types.typeinfo import TypeInformation

if TYPE_CHECKING:
    from tidemark.api.executor import JobSettings

__all__ = ["JobPlan", "Supersteps", "build_plan", "has_life_cycle"]

_STATELESS = {OperatorKind.MAP, OperatorKind.FLAT_MAP, OperatorKind.FILTER, OperatorKind.PROCESS}
_LIFE_CYCLE = ("open", "close", "initialize_state", "snapshot_state", "restore_state",
               "notify_checkpoint_complete", "notify_checkpoint_aborted")  # fmt: skip
_ADDRESSED = {Ship.BROADCAST, Ship.CUSTOM, Ship.GLOBAL}


@dataclass(frozen=True, slots=True)
class Supersteps:
    """An iteration in rounds."""

    inside: frozenset[int]
    """Vertices that a round goes through, without the head."""
    max_iterations: int
    criterion: tuple[tuple[int, str | None], ...] = ()
    """(vertex, tag) pairs of which one has to emit something for another round; none: no such condition."""


@dataclass(frozen=True, slots=True)
class JobPlan:
    """All vertices in topological order, and what leaves each of them."""

    job_id: str
    job_name: str
    vertices: dict[int, Vertex]
    slots: int
    batch_mode: bool = False
    feedback: dict[int, tuple[tuple[int, str | None], ...]] = field(default_factory=dict)
    """Iteration head -> (vertex, tag) pairs whose output goes back into it."""
    job_parameters: dict[str, str] = field(default_factory=dict)
    supersteps: dict[int, Supersteps] = field(default_factory=dict)
    """Iteration head -> the rounds it begins, on bounded input."""
    file_systems: dict[str, dict[str, Any]] = field(default_factory=dict, repr=False)
    """What remote file systems are made with, secrets included."""

    def of_kind(self, kind: NodeKind) -> list[Vertex]:
        """Vertices of one kind."""
        return [vertex for vertex in self.vertices.values() if vertex.kind is kind]

    def in_slots(self) -> list[Vertex]:
        """Vertices that run in slots, in topological order."""
        return [vertex for vertex in self.vertices.values() if vertex.placement is Placement.SLOT]

    def sources_of(self, vertex_id: int) -> set[int]:
        """Sources whose records reach a vertex; a source reaches itself."""
        vertex = self.vertices[vertex_id]
        if vertex.kind is NodeKind.SOURCE:
            return {vertex_id}
        return {source for edge in vertex.inputs for source in self.sources_of(edge.source)}

    def is_fused(self, vertex_id: int) -> bool:
        """Whether a record gets from its source to a vertex within one task and one call, in the source's order."""
        vertex = self.vertices[vertex_id]
        if vertex.placement is Placement.SLOT or vertex_id in self.feedback:
            return False
        return all(self.is_fused(edge.source) for edge in vertex.inputs)

    def depth_below(self, vertex_id: int) -> int:
        """Most epochs a watermark of a vertex takes until every operator that can read it has it.

        Slot vertices pass it on with the epoch after; what is fused behind them reads it then.
        """
        depths, longest = {vertex_id: 0}, 0
        for vertex in self.vertices.values():
            above = [depths[edge.source] for edge in vertex.inputs if edge.source in depths]
            if above:
                in_slot = vertex.placement is Placement.SLOT
                depths[vertex.id] = max(above) + in_slot
                reads = getattr(vertex.spec, "kind", None) is OperatorKind.PROCESS
                longest = max(longest, depths[vertex.id] + (reads and not in_slot))
        return longest

    def with_vertices(self, vertices: dict[int, Vertex]) -> JobPlan:
        """The plan with other vertices."""
        return replace(self, vertices=vertices)

    def with_max_parallelism(self, adopted: dict[str, int]) -> JobPlan:
        """The plan with the key-group counts of a restored snapshot (uid -> count)."""
        vertices = {
            key: replace(v, max_parallelism=adopted.get(v.uid, v.max_parallelism))
            for key, v in self.vertices.items()
        }
        return replace(self, vertices=vertices)


def build_plan(graph: Graph, settings: JobSettings, job_id: str) -> JobPlan:
    """Resolve uids, parallelism and placement of every node."""
    from tidemark.api.executor import resolve_max_parallelism, resolve_parallelism
    from tidemark.api.uids import resolve_uids

    uids = resolve_uids(graph)
    vertices = {}
    for node in graph.nodes.values():
        parallelism = resolve_parallelism(node, settings)
        vertices[node.id] = Vertex(
            id=node.id,
            kind=node.kind,
            name=node.name,
            uid=uids[node.id],
            spec=_configured(node.spec, settings),
            inputs=tuple(node.inputs),
            input_types=tuple(_stream_type(graph, edge) for edge in node.inputs),
            parallelism=parallelism,
            max_parallelism=resolve_max_parallelism(node, settings, parallelism),
            placement=_place(node),
            output_type=node.output_type,
            side_types=dict(node.side_types),
        )
    slots = max([1, *(v.parallelism for v in vertices.values() if v.placement is Placement.SLOT)])
    feedback = {
        node.id: tuple(node.spec.feedback)
        for node in graph.nodes.values()
        if isinstance(node.spec, IterationHeadSpec)
    }
    return JobPlan(
        job_id=job_id,
        job_name=settings.job_name,
        vertices=vertices,
        slots=slots,
        batch_mode=settings.batch_mode,
        feedback=feedback,
        job_parameters=settings.job_parameters,
        supersteps={
            node.id: _supersteps(vertices, node.id, node.spec)
            for node in graph.nodes.values()
            if isinstance(node.spec, IterationHeadSpec) and node.spec.max_iterations is not None
        },
        file_systems=file_system_options(settings.configuration),
    )


def _configured(spec: Any, settings: JobSettings) -> Any:
    return spec.configured(settings.configuration) if isinstance(spec, SourceSpec) else spec


def _supersteps(vertices: dict[int, Vertex], head: int, spec: IterationHeadSpec) -> Supersteps:
    """The vertices behind the head that lead back to it, or to the criterion."""
    behind = {head}
    for vertex in vertices.values():
        if any(edge.source in behind for edge in vertex.inputs):
            behind.add(vertex.id)
    back: set[int] = set()
    waiting = [source for source, _tag in (*spec.feedback, *spec.criterion)]
    while waiting:
        at = waiting.pop()
        if at in behind and at != head and at not in back:
            back.add(at)
            waiting += [edge.source for edge in vertices[at].inputs]
    nested = [vertices[at].name for at in back if isinstance(vertices[at].spec, IterationHeadSpec)]
    if nested:
        raise UnsupportedOperationException(
            "An iteration inside of an iteration is not possible in BATCH mode. Close the inner one before the outer "
            "one begins, or write its rounds as one function."
        )
    return Supersteps(frozenset(back), spec.max_iterations or 0, tuple(spec.criterion))


def _stream_type(graph: Graph, edge: Edge) -> TypeInformation | None:
    source = graph.nodes[edge.source]
    return source.output_type if edge.tag is None else source.side_types.get(edge.tag)


def _place(node: Node) -> Placement:
    match node.spec:
        case FunctionSourceSpec() | FunctionSinkSpec():
            return Placement.SLOT
        case IterationHeadSpec(max_iterations=int()):
            return Placement.SLOT
        case SourceSpec() | SinkSpec() | TimestampsSpec() | IterationHeadSpec():
            return Placement.TASK
        case BatchSpec(keyed=False):
            addressed = any(edge.ship in _ADDRESSED for edge in node.inputs)
            return Placement.SLOT if addressed else Placement.TASK
        case FunctionSpec(keyed=False) as spec if spec.kind in _STATELESS:
            addressed = any(edge.ship in _ADDRESSED for edge in node.inputs)
            return Placement.SLOT if addressed or has_life_cycle(spec.function) else Placement.TASK
    return Placement.SLOT


def has_life_cycle(function: Any) -> bool:
    """Whether a user function overrides a method that makes it more than a per-record function."""
    from tidemark.api.functions import Function

    cls = type(function)
    if not issubclass(cls, Function):
        return False
    for name in _LIFE_CYCLE:
        mine = getattr(cls, name, None)
        if mine is not None and mine is not getattr(Function, name, None) and not _is_library(cls, name):
            return True
    return False


def _is_library(cls: type, name: str) -> bool:
    for base in cls.__mro__:
        if name in vars(base):
            return base.__module__.startswith("tidemark.api")
    return True
