"""Parts of a job's view: the history of snapshots, failures, settings, states."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tidemark.api.executor import JobSettings
from tidemark.checkpoint.statistics import CheckpointRecord, StateSize, SubtaskRecord
from tidemark.config.options import all_options, find_option
from tidemark.errors import ExecutionError
from tidemark.plan.vertex import Vertex
from tidemark.redaction import shown_value, without_secrets
from tidemark.web.facts import (
    CheckpointFacts,
    CheckpointHistory,
    CheckpointSubtask,
    Failure,
    OperatorStates,
    Setting,
    StateFacts,
    vertex_id,
)

if TYPE_CHECKING:
    from tidemark.runtime.execution import JobExecution
    from tidemark.runtime.runner import AttemptFailure

__all__ = ["CheckpointMemory", "failure_of", "settings_of", "states_of"]


class CheckpointMemory:
    """The history of a job's snapshots as facts; only what changed is made anew. Thread-safe."""

    def __init__(self, execution: JobExecution) -> None:
        """Follow the statistics of a job."""
        self._execution = execution
        self._lock = threading.Lock()
        self._made: dict[int, tuple[CheckpointRecord, CheckpointFacts]] = {}
        self._history: CheckpointHistory | None = None
        self._restored = (0, 0)
        """How many restores there were when somebody looked, and when the last one was seen."""

    def history(self) -> CheckpointHistory:
        """All records that are kept, newest first, without their subtasks."""
        statistics = self._execution.coordinator.statistics
        with self._lock:
            restored = statistics.restored
            if self._restored[0] != restored:
                self._restored = (restored, round(time.time() * 1000))
            known = self._history
            if known is not None and known.changes == statistics.changes and known.restored == restored:
                return known
            changes, records = statistics.changes, statistics.records()
            self._made = {record.checkpoint_id: self._fact(record) for record in records}
            self._history = CheckpointHistory(
                triggered=statistics.triggered,
                completed=statistics.completed,
                failed=statistics.failed,
                restored=restored,
                in_progress=max(0, statistics.triggered - statistics.completed - statistics.failed),
                changes=changes,
                records=tuple([made[1] for made in self._made.values()]),
                restored_from=self._execution.progress.restored_from,
                restored_at=self._restored[1] or None,
            )
            return self._history

    def _fact(self, record: CheckpointRecord) -> tuple[CheckpointRecord, CheckpointFacts]:
        known = self._made.get(record.checkpoint_id)
        return known if known is not None and known[0] is record else (record, _checkpoint(record, {}))

    def details(self, checkpoint_id: int) -> CheckpointFacts | None:
        """One snapshot with its subtasks."""
        statistics = self._execution.coordinator.statistics
        record = statistics.record(checkpoint_id)
        return None if record is None else _checkpoint(record, statistics.subtasks(checkpoint_id))

    def newest(self) -> tuple[dict[str, int], dict[tuple[str, int], tuple[int, int]]]:
        """Of the newest completed one: vertex id -> bytes of its state; uid and subtask -> how its barriers came."""
        statistics = self._execution.coordinator.statistics
        last = statistics.last_completed
        if last is None:
            return {}, {}
        told = statistics.subtasks(last.checkpoint_id)
        sizes = {vertex_id(uid): sum(one.state_size for one in subtasks) for uid, subtasks in told.items()}
        barriers = {
            (uid, one.index): (one.barrier.start_delay_ms, one.barrier.alignment_ms)
            for uid, subtasks in told.items()
            for one in subtasks
            if one.barrier is not None
        }
        return sizes, barriers


def _checkpoint(
    record: CheckpointRecord, operators: Mapping[str, Sequence[SubtaskRecord]]
) -> CheckpointFacts:
    return CheckpointFacts(
        checkpoint_id=record.checkpoint_id,
        status=record.status.value,
        is_savepoint=record.is_savepoint,
        triggered_at=record.triggered_at,
        slots=record.slots,
        acknowledged=record.acknowledged,
        ended_at=record.ended_at,
        state_size=record.state_size,
        written_size=record.written_size,
        sync_ms=record.sync_ms,
        async_ms=record.async_ms,
        alignment_ms=record.alignment_ms,
        directory=record.directory,
        reason=None if record.reason is None else record.reason.value,
        message=record.message,
        discarded=record.discarded,
        quarantined=record.quarantined,
        operators={
            vertex_id(uid): tuple([_subtask(subtask) for subtask in subtasks])
            for uid, subtasks in operators.items()
        },
    )


def _subtask(done: SubtaskRecord) -> CheckpointSubtask:
    barrier = done.barrier
    return CheckpointSubtask(
        done.index,
        done.acknowledged_at,
        done.state_size,
        done.written_size,
        done.sync_ms,
        done.async_ms,
        None if barrier is None else barrier.start_delay_ms,
        0 if barrier is None else barrier.alignment_ms,
    )


def failure_of(failure: AttemptFailure) -> Failure:
    """Why an attempt ended, with the traceback of the user's code where there is one."""
    error = failure.error
    cause = error.__cause__ or error
    text = str(error)
    if isinstance(error, ExecutionError) and "\nTraceback" in text:
        trace = text
    else:
        trace = "".join(traceback.format_exception(error))
    return Failure(
        failure.at,
        failure.attempt,
        type(cause).__name__,
        without_secrets(text.partition("\n")[0]),
        without_secrets(trace),
        getattr(error, "slot", None),
        getattr(error, "operator_uid", None),
    )


def settings_of(settings: JobSettings) -> tuple[Setting, ...]:
    """What a job is configured with, by layer; secrets are not shown."""
    configuration, layers = settings.configuration, settings.layers
    found = []
    for option in all_options():
        layer = next((layers[key] for key in option.spellings if key in layers), "default")
        value = configuration.get_string(option.key, "")
        if value or layer != "default":
            idle = option.ineffective if layer != "default" else None
            shown = shown_value(option.key, value)
            found.append(Setting(option.key, shown, layer, idle is None, idle))
    for key, layer in layers.items():
        if find_option(key) is None:
            value = shown_value(key, configuration.get_string(key, ""))
            reason = None if key.startswith("spark.") else "no option of tidemark has this name"
            found.append(Setting(key, value, layer, reason is None, reason))
    return tuple(sorted(found, key=lambda setting: setting.key))


def states_of(
    vertices: Sequence[Vertex],
    figures: Sequence[Mapping[str, Any]],
    sizes: Mapping[str, Mapping[str, StateSize]],
) -> list[OperatorStates]:
    """The states of the operators, summed over the slots that said something."""
    found = []
    for vertex in vertices:
        told = [slot["operators"][vertex.uid] for slot in figures if vertex.uid in slot["operators"]]
        names = {state["name"]: state for operator in told for state in operator["states"]}
        known = sizes.get(vertex.uid, {})
        states = [_state(state, name, told, known.get(name)) for name, state in names.items()]
        if states:
            found.append(OperatorStates(vertex.uid, vertex.name, tuple(states)))
    return found


def _state(
    state: Mapping[str, Any], name: str, told: Sequence[Mapping[str, Any]], size: StateSize | None
) -> StateFacts:
    counts = [one["entries"] for operator in told for one in operator["states"] if one["name"] == name]
    known = [count for count in counts if count is not None]
    # Of broadcast state every subtask has all of it.
    total = max if state["kind"] == "broadcast" else sum
    entries = total(known) if known and len(known) == len(counts) else None
    if entries is None and size is not None:
        entries = size.rows
    return StateFacts(
        name,
        state["kind"],
        state["type"],
        state["ttl_ms"],
        state["queryable"],
        entries,
        None if size is None else size.size,
    )
