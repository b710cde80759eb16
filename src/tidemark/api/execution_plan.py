"""The graph as JSON, in the shape of Flink's plan visualiser."""

from __future__ import annotations

import json
from typing import Any

from tidemark.api.executor import JobSettings, PlannedMode, resolve_parallelism
from tidemark.api.graph import Graph, Node, NodeKind
from tidemark.api.specs import SinkSpec

__all__ = ["execution_plan"]

_PREFIX = {NodeKind.SOURCE: "Source: ", NodeKind.OPERATOR: "", NodeKind.SINK: "Sink: "}


def execution_plan(graph: Graph, settings: JobSettings, mode: PlannedMode | None = None) -> str:
    """Render a graph whose edges are settled, and how it would run, if that is known."""
    plan: dict[str, Any] = {"nodes": [_node(node, settings) for node in graph.nodes.values()]}
    if mode is not None:
        plan["execution"] = {"mode": mode.mode, "reason": mode.reason}
    return json.dumps(plan, indent=2)


def _node(node: Node, settings: JobSettings) -> dict[str, Any]:
    title = _PREFIX[node.kind] + node.name
    rendered: dict[str, Any] = {
        "id": node.id,
        "type": title,
        "pact": node.kind.value,
        "contents": node.description or title,
        "parallelism": resolve_parallelism(node, settings),
    }
    if isinstance(node.spec, SinkSpec):
        rendered["guarantee"] = node.spec.guarantee
    if node.inputs:
        rendered["predecessors"] = [
            {
                "id": edge.source,
                "ship_strategy": edge.ship.value,
                "side": "second" if edge.input_index == 1 or at else "first",
            }
            for at, edge in enumerate(node.inputs)
        ]
    return rendered
