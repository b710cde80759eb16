"""Frames of channels in a slot: held back, released, refused; barriers cut, aborts and resets let go."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import pytest

from tidemark import (
    CheckpointedFunction,
    Configuration,
    KeyedProcessFunction,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)
from tidemark.checkpoint.layout import savepoint_location
from tidemark.checkpoint.storage.memory import MemoryStorage
from tidemark.clock import ManualClock
from tidemark.plan.job_plan import build_plan
from tidemark.plan.vertex import dump_functions
from tidemark.protocol.batch import MIN_WATERMARK, Batch
from tidemark.protocol.channels import ChannelAnswer, ChannelHeader, FrameKind
from tidemark.protocol.codec import codec_for
from tidemark.protocol.deployment import Deployment
from tidemark.protocol.frames import EMPTY, CutRequest
from tidemark.slot.host import SlotHost
from tidemark.state.serializers.registry import serializer_for

ATTEMPT = 3
DEADLINE = 60


class Count(KeyedProcessFunction, CheckpointedFunction):
    """Counts per key; on "timer" sets a processing-time timer that is due at once."""

    def initialize_state(self, context: Any) -> None:
        self.declines = False

    def snapshot_state(self, context: Any) -> None:
        if self.declines:
            raise ValueError("not now")

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        if value == "poison":
            raise ValueError("poisoned")
        self.declines = value == "decline"
        if value == "timer":
            ctx.timer_service().register_processing_time_timer(100)
        self.count.update((self.count.value() or 0) + 1)
        yield ctx.get_current_key(), self.count.value()

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield "fired", timestamp


class Channels:
    """A host with two operators and two channels, and the tasks' side of the channels."""

    def __init__(self, tmp_path: Any, *, aligned: bool = True) -> None:
        environment = StreamExecutionEnvironment.get_execution_environment(Configuration())
        environment.set_parallelism(1)
        first = environment.from_collection(["a"]).key_by(lambda v: v, Types.STRING()).process(Count())
        first.key_by(lambda pair: pair[0], Types.STRING()).process(Count()).print()
        graph, settings, _ = environment._prepared("job")
        plan = build_plan(graph, settings, "0" * 32)
        self.first, self.second = (vertex.id for vertex in plan.in_slots())
        self.functions = dump_functions(plan.in_slots())
        self.clock = ManualClock()
        self.host = SlotHost(self.clock, MemoryStorage(), tmp_path / "scratch")
        self.aligned = aligned
        self.deploy(ATTEMPT)
        self.cuts: list[int] = []
        self.declined: list[str] = []
        self.host.on_cut = lambda request: self.cuts.append(request.checkpoint_id)
        self.host.on_declined = lambda _request, why: self.declined.append(str(why))

    def deploy(self, attempt: int) -> None:
        self.host.deploy(Deployment("0" * 32, attempt, 0, self.functions, channels=2, aligned=self.aligned))
        self.attempt = attempt
        self.sequence: dict[tuple[int, int], int] = {}

    def header(
        self, kind: FrameKind, task: int, vertex: int, flags: int = EMPTY, sequence: int | None = None
    ) -> ChannelHeader:
        known = self.sequence.get((task, vertex), 0)
        sequence = known if sequence is None else sequence
        self.sequence[task, vertex] = max(known, sequence + 1)
        return ChannelHeader(kind, vertex, 0, task, sequence, self.attempt, MIN_WATERMARK, False, flags)

    def frame(self, task: int, *values: str, vertex: int | None = None, sequence: int | None = None) -> Any:
        flags, body = codec_for(None, serializer_for(Types.STRING())).encode(
            Batch(list(values), None, list(values))
        )
        where = self.first if vertex is None else vertex
        return self.header(FrameKind.RECORDS, task, where, flags, sequence), body

    def send(self, task: int, *values: str, sequence: int | None = None) -> Any:
        """Offer records to the first operator: what they give, or None while they are held back."""
        return self.offer(*self.frame(task, *values, sequence=sequence))

    def offer(self, header: Any, body: Any) -> Any:
        answer = self.host.offer(list(header), body)
        return None if answer is None else results(answer)

    def touch(self, task: int) -> Any:
        return self.offer(self.header(FrameKind.TOUCH, task, self.first), b"")

    def barrier(self, task: int, checkpoint: int, vertex: int | None = None) -> ChannelAnswer:
        request = CutRequest(checkpoint, 0, savepoint_location(f"/sp{checkpoint}"), incremental=False)
        for where in [self.first, self.second] if vertex is None else [vertex]:
            answer = self.host.offer(list(self.header(FrameKind.BARRIER, task, where)), pickle.dumps(request))
            assert answer is not None, "a barrier is answered at once"
            results(answer)
        return ChannelAnswer(*answer[0])

    def background(self, header: Any, body: Any) -> tuple[threading.Thread, list[Any]]:
        """What a connection's thread does with a frame."""
        answers: list[Any] = []
        thread = threading.Thread(
            target=lambda: answers.append(self.host.handle_channel(list(header), body)), daemon=True
        )
        thread.start()
        return thread, answers


