"""A slot refuses what does not belong to its attempt, epoch or sequence, and answers questions in between."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import Any

import pytest

from tidemark import (
    Configuration,
    KeyedProcessFunction,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)
from tidemark.checkpoint.layout import savepoint_location
from tidemark.checkpoint.storage.memory import MemoryStorage
from tidemark.clock import ManualClock
from tidemark.errors import CheckpointError, IllegalStateError
from tidemark.plan.job_plan import build_plan
from tidemark.plan.vertex import dump_functions
from tidemark.protocol.batch import MIN_WATERMARK, Batch
from tidemark.protocol.codec import codec_for
from tidemark.protocol.deployment import Deployment
from tidemark.protocol.frames import EMPTY, BatchHeader, CutRequest
from tidemark.slot.host import SlotHost
from tidemark.state.serializers.registry import serializer_for


class Count(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        if value == "poison":
            raise ValueError("poisoned")
        self.count.update((self.count.value() or 0) + 1)
        yield ctx.get_current_key(), self.count.value()


@pytest.fixture
def host(tmp_path: Path) -> SlotHost:
    """A slot that runs one keyed count, as attempt 3."""
    environment = StreamExecutionEnvironment.get_execution_environment(Configuration())
    environment.set_parallelism(1)
    environment.from_collection(["a"]).key_by(lambda v: v, Types.STRING()).process(Count()).uid(
        "count"
    ).print()
    graph, settings, _ = environment._prepared("job")
    plan = build_plan(graph, settings, "0" * 32)
    slot = SlotHost(ManualClock(), MemoryStorage(), tmp_path / "scratch")
    slot.deploy(Deployment("0" * 32, 3, 0, dump_functions(plan.in_slots())))
    slot.vertex = plan.in_slots()[0].id  # type: ignore[attr-defined]
    return slot


def frame(host: Any, sequence: int = 0, attempt: int = 3, epoch: int = 0, values: Any = ("a",)) -> Any:
    flags, body = codec_for(None, serializer_for(Types.STRING())).encode(
        Batch(list(values), None, list(values))
    )
    header = BatchHeader(host.vertex, 0, 1, 0, sequence, attempt, epoch, MIN_WATERMARK, flags)
    return host.handle(list(header), body)


def results(answer: Any) -> list[Any]:
    (status, *_rest), body = answer
    assert status == "ok", pickle.loads(body)
    return pickle.loads(body)[0]


def refusal(answer: Any) -> str:
    (status, *_rest), body = answer
    assert status == "error"
    return pickle.loads(body).summary


def test_frames_in_sequence_are_processed(host):
    assert results(frame(host, 0)) == [("a", 1)]
    assert results(frame(host, 1, values=["a", "b"])) == [("a", 2), ("b", 1)]


def test_a_frame_larger_than_a_part_is_answered_once_and_in_order(host):
    assert results(frame(host, 0, values=["a", "b"] * 3000)) == [
        pair for count in range(1, 3001) for pair in (("a", count), ("b", count))
    ]


def test_a_repeated_frame_of_a_retried_task_is_refused_and_changes_nothing(host):
    frame(host, 0)

    assert "a Spark task was retried" in refusal(frame(host, 0))
    assert results(frame(host, 1)) == [("a", 2)]


def test_a_frame_of_another_attempt_is_refused(host):
    assert "Attempt 2" in refusal(frame(host, attempt=2))


def test_a_frame_of_an_older_epoch_is_refused(host):
    frame(host, epoch=5)

    assert "epoch 4" in refusal(frame(host, 1, epoch=4))


def test_a_new_epoch_starts_new_sequences(host):
    frame(host, 0, epoch=0)

    assert results(frame(host, 0, epoch=1)) == [("a", 2)]


def test_a_failed_slot_refuses_everything_until_it_is_deployed_again(host):
    answer = frame(host, 0, values=["poison"])

    assert refusal(answer) == "ValueError: poisoned"
    info = pickle.loads(answer[1])
    assert (info.uid, info.slot) == ("count", 0)
    assert isinstance(info.exception(), ValueError)
    later = frame(host, 1)
    assert refusal(later) == "ValueError: poisoned", "whoever comes later is told the cause"
    assert pickle.loads(later[1]).uid == "count"


def test_an_empty_frame_only_lets_time_pass(host):
    header = BatchHeader(host.vertex, 0, 1, 0, 0, 3, 0, MIN_WATERMARK, EMPTY)

    (status, timer, sections, _source), _body = host.handle(list(header), b"")

    assert (status, timer, sections) == ("ok", None, [])


def test_questions_are_answered_from_other_threads(host):
    frame(host, 0)
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.append(host.stats()["entries"])) for _ in range(8)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert answers == [1] * 8


def test_a_question_that_fails_fails_only_for_who_asked(host):
    def broken() -> None:
        raise KeyError("nothing there")

    with pytest.raises(KeyError):
        host.ask(broken)

    assert results(frame(host, 0)) == [("a", 1)]


def test_a_reset_slot_serves_nobody(host):
    host.reset()

    assert "Attempt 3 sent records to a slot of attempt None" in refusal(frame(host))


def test_a_snapshot_of_an_attempt_that_is_over_is_declined(host):
    request = CutRequest(1, 0, savepoint_location("/savepoint"))
    host.cut(request)
    host.reset()
    with pytest.raises(CheckpointError, match="not known to this slot any more"):
        host.write(request)
    host.cut(request)
    with pytest.raises(CheckpointError, match="not known to this slot any more"):
        host.write(request)


class Stuck(KeyedProcessFunction):
    """Holds the slot until its test lets go."""

    entered, release = threading.Event(), threading.Event()

    def process_element(self, value: Any, ctx: Any) -> Any:
        Stuck.entered.set()
        assert Stuck.release.wait(60)
        yield value


def test_questions_to_a_slot_that_is_stuck_time_out_and_fail_once_it_is_abandoned(tmp_path):
    environment = StreamExecutionEnvironment.get_execution_environment(Configuration())
    environment.set_parallelism(1)
    environment.from_collection(["a"]).key_by(lambda v: v, Types.STRING()).process(Stuck()).print()
    graph, settings, _ = environment._prepared("job")
    plan = build_plan(graph, settings, "0" * 32)
    slot: Any = SlotHost(ManualClock(), MemoryStorage(), tmp_path / "scratch")
    slot.deploy(Deployment("0" * 32, 3, 0, dump_functions(plan.in_slots())))
    slot.vertex = plan.in_slots()[0].id
    busy = threading.Thread(target=frame, args=(slot,))
    busy.start()
    assert Stuck.entered.wait(60)

    with pytest.raises(TimeoutError):
        slot.stats(0.01)
    slot.abandon()
    with pytest.raises(IllegalStateError):
        slot.ask(lambda: "never")
    Stuck.release.set()
    busy.join(60)
    assert "refused" in refusal(frame(slot, 1)), "records come too late"
