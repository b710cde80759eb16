"""What was cut is written, given up or refused as a whole, and always released."""

from __future__ import annotations

from typing import Any

import pytest

from tidemark.checkpoint.layout import savepoint_location
from tidemark.clock import ManualClock
from tidemark.errors import CheckpointError, FailureReason, StorageError
from tidemark.metrics.registry import MetricRegistry
from tidemark.plan.vertex import SubtaskInfo
from tidemark.protocol.frames import CutRequest
from tidemark.subtask.snapshots import PendingCuts, write_cuts
from tidemark.subtask.subtask import Subtask

REQUEST = CutRequest(7, 0, savepoint_location("/savepoint"))


class FakeCut:
    def __init__(self) -> None:
        self.released = 0

    def release(self) -> None:
        self.released += 1


class FakeOperator:
    """Cuts, or fails to."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.made = FakeCut()

    def cut(self, checkpoint_id: int, timestamp: int, *, incremental: bool) -> Any:
        if self.failure is not None:
            raise self.failure
        return self.made


class FakeWriter:
    """Releases what it is given, as the real one does; fails for one operator."""

    def __init__(self, failing: str = "") -> None:
        self.failing = failing

    def write_subtask(self, target: Any, cut: Any, *, sync_ms: int) -> Any:
        cut.release()
        if target.uid == self.failing:
            raise StorageError("full")
        return f"state of {target.uid} in slot {target.index}"


def subtask(name: str, failure: Exception | None = None) -> Any:
    operator: Any = FakeOperator(failure)
    return Subtask(operator, SubtaskInfo(name, name, 3, 4), clock=ManualClock(), metrics=MetricRegistry())


def test_cuts_are_written_operator_by_operator() -> None:
    pending, operators = PendingCuts(), [subtask("a"), subtask("b")]
    pending.make(REQUEST, operators)
    writer: Any = FakeWriter()

    states = write_cuts(pending.take(7), REQUEST, writer)

    assert states == {"a": "state of a in slot 3", "b": "state of b in slot 3"}
    assert [each.operator.made.released for each in operators] == [1, 1]


def test_what_follows_a_failed_write_is_released() -> None:
    pending, operators = PendingCuts(), [subtask("a"), subtask("b"), subtask("c")]
    pending.make(REQUEST, operators)
    writer: Any = FakeWriter(failing="b")

    with pytest.raises(StorageError):
        write_cuts(pending.take(7), REQUEST, writer)

    assert [each.operator.made.released for each in operators] == [1, 1, 1]


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (ValueError("no"), FailureReason.DECLINED),
        (CheckpointError("no", reason=FailureReason.SIZE_LIMIT), FailureReason.SIZE_LIMIT),
    ],
)
def test_an_operator_that_fails_declines_for_all(failure: Exception, reason: FailureReason) -> None:
    pending, first = PendingCuts(), subtask("a")

    with pytest.raises(CheckpointError, match="no") as caught:
        pending.make(REQUEST, [first, subtask("b", failure)])

    assert caught.value.reason is reason
    assert first.operator.made.released == 1
    with pytest.raises(CheckpointError, match="not known"):
        pending.take(7)


def test_cuts_that_are_given_up_are_released_once() -> None:
    pending, operator = PendingCuts(), subtask("a")
    pending.make(REQUEST, [operator])

    pending.drop(7)
    pending.drop(7)
    pending.clear()

    assert operator.operator.made.released == 1


def test_clearing_gives_all_up() -> None:
    pending, operator = PendingCuts(), subtask("a")
    pending.make(REQUEST, [operator])

    pending.clear()

    assert operator.operator.made.released == 1
    with pytest.raises(CheckpointError, match="not known"):
        pending.take(7)
