"""How long accesses to keyed state take: one in so many is timed, by the names of Flink's latency metrics.

A handle that is tracked gets a class of its own, derived from the one it had, whose methods time themselves now and
then. One that is not tracked is left as it is: nothing stands between a function and its state.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tidemark.metrics import Distribution, MetricGroup
from tidemark.state.descriptors import StateKind
from tidemark.state.primitives import State

__all__ = ["track_latency"]

_VALUE = {"value": "valueStateGetLatency", "update": "valueStateUpdateLatency"}
_LIST = {
    "get": "listStateGetLatency",
    "add": "listStateAddLatency",
    "add_all": "listStateAddAllLatency",
    "update": "listStateUpdateLatency",
}
_MAP = {
    "get": "mapStateGetLatency",
    "put": "mapStatePutLatency",
    "put_all": "mapStatePutAllLatency",
    "remove": "mapStateRemoveLatency",
    "contains": "mapStateContainsLatency",
    "is_empty": "mapStateIsEmptyLatency",
    "items": "mapStateEntriesInitLatency",
    "keys": "mapStateKeysInitLatency",
    "values": "mapStateValuesInitLatency",
}
_REDUCING = {"get": "reducingStateGetLatency", "add": "reducingStateAddLatency"}
_AGGREGATING = {"get": "aggregatingStateGetLatency", "add": "aggregatingStateAddLatency"}
_FOLDING = {"get": "foldingStateGetLatency", "add": "foldingStateAddLatency"}
_METHODS = {
    StateKind.VALUE: _VALUE,
    StateKind.LIST: _LIST,
    StateKind.MAP: _MAP,
    StateKind.REDUCING: _REDUCING,
    StateKind.AGGREGATING: _AGGREGATING,
    StateKind.FOLDING: _FOLDING,
}

_BY_COLUMN = {
    "read": "stateReadLatency",
    "read_all": "stateReadAllLatency",
    "write": "stateWriteLatency",
    "append": "stateAppendLatency",
    "discard": "stateDiscardLatency",
}
"""Methods of handles of batch functions: an access is one call for many keys."""


def track_latency(handle: State, kind: StateKind, group: MetricGroup, every: int) -> None:
    """Time every so many accesses of a handle, in nanoseconds, into distributions of `group`."""
    known: Any = type(handle)
    methods = _BY_COLUMN if getattr(known, "by_column", False) else _METHODS.get(kind, {})
    timed = {
        method: _timed(getattr(known, method), group.distribution(metric), every)
        for method, metric in {**methods, "clear": "stateClearLatency"}.items()
        if hasattr(known, method)
    }
    handle.__class__ = type(f"Tracked{known.__name__}", (known,), {"__slots__": (), **timed})


def _timed(function: Callable[..., Any], taken: Distribution, every: int) -> Callable[..., Any]:
    left = every

    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left:
            return function(self, *arguments, **named)
        left = every
        started = time.perf_counter_ns()
        try:
            return function(self, *arguments, **named)
        finally:
            taken.update(time.perf_counter_ns() - started)

    return call
