"""Which id ties an operator to its state: the user's uid, else one derived from its place in the graph."""

from __future__ import annotations

import hashlib

from tidemark.api.graph import Edge, Graph, Node
from tidemark.api.specs import OperatorSpec, SourceSpec

__all__ = ["resolve_uids"]


def resolve_uids(graph: Graph) -> dict[int, str]:
    """Uid of every node.

    A derived uid is a hash of what the node is, of the uids of its inputs and of how many equal nodes came
    before it. It stays the same as long as everything upstream of the node does; names do not matter.
    """
    uids: dict[int, str] = {}
    taken: dict[str, int] = {}
    for node in graph.nodes.values():
        if node.uid is not None:
            uids[node.id] = node.uid
            continue
        if node.uid_hash is not None:
            uids[node.id] = node.uid_hash
            continue
        place = "|".join([_what(node), *(_edge(edge, uids) for edge in node.inputs)])
        count = taken[place] = taken.get(place, -1) + 1
        uids[node.id] = hashlib.sha256(f"{place}#{count}".encode()).hexdigest()[:32]
    return uids


def _what(node: Node) -> str:
    spec = node.spec
    if isinstance(spec, OperatorSpec):
        return f"operator:{spec.kind.value}"
    return f"source:{spec.kind}" if isinstance(spec, SourceSpec) else f"sink:{spec.kind}"


def _edge(edge: Edge, uids: dict[int, str]) -> str:
    return f"{edge.input_index}:{uids.get(edge.source, '?')}:{edge.tag or ''}"