def results(answer: Any) -> list[Any]:
    header, body = answer
    if header[0] == "error":
        raise AssertionError(pickle.loads(body).summary)
    return pickle.loads(body)[0] if ChannelAnswer(*header).sections else []


@pytest.fixture
def slot(tmp_path):
    return Channels(tmp_path)


def test_frames_behind_a_barrier_wait_and_are_not_in_the_cut(slot):
    slot.send(0, "a")
    slot.barrier(0, 1)
    waiting = slot.frame(0, "a")
    assert slot.offer(*waiting) is None
    assert slot.send(1, "a") == [("a", 2)], "the other channel is not held back"
    assert slot.cuts == []

    slot.barrier(1, 1)

    assert slot.cuts == [1]
    assert slot.offer(*waiting) == [("a", 3)], "behind the cut, and the same frame may be offered again"
    written = slot.host.write(CutRequest(1, 0, savepoint_location("/sp1"), incremental=False))
    assert len(written) == 2


def test_at_least_once_holds_nothing_back(tmp_path):
    slot = Channels(tmp_path, aligned=False)
    slot.barrier(0, 1)

    assert slot.send(0, "a") == [("a", 1)]
    slot.barrier(1, 1)
    assert slot.cuts == [1]


def test_every_operator_is_cut_on_its_own_and_the_last_one_completes_the_slot(slot):
    for vertex in (slot.first, slot.second):
        slot.barrier(0, 1, vertex)
    slot.barrier(1, 1, slot.second)
    assert slot.cuts == []
    assert slot.send(0, "a") is None, "the first operator waits for task 1"

    slot.barrier(1, 1, slot.first)
    assert slot.cuts == [1]


def test_a_barrier_is_as_late_as_the_first_channel_that_brings_it(slot):
    slot.clock.advance(5)
    slot.barrier(0, 1)
    slot.clock.advance(100)
    slot.barrier(1, 1)

    times = slot.host.barrier_times(1)

    assert [each.start_delay_ms for each in times.values()] == [5, 5]
    assert slot.host.barrier_times(1) == {}, "they are told once"


def test_an_abort_lets_held_frames_go_on_and_late_barriers_mean_nothing(slot):
    slot.barrier(0, 1)
    waiting = slot.frame(0, "a")
    assert slot.offer(*waiting) is None

    slot.host.notify_aborted(1)

    assert slot.offer(*waiting) == [("a", 1)]
    slot.barrier(1, 1)
    assert slot.cuts == []
    slot.barrier(0, 2)
    slot.barrier(1, 2)
    assert slot.cuts == [2]


def test_an_abort_amid_the_cuts_of_a_slot_drops_what_was_cut(slot):
    for task in (0, 1):
        slot.barrier(task, 1, slot.first)
    slot.host.notify_aborted(1)
    for task in (0, 1):
        slot.barrier(task, 1, slot.second)
        slot.barrier(task, 2)

    assert slot.cuts == [2]


