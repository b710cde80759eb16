"""What displays show of one subtask: records, time, watermark and states, as plain data."""

from __future__ import annotations

import time
from typing import Any

from tidemark.protocol.batch import MIN_WATERMARK
from tidemark.slot.gate import Gate
from tidemark.slot.slot_subtask import SlotSubtask
from tidemark.state.backend import KeyedStateBackend
from tidemark.state.descriptors import MapStateDescriptor, StateDescriptor
from tidemark.state.operator_state import OperatorStateStore
from tidemark.state.snapshot import Redistribution

__all__ = ["operator_figures"]

_KINDS = {
    Redistribution.SPLIT: "operator list",
    Redistribution.UNION: "union list",
    Redistribution.BROADCAST: "broadcast",
    Redistribution.RAW: "raw",
}


def operator_figures(task: SlotSubtask, gate: Gate | None) -> dict[str, Any]:
    """The figures of a subtask and its gate, if it has one, now; in the slot's thread, between two parts of a frame."""
    backend: KeyedStateBackend | None = getattr(task.operator, "backend", None)
    store: OperatorStateStore | None = getattr(task.operator, "operator_state", None)
    return {
        "subtask": task.info.index,
        "records_in": task.figures.records_in,
        "records_out": task.figures.records_out,
        "busy_ms": round(task.figures.busy_s * 1000),
        "lived_ms": round((time.perf_counter() - task.figures.since) * 1000),
        "held_back": None if gate is None else gate.held_back,
        "watermark": None if task.watermark == MIN_WATERMARK else task.watermark,
        "key_groups": task.info.key_groups,
        "states": [*_keyed_states(backend), *_operator_states(store)],
        "native": {} if backend is None else backend.native_metrics(),
    }


def _keyed_states(backend: KeyedStateBackend | None) -> list[dict[str, Any]]:
    return [] if backend is None else [_state(descriptor, backend) for descriptor in backend.registered()]


def _operator_states(store: OperatorStateStore | None) -> list[dict[str, Any]]:
    """Without those that operators keep for themselves."""
    told = [] if store is None else store.described()
    return [
        {
            "name": name,
            "kind": _KINDS[mode],
            "type": " -> ".join([str(kind) for kind in reversed(types)]) or "bytes",
            "ttl_ms": None,
            "queryable": None,
            "entries": entries,
        }
        for name, mode, types, entries in told
        if not name.startswith("_") or mode is Redistribution.RAW
    ]


def _state(descriptor: StateDescriptor, backend: KeyedStateBackend) -> dict[str, Any]:
    kind = str(descriptor.type_info)
    if isinstance(descriptor, MapStateDescriptor):
        kind = f"{descriptor.key_type_info} -> {kind}"
    return {
        "name": descriptor.name,
        "kind": descriptor.kind.value,
        "type": kind,
        "ttl_ms": None if descriptor.ttl_config is None else descriptor.ttl_config.ttl_ms,
        "queryable": descriptor.get_queryable_state_name() if descriptor.is_queryable() else None,
        "entries": backend.known_entries(descriptor.name),
    }
