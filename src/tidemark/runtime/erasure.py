"""Forget one key in a running job: in its slots, and by new checkpoints in those it would restore from.

The slots drop the key between two chunks of records. Then as many checkpoints are taken as are retained, so that the
usual retention deletes all that were taken before. If the job has restarted meanwhile it may have restored the key, so
everything is done again. What is left is told, not hidden.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any

from tidemark.errors import CheckpointError, ConfigError, IllegalStateError, SerializationError
from tidemark.futures import CompletableFuture
from tidemark.plan.vertex import Vertex
from tidemark.protocol.frames import EraseRequest
from tidemark.queryablestate.plain_values import parse_key
from tidemark.runtime.runner import JobRunner
from tidemark.state.key_tokens import key_serializer_for

__all__ = ["erase_key"]

_TRIES = 10
_SLOTS_S = 60.0
"""How long user code may keep a slot from its turn."""
_DELETION_S = 30.0
"""How long the deletion of older checkpoints is waited for."""
_POLL_S = 0.02


def erase_key(
    runner: JobRunner, key: str, uids: Collection[str], wait: Callable[[CompletableFuture[str]], str]
) -> dict[str, Any]:
    """Forget a key; from any thread but the job's.

    Args:
        runner: The job.
        key: The key as text, read as the operators' key types; see `parse_key`.
        uids: Operators to forget it in; empty: all whose keys have a type that it fits.
        wait: Waits for a future of the runner.

    Returns:
        Plain facts: `keys` (uid -> canonical bytes of the key), `erased` (uid -> state -> rows), `attempt`,
        `checkpoints` (those the job can restore from now, with their directories), `replaced` (those it could
        restore from before, which are deleted or about to be) and `remaining` (older ones that will stay, with the
        reason).

    Raises:
        ConfigError: The key fits no operator, or not one of `uids`.
        IllegalStateError: The job restarted again and again.
        CheckpointError: A checkpoint failed again and again.
    """
    keys = _encoded(runner.execution.plan.in_slots(), key, uids)
    erased: dict[str, dict[str, int]] = {}
    replaced: dict[int, dict[str, Any]] = {}
    problem: Exception = IllegalStateError("The job did not run.")
    for _try in range(_TRIES):
        attempt = runner.execution.attempt
        known = runner.execution.coordinator.completed.checkpoints()
        replaced |= {each.checkpoint_id: _snapshot(each) for each in known}
        try:
            for slot in runner.execution.engine.erase(EraseRequest(attempt, keys), _SLOTS_S):
                _add(erased, slot)
            first = _renew_checkpoints(runner, wait)
        except (IllegalStateError, CheckpointError, TimeoutError) as exc:
            if runner.status.is_terminal_state():
                raise
            problem = exc
            time.sleep(_POLL_S)
            continue
        if runner.execution.attempt == attempt:
            return {**_facts(runner, keys, erased, first), "replaced": list(replaced.values())}
        problem = IllegalStateError("The job restarted while the key was being erased.")
    raise problem


def _encoded(vertices: Collection[Vertex], key: str, uids: Collection[str]) -> dict[str, bytes]:
    keyed = {vertex.uid: vertex for vertex in vertices if vertex.keyed}
    unknown = sorted(set(uids) - set(keyed))
    if unknown:
        known = ", ".join(sorted(keyed)) or "none"
        raise ConfigError(
            f"The job has no keyed operator with the uid(s) {', '.join(unknown)}. It has: {known}."
        )
    found: dict[str, bytes] = {}
    problems = []
    for uid in uids or keyed:
        serializer = key_serializer_for(keyed[uid].key_type())
        try:
            found[uid] = serializer.key_bytes(parse_key(key, repr(serializer)))
        except (SerializationError, ConfigError, TypeError, ValueError) as exc:
            problems.append(f"operator '{uid}': {exc}")
    if problems and (uids or not found):
        raise ConfigError(f"The key {key!r} does not fit: {'; '.join(problems)}")
    if not found:
        raise ConfigError("The job has no keyed operator, so there is nothing to erase.")
    return found


def _add(erased: dict[str, dict[str, int]], slot: dict[str, dict[str, int]]) -> None:
    for uid, rows in slot.items():
        of_operator = erased.setdefault(uid, {})
        for state, count in rows.items():
            of_operator[state] = of_operator.get(state, 0) + count


def _renew_checkpoints(runner: JobRunner, wait: Callable[[CompletableFuture[str]], str]) -> int | None:
    """Take as many checkpoints as are retained; the id of the first, None if the job takes none."""
    settings = runner.execution.settings.checkpointing
    if not settings.enabled:
        return None
    return min(int(wait(runner.checkpoint())) for _ in range(max(settings.num_retained, 1)))


def _facts(
    runner: JobRunner, keys: dict[str, bytes], erased: dict[str, dict[str, int]], first: int | None
) -> dict[str, Any]:
    completed = runner.execution.coordinator.completed
    deadline = time.monotonic() + _DELETION_S

    def older() -> list[Any]:
        return [each for each in completed.checkpoints() if first is None or each.checkpoint_id < first]

    while older() and first is not None and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    remaining = [{**_snapshot(each), "why": "not deleted yet"} for each in older()]
    remaining += [{**_snapshot(each), "why": "in quarantine"} for each in completed.quarantined()]
    return {
        "job_id": runner.execution.job_id,
        "job_name": runner.execution.settings.job_name,
        "attempt": runner.execution.attempt,
        "keys": keys,
        "erased": {uid: erased.get(uid, {}) for uid in keys},
        "checkpoints": [
            _snapshot(each)
            for each in completed.checkpoints()
            if first is not None and each.checkpoint_id >= first
        ],
        "remaining": remaining,
    }


def _snapshot(completed: Any) -> dict[str, Any]:
    return {"id": completed.checkpoint_id, "directory": completed.directory}