def test_a_repeated_frame_of_a_retried_task_is_refused_and_changes_nothing(slot):
    slot.send(0, "a")
    for stale in (0, 5):
        with pytest.raises(AssertionError, match="a Spark task was retried"):
            slot.offer(*slot.frame(0, "a", sequence=stale))
    slot.sequence[0, slot.first] = 1
    assert slot.send(0, "a") == [("a", 2)]


def test_a_retried_task_is_refused_though_its_predecessors_channel_is_held(slot):
    slot.barrier(0, 1)
    again = slot.frame(0, "a", sequence=0)
    assert slot.offer(*again) is None
    slot.host.notify_aborted(1)
    with pytest.raises(AssertionError, match="a Spark task was retried"):
        slot.offer(*again)


def test_a_barrier_out_of_order_is_refused(slot):
    slot.barrier(0, 2, slot.first)
    with pytest.raises(AssertionError, match="Barrier 1 of task 0 came behind barrier 2"):
        slot.barrier(0, 1, slot.first)


def test_frames_and_barriers_of_another_attempt_are_refused(slot):
    slot.attempt = ATTEMPT - 1
    with pytest.raises(AssertionError, match="Attempt 2"):
        slot.send(0, "a")
    with pytest.raises(AssertionError, match="Attempt 2"):
        slot.barrier(0, 1)


def test_a_failure_is_told_to_every_channel_also_to_those_that_are_held(slot):
    slot.barrier(0, 1)
    waiting = slot.frame(0, "a")
    assert slot.offer(*waiting) is None
    with pytest.raises(AssertionError, match="poisoned"):
        slot.send(1, "poison")

    with pytest.raises(AssertionError, match="poisoned"):
        slot.offer(*waiting)
    with pytest.raises(AssertionError, match="poisoned"):
        slot.touch(1)


def test_an_operator_that_cannot_be_cut_declines_and_works_on(slot):
    slot.send(0, "decline")
    slot.barrier(0, 1)
    slot.barrier(1, 1)

    assert slot.cuts == []
    assert "not now" in slot.declined[0]
    assert slot.send(0, "a") == [("a", 1)]


def test_processing_time_timers_do_not_fire_while_channels_are_aligned(slot):
    slot.send(0, "timer")
    slot.clock.advance(1000)
    slot.barrier(0, 1)
    assert slot.touch(1) == []

    slot.barrier(1, 1)
    assert slot.touch(1) == [("fired", 100)]


def test_a_barrier_tells_when_the_next_timer_is_due(slot):
    slot.send(0, "timer")
    assert slot.barrier(0, 1, slot.first).timer == 100


def test_a_connection_whose_frame_is_held_waits_for_the_last_barrier(slot):
    slot.barrier(0, 1)
    thread, answers = slot.background(*slot.frame(0, "a"))
    assert slot.send(1, "a") == [("a", 1)]
    assert not answers

    slot.barrier(1, 1)

    thread.join(DEADLINE)
    assert results(answers[0]) == [("a", 2)]


def test_a_reset_lets_a_connection_go_whose_frame_is_held(slot):
    slot.barrier(0, 1)
    thread, answers = slot.background(*slot.frame(0, "a"))

    slot.host.reset()

    thread.join(DEADLINE)
    assert not thread.is_alive()
    (header, body) = answers[0]
    assert header[0] == "error"
    assert "Attempt 3" in pickle.loads(body).summary


def test_a_frame_held_over_a_new_deployment_is_not_applied_there(slot):
    slot.barrier(0, 1)
    thread, answers = slot.background(*slot.frame(0, "a"))

    slot.deploy(ATTEMPT + 1)

    thread.join(DEADLINE)
    assert answers[0][0][0] == "error"
    assert slot.send(0, "a") == [("a", 1)]


def test_a_failure_wakes_a_connection_whose_frame_is_held(slot):
    slot.barrier(0, 1)
    thread, answers = slot.background(*slot.frame(0, "a"))

    with pytest.raises(AssertionError, match="poisoned"):
        slot.send(1, "poison")

    thread.join(DEADLINE)
    assert not thread.is_alive(), "nobody will ever send the barrier it waits for"
    assert "poisoned" in pickle.loads(answers[0][1]).summary
