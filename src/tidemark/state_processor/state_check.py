"""One operator against what a snapshot says of its states: which would be kept, migrated, refused.

One subtask is built over a backend that knows what every state was but holds no rows. `initialize_state` and
`open` run as on a restore, and what they register is judged. Sources and sinks are not opened.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from tidemark.api.graph import NodeKind
from tidemark.api.state_backends import CustomStateBackend
from tidemark.backends.heap.backend import HeapKeyedStateBackend
from tidemark.backends.registration import resolve_restored, spec_of
from tidemark.checkpoint.metadata.model import OperatorState
from tidemark.checkpoint.rescale import resolve_max_parallelism
from tidemark.clock import SystemClock
from tidemark.errors import StateMigrationException, TidemarkError
from tidemark.metrics.registry import MetricRegistry
from tidemark.operators.base import RestoredState
from tidemark.operators.function_operator import FunctionOperator
from tidemark.plan.vertex import Vertex, dump_functions, load_functions
from tidemark.protocol.deployment import BackendChoice
from tidemark.state.backend import BackendParameters
from tidemark.state.descriptors import StateDescriptor, StateKind
from tidemark.state.namespace import NamespaceKind
from tidemark.state.primitives import State
from tidemark.state.serializers.compatibility import load_serializer_snapshot
from tidemark.state.serializers.resolution import resolve_compatibility
from tidemark.state.snapshot import OperatorStatePart, StateMeta
from tidemark.subtask.subtask import Subtask, operator_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["StateVerdict", "Verdict", "check_operator", "stored_states"]

_UNREGISTERED = "not registered in open(); kept as it is"


class Verdict(Enum):
    """What happens to a state."""

    UNCHANGED = "unchanged"
    MIGRATED = "migrated"
    DROPPED = "dropped"
    NEW = "new"
    INCOMPATIBLE = "incompatible"


_Registration = tuple[str, str, Verdict, str]
"""Name and kind of a state that was registered, and what becomes of it, and why."""


@dataclass(frozen=True, slots=True)
class StateVerdict:
    """One state of one operator."""

    operator: str
    """Its uid."""
    state: str
    kind: str
    verdict: Verdict
    reason: str = ""


def stored_states(operator: OperatorState) -> list[tuple[str, str]]:
    """Name and kind of every state an operator has in a snapshot."""
    keyed = [(meta.name, meta.kind.value) for meta in _metas(operator).values()]
    return keyed + [(part.name, part.mode.value) for part in _parts(operator).values()]


def check_operator(vertex: Vertex, stored: OperatorState | None, explicit: int | None) -> list[StateVerdict]:
    """Every state the operator has in the snapshot or registers now.

    Args:
        vertex: The operator of the program.
        stored: Its state in the snapshot, if any.
        explicit: Number of key groups the program asks for, if it does.
    """
    try:
        groups = vertex.max_parallelism
        if vertex.keyed:
            groups = resolve_max_parallelism(stored, vertex.parallelism, explicit, groups)
    except TidemarkError as exc:
        return [StateVerdict(vertex.uid, "-", "operator", Verdict.INCOMPATIBLE, str(exc))]
    return _OperatorCheck(replace(vertex, max_parallelism=groups), _metas(stored), _parts(stored)).run()


def _metas(operator: OperatorState | None) -> dict[tuple[StateKind, str], StateMeta]:
    metas: dict[tuple[StateKind, str], StateMeta] = {}
    for subtask in operator.subtasks if operator is not None else ():
        natives = subtask.native.metas if subtask.native is not None else ()
        for meta in (*[table.meta for table in subtask.tables], *natives):
            metas.setdefault((meta.kind, meta.name), meta)
    return metas


def _parts(operator: OperatorState | None) -> dict[str, OperatorStatePart]:
    parts: dict[str, OperatorStatePart] = {}
    for subtask in operator.subtasks if operator is not None else ():
        for part in subtask.operator:
            if part.name not in parts or (part.elements and not parts[part.name].elements):
                parts[part.name] = part
    return parts


class _OperatorCheck:
    """One subtask of one operator, built as often as it takes to see every incompatible operator state."""

    def __init__(
        self,
        vertex: Vertex,
        metas: dict[tuple[StateKind, str], StateMeta],
        parts: dict[str, OperatorStatePart],
    ) -> None:
        self._vertex = vertex
        self._metas = metas
        self._parts = parts
        self._failed: dict[str, StateVerdict] = {}

    def run(self) -> list[StateVerdict]:
        """The verdicts about this operator."""
        code = dump_functions([self._vertex])
        while True:
            (vertex,) = load_functions(code)
            seen: list[_Registration] = []
            subtask = Subtask(
                operator_of(vertex),
                vertex.subtask(0),
                clock=SystemClock(),
                metrics=MetricRegistry(),
                backend=BackendChoice.of(CustomStateBackend(partial(_RecordingBackend, seen=seen))),
            )
            try:
                subtask.setup()
                subtask.restore(self._restored())
                if vertex.kind is NodeKind.OPERATOR:
                    subtask.open()
                return self._verdicts(seen, subtask)
            except StateMigrationException as exc:
                if exc.state_name is None or exc.state_name in self._failed:
                    return [*self._verdicts(seen), self._failure(exc)]
                self._leave_out(exc)
            except Exception as exc:
                return [*self._verdicts(seen), self._failure(exc)]
            finally:
                _close(subtask)

    def _restored(self) -> RestoredState:
        return RestoredState(
            tables=[(meta, ()) for (_kind, name), meta in self._metas.items() if name not in self._failed],
            operator=[part for name, part in self._parts.items() if name not in self._failed],
        )

    def _leave_out(self, exc: StateMigrationException) -> None:
        """Note the state and go on without it, to hear about the others."""
        name = str(exc.state_name)
        part = self._parts.get(name)
        kinds = [kind.value for kind, known in self._metas if known == name]
        kind = part.mode.value if part is not None else next(iter(kinds), "state")
        self._failed[name] = self._verdict(name, kind, Verdict.INCOMPATIBLE, str(exc))

    def _verdicts(self, seen: list[_Registration], opened: Subtask | None = None) -> list[StateVerdict]:
        # Keyed and operator states have names of their own; one of each may share a name.
        found = {(name in self._parts, name): failed for name, failed in self._failed.items()}
        for name, kind, verdict, reason in seen:
            found.setdefault((False, name), self._verdict(name, kind, verdict, reason))
        if opened is not None and isinstance(opened.operator, FunctionOperator):
            for state in self._operator_states(opened.operator):
                found.setdefault((True, state.state), state)
        for stored_kind, name in self._metas:
            reason = "" if stored_kind is StateKind.TIMER else _UNREGISTERED
            unchanged = self._verdict(name, stored_kind.value, Verdict.UNCHANGED, reason)
            found.setdefault((False, name), unchanged)
        for name, part in self._parts.items():
            unchanged = self._verdict(name, part.mode.value, Verdict.UNCHANGED, _UNREGISTERED)
            found.setdefault((True, name), unchanged)
        return list(found.values())

    def _operator_states(self, operator: FunctionOperator) -> Iterable[StateVerdict]:
        store = operator.operator_state
        claimed = store.get_registered_state_names() | store.get_registered_broadcast_state_names()
        for part in store.cut():
            if part.name not in claimed:
                continue
            stored = self._parts.get(part.name)
            if stored is None:
                yield self._verdict(part.name, part.mode.value, Verdict.NEW)
            elif _read_as_is(stored.serializer, part.serializer):
                yield self._verdict(part.name, part.mode.value, Verdict.UNCHANGED)
            else:
                reason = _change(stored.serializer, part.serializer)
                yield self._verdict(part.name, part.mode.value, Verdict.MIGRATED, reason)

    def _verdict(self, name: str, kind: str, verdict: Verdict, reason: str = "") -> StateVerdict:
        return StateVerdict(self._vertex.uid, name, kind, verdict, reason)

    def _failure(self, exc: Exception) -> StateVerdict:
        reason = f"{self._vertex.name} could not be opened: {type(exc).__name__}: {exc}"
        return self._verdict("-", "operator", Verdict.INCOMPATIBLE, reason)


class _RecordingBackend(HeapKeyedStateBackend):
    """Judges every registration by what the snapshot says of the state; holds no rows."""

    def __init__(self, parameters: BackendParameters, seen: list[_Registration]) -> None:
        super().__init__(parameters)
        self._stored: dict[str, StateMeta] = {}
        self._judged: set[str] = set()
        self._seen = seen

    def restore_table(self, meta: StateMeta, batches: Iterable[pa.RecordBatch]) -> None:
        """Remember what the state was; rows are not read."""
        self._stored[meta.name] = meta

    def state(self, descriptor: StateDescriptor, namespace: NamespaceKind = NamespaceKind.VOID) -> State:
        """Judge the registration once, then give an empty state."""
        if descriptor.name not in self._judged:
            self._judged.add(descriptor.name)
            self._seen.append((descriptor.name, descriptor.kind.value, *self._judge(descriptor, namespace)))
        return super().state(descriptor, namespace)

    def _judge(self, descriptor: StateDescriptor, namespace: NamespaceKind) -> tuple[Verdict, str]:
        stored = self._stored.get(descriptor.name)
        if stored is None:
            return Verdict.NEW, ""
        try:
            resolution = resolve_restored(
                stored, spec_of(descriptor, self.parameters.key_serializer, namespace)
            )
        except (StateMigrationException, ValueError) as exc:
            # ValueError: a composite serializer nests another number of serializers than the stored one.
            return Verdict.INCOMPATIBLE, str(exc)
        if resolution.convert is not None:
            return Verdict.MIGRATED, f"by the declared migration from {_type_of(stored.value)}"
        if resolution.rewrite:
            return Verdict.MIGRATED, f"{_type_of(stored.value)} becomes {resolution.spec.value!r}"
        return Verdict.UNCHANGED, ""


def _close(subtask: Subtask) -> None:
    try:
        subtask.close()
    except Exception:
        # The user's close() may miss what a failed open() never made; that is no news about state.
        return


def _type_of(snapshot: bytes) -> str:
    try:
        return repr(load_serializer_snapshot(snapshot).restore_serializer())
    except Exception:
        return "a type that cannot be rebuilt here"


def _read_as_is(stored: bytes, current: bytes) -> bool:
    """Whether what is written from now on has the form of what is stored. Map keys never change theirs."""
    if stored == current:
        return True
    try:
        serializer = load_serializer_snapshot(current).restore_serializer()
        return resolve_compatibility(stored, serializer).is_compatible_as_is()
    except (StateMigrationException, ValueError):
        return False


def _change(stored: bytes, current: bytes) -> str:
    old, new = _type_of(stored), _type_of(current)
    return f"{old} becomes {new}" if old != new else "written in a newer form"
