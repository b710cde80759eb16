"""Source functions and their host: emission and offset are one step, and what is buffered is part of the cut."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tidemark.api.functions import CheckpointedFunction, CheckpointListener, SourceFunction
from tidemark.clock import ManualClock
from tidemark.metrics.registry import MetricRegistry
from tidemark.operators import source as source_module
from tidemark.operators.base import OperatorEnvironment, Output, RestoredState
from tidemark.operators.source import SourceOperator
from tidemark.plan.vertex import SubtaskInfo
from tidemark.protocol.batch import MAX_WATERMARK, MIN_WATERMARK
from tidemark.state.descriptors import ListStateDescriptor
from tidemark.types.typeinfo import Types

DEADLINE = 60.0
CHANCE = 0.3
"""How long something that must not happen gets the chance to. Slower machines see less, and never too much."""


class Script(SourceFunction, CheckpointedFunction, CheckpointListener):
    """Runs what the test gives it; its offset is operator state."""

    def __init__(self, run: Callable[[Script, Any], None]) -> None:
        self._run = run
        self.offset = 0
        self.opened = False
        self.running = True
        self.cancelled = threading.Event()
        self.on_snapshot: Callable[[], None] = lambda: None
        self.on_complete: Callable[[], None] = lambda: None

    def open(self, runtime_context: Any) -> None:
        self.opened = True

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self._state = store.get_list_state(ListStateDescriptor("offset", Types.LONG()))
        self.offset = next(iter(self._state.get()), 0)

    def snapshot_state(self, context: Any) -> None:
        self.on_snapshot()
        self._state.update([self.offset])

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.on_complete()

    def run(self, ctx: Any) -> None:
        self._run(self, ctx)

    def cancel(self) -> None:
        self.running = False
        self.cancelled.set()


Start = Callable[..., SourceOperator]


@pytest.fixture
def start() -> Iterator[Start]:
    """Factory of running sources; they end with the test."""
    started: list[SourceOperator] = []

    def make(
        function: Script,
        restored: RestoredState | None = None,
        parallelism: int = 1,
        on_ready: Callable[[], None] = lambda: None,
    ) -> SourceOperator:
        operator = SourceOperator(function, Types.LONG())
        operator.on_ready = on_ready
        clock = ManualClock()
        info = SubtaskInfo("source", "source", 0, parallelism, 128)
        operator.setup(OperatorEnvironment(info, clock, MetricRegistry(clock).group("source"), _no_backend))
        operator.initialize(restored)
        operator.open()
        started.append(operator)
        return operator

    yield make
    for operator in started:
        operator.close()


def _no_backend(_serializer: Any) -> Any:
    raise AssertionError("a source has no keyed state")


def emit_numbers(count: int) -> Callable[[Script, Any], None]:
    """Emits that many numbers from the offset on, each in one step with its offset, then ends."""

    def run(function: Script, ctx: Any) -> None:
        while function.running and function.offset < count:
            with ctx.get_checkpoint_lock():
                ctx.collect(function.offset)
                function.offset += 1

    return run


def finished(operator: SourceOperator) -> SourceOperator:
    thread = operator._thread
    assert thread is not None
    thread.join(DEADLINE)
    assert not thread.is_alive()
    return operator


def saved(operator: SourceOperator, checkpoint_id: int = 1) -> RestoredState:
    """What a restore gets from a cut made now."""
    return RestoredState(operator=operator.cut(checkpoint_id, 0).operator)


def offset_and_buffer(restored: RestoredState, start: Start) -> tuple[int, list[Any]]:
    function = Script(lambda function, ctx: None)
    operator = start(function, restored)
    out = Output()
    operator.take(out)
    return function.offset, out.values


def test_a_cut_never_falls_between_an_emission_and_its_offset(start):
    """Without the lock the element is in the snapshot and its offset is not: it would be emitted twice."""
    emitted, cutting = threading.Event(), threading.Event()

    def run(function: Script, ctx: Any) -> None:
        with ctx.get_checkpoint_lock():
            ctx.collect(7)
            emitted.set()
            # Only a cut that does not wait for the lock comes here before the offset moves.
            cutting.wait(CHANCE)
            function.offset += 1
        function.cancelled.wait(DEADLINE)

    function = Script(run)
    function.on_snapshot = cutting.set
    operator = start(function)
    assert emitted.wait(DEADLINE)

    restored = saved(operator)

    assert cutting.is_set()
    assert offset_and_buffer(restored, start) == (1, [7])


def test_nothing_is_emitted_while_a_cut_is_made(start):
    wanted, cutting, collected = threading.Event(), threading.Event(), threading.Event()

    def run(function: Script, ctx: Any) -> None:
        assert cutting.wait(DEADLINE)
        wanted.set()
        ctx.collect(1)
        collected.set()

    def snapshot() -> None:
        cutting.set()
        assert wanted.wait(DEADLINE)
        assert not collected.wait(CHANCE), "an element was emitted in the middle of a cut"

    function = Script(run)
    function.on_snapshot = snapshot
    operator = start(function)

    restored = saved(operator)

    assert collected.wait(DEADLINE), "the cut gave the lock back"
    assert offset_and_buffer(restored, start) == (0, [])


def test_listeners_are_told_of_a_checkpoint_between_two_emissions(start):
    emitted, told = threading.Event(), threading.Event()
    seen: list[int] = []

    def run(function: Script, ctx: Any) -> None:
        with ctx.get_checkpoint_lock():
            ctx.collect(7)
            emitted.set()
            told.wait(CHANCE)
            function.offset += 1
        function.cancelled.wait(DEADLINE)

    function = Script(run)
    function.on_complete = lambda: (seen.append(function.offset), told.set())
    operator = start(function)
    assert emitted.wait(DEADLINE)

    operator.notify_checkpoint_complete(1)

    assert seen == [1]


def test_the_lock_is_held_until_its_outermost_holder_lets_go(start):
    inner, release, snapped = threading.Event(), threading.Event(), threading.Event()

    def run(function: Script, ctx: Any) -> None:
        lock = ctx.get_checkpoint_lock()
        with lock:
            with lock:
                ctx.collect(1)
            inner.set()
            release.wait(DEADLINE)
        function.cancelled.wait(DEADLINE)

    function = Script(run)
    function.on_snapshot = snapped.set
    operator = start(function)
    assert inner.wait(DEADLINE)
    cutter = threading.Thread(target=operator.cut, args=(1, 0))
    cutter.start()

    assert not snapped.wait(CHANCE)
    release.set()
    assert snapped.wait(DEADLINE)
    cutter.join(DEADLINE)


def test_a_full_buffer_holds_the_source_back_and_not_the_cut(start, monkeypatch):
    monkeypatch.setattr(source_module, "CAPACITY", 3)
    function = Script(emit_numbers(10))
    full = threading.Event()
    operator = start(function)
    operator.on_ready = full.set
    waited = threading.Event()
    for _ in range(int(DEADLINE / 0.01)):
        if len(operator._buffer) == 3:
            break
        waited.wait(0.01)

    restored = saved(operator)

    assert not waited.wait(CHANCE)
    assert len(operator._buffer) == 3
    assert offset_and_buffer(restored, start) == (3, [0, 1, 2])
    out = Output()
    while not operator.take(out)["ended"]:
        waited.wait(0.001)
    assert out.values == list(range(10))


def test_who_holds_the_lock_is_never_held_back_by_a_full_buffer(start, monkeypatch):
    """It would wait for room that only an epoch makes, while a cut in front of that epoch waits for the lock."""
    monkeypatch.setattr(source_module, "CAPACITY", 2)

    def run(function: Script, ctx: Any) -> None:
        with ctx.get_checkpoint_lock():
            for number in range(5):
                ctx.collect(number)
                function.offset += 1

    operator = finished(start(Script(run)))

    assert offset_and_buffer(saved(operator), start) == (5, [0, 1, 2, 3, 4])


def test_a_snapshot_may_take_the_lock_while_the_buffer_is_full(start, monkeypatch):
    """It runs in the host's thread, which alone makes room."""
    monkeypatch.setattr(source_module, "CAPACITY", 1)
    contexts: list[Any] = []

    def run(function: Script, ctx: Any) -> None:
        contexts.append(ctx)
        ctx.collect(1)

    def snapshot() -> None:
        with contexts[0].get_checkpoint_lock() as lock:
            assert lock.acquire() is True
            lock.release()

    function = Script(run)
    function.on_snapshot = snapshot
    operator = finished(start(function))
    cutter = threading.Thread(target=operator.cut, args=(1, 0), daemon=True)

    cutter.start()
    cutter.join(DEADLINE)

    assert not cutter.is_alive()


def test_who_has_made_a_cut_waits_for_room_like_everybody_else(start, monkeypatch):
    monkeypatch.setattr(source_module, "CAPACITY", 1)
    operator = finished(start(Script(lambda function, ctx: ctx.collect(1))))
    cut, taken = threading.Event(), threading.Event()

    def cut_then_lock() -> None:
        operator.cut(1, 0)
        cut.set()
        with operator.lock:
            taken.set()

    thread = threading.Thread(target=cut_then_lock)
    thread.start()
    assert cut.wait(DEADLINE)
    assert not taken.wait(CHANCE)

    operator.take(Output())

    thread.join(DEADLINE)
    assert taken.is_set()


def test_run_starts_after_open(start):
    seen: list[bool] = []

    finished(start(Script(lambda function, ctx: seen.append(function.opened))))

    assert seen == [True]


def test_what_was_buffered_comes_back_in_front_of_what_run_emits_next(start):
    operator = finished(start(Script(emit_numbers(3))))
    out = Output()
    restored = saved(operator)

    again = finished(start(Script(emit_numbers(5)), restored, parallelism=2))

    while not again.take(out)["ended"]:
        pass
    assert out.values == [0, 1, 2, 3, 4]


def test_timestamps_and_watermarks_in_the_buffer_survive_a_restore(start):
    def run(function: Script, ctx: Any) -> None:
        ctx.collect_with_timestamp(1, 10)
        ctx.emit_watermark(10)
        ctx.collect_with_timestamp(2, 5)
        ctx.collect(3)

    restored = saved(finished(start(Script(run))))
    operator = start(Script(lambda function, ctx: None), restored)

    taken = []
    for _ in range(3):
        out = Output()
        status = operator.take(out)
        taken.append((out.values, out.timestamps, status["watermark"], status["barred"]))
    assert taken == [
        ([1], [10], 10, True),
        ([2, 3], [5, None], MAX_WATERMARK, False),
        ([], None, MAX_WATERMARK, False),
    ]


def test_a_finished_source_stays_finished_unless_the_job_is_rescaled(start):
    restored = saved(finished(start(Script(emit_numbers(1)))))
    ran: list[int] = []

    ready = threading.Event()
    same = Script(lambda function, ctx: ran.append(1))
    operator = start(same, restored, on_ready=ready.set)
    assert operator._thread is None
    assert ready.is_set(), "the host has to hear that there is an end to take"
    other = Script(lambda function, ctx: ran.append(2))
    finished(start(other, restored, parallelism=2))

    assert ran == [2]


def test_a_source_that_runs_is_not_finished_in_its_snapshot(start):
    function = Script(lambda function, ctx: function.cancelled.wait(DEADLINE))
    restored = saved(start(function))
    ran = threading.Event()

    start(Script(lambda function, ctx: ran.set()), restored)

    assert ran.wait(DEADLINE)


def test_an_error_of_run_is_raised_after_everything_emitted_before_it(start):
    def run(function: Script, ctx: Any) -> None:
        ctx.collect(1)
        ctx.emit_watermark(4)
        ctx.collect(2)
        raise ValueError("the source broke")

    operator = finished(start(Script(run)))
    out = Output()

    assert operator.status()["ready"]
    assert operator.take(out)["taken"] == 1
    with pytest.raises(ValueError, match="the source broke"):
        operator.take(out)
    assert out.values == [1, 2]
    assert operator.status() == {"watermark": 4, "ready": True, "ended": False, "idle": False}


def test_a_watermark_lets_nothing_behind_it_pass_in_the_same_epoch(start):
    def run(function: Script, ctx: Any) -> None:
        ctx.collect_with_timestamp(1, 1)
        ctx.emit_watermark(5)
        ctx.emit_watermark(3)
        ctx.collect_with_timestamp(2, 9)

    operator = finished(start(Script(run)))
    steps = []
    for _ in range(3):
        out = Output()
        status = operator.take(out)
        steps.append((out.values, status["watermark"], status["barred"], status["taken"], status["ended"]))

    assert steps == [
        ([1], 5, True, 1, False),
        ([], 5, False, 0, False),
        ([2], MAX_WATERMARK, False, 1, True),
    ]


def test_nobody_waits_while_something_is_left_to_take(start):
    def run(function: Script, ctx: Any) -> None:
        ctx.emit_watermark(5)
        ctx.collect_with_timestamp(2, 5)

    operator = finished(start(Script(run)))
    assert operator.take(Output())["taken"] == 0

    waiting = threading.Thread(target=operator.wait_ready, args=(2 * DEADLINE,), daemon=True)
    waiting.start()
    waiting.join(DEADLINE)

    assert not waiting.is_alive()


def test_many_watermarks_are_merged_as_long_as_nothing_becomes_late(start, monkeypatch):
    monkeypatch.setattr(source_module, "_EXACT_MARKS", 2)

    def run(function: Script, ctx: Any) -> None:
        for time in range(1, 5):
            ctx.collect_with_timestamp(time, time)
            ctx.emit_watermark(time)
        ctx.collect_with_timestamp(99, 2)
        ctx.collect_with_timestamp(100, 100)

    operator = finished(start(Script(run)))
    out = Output()

    first = operator.take(out)
    assert (out.values, first["watermark"], first["barred"]) == ([1, 2, 3, 4], 4, True)
    second = operator.take(out)
    assert out.values == [1, 2, 3, 4, 99, 100]
    assert (second["watermark"], second["barred"], second["ended"]) == (MAX_WATERMARK, False, True)


def test_as_many_watermarks_as_are_kept_exactly_are_kept_exactly(start, monkeypatch):
    """Those that were taken do not count any more, and elements never did."""
    monkeypatch.setattr(source_module, "_EXACT_MARKS", 2)
    steps = [threading.Event() for _ in range(3)]

    def run(function: Script, ctx: Any) -> None:
        for time in (1, 2):
            ctx.collect_with_timestamp(time + 10, time + 10)
            ctx.emit_watermark(time)
        ctx.collect_with_timestamp(13, 13)
        steps[0].set()
        steps[1].wait(DEADLINE)
        ctx.emit_watermark(3)
        ctx.collect_with_timestamp(14, 14)
        steps[2].set()

    operator = start(Script(run))
    out = Output()

    assert steps[0].wait(DEADLINE)
    assert (operator.take(out)["watermark"], out.values) == (1, [11])
    assert (operator.take(out)["watermark"], out.values) == (2, [11, 12])
    steps[1].set()
    assert steps[2].wait(DEADLINE)
    assert (operator.take(out)["watermark"], out.values) == (3, [11, 12, 13])


def test_an_element_at_the_merged_watermark_waits_for_the_next_epoch(start, monkeypatch):
    monkeypatch.setattr(source_module, "_EXACT_MARKS", 0)

    def run(function: Script, ctx: Any) -> None:
        ctx.emit_watermark(4)
        ctx.collect_with_timestamp(5, 5)
        ctx.collect_with_timestamp(4, 4)

    operator = finished(start(Script(run)))
    out = Output()

    assert operator.take(out)["barred"]
    assert out.values == [5]
    assert not operator.take(out)["barred"]
    assert out.values == [5, 4]


def test_an_idle_source_is_idle_until_it_emits_and_only_with_an_empty_buffer(start):
    go, ready = threading.Event(), threading.Event()

    def run(function: Script, ctx: Any) -> None:
        ctx.collect(1)
        ctx.mark_as_temporarily_idle()
        ready.set()
        go.wait(DEADLINE)
        ctx.collect(2)
        ready.set()
        function.cancelled.wait(DEADLINE)

    operator = start(Script(run))
    assert ready.wait(DEADLINE)
    assert not operator.status()["idle"]
    operator.take(Output())
    assert operator.status()["idle"]
    ready.clear()
    go.set()
    assert ready.wait(DEADLINE)
    operator.take(Output())

    assert not operator.status()["idle"]


def test_the_host_is_told_when_the_first_element_waits_and_when_run_ends(start):
    calls: list[str] = []
    go = [threading.Event() for _ in range(2)]

    def run(function: Script, ctx: Any) -> None:
        go[0].wait(DEADLINE)
        ctx.collect(1)
        calls.append("one")
        ctx.collect(2)
        calls.append("two")
        go[1].wait(DEADLINE)
        ctx.mark_as_temporarily_idle()
        calls.append("idle")

    operator = start(Script(run))
    operator.on_ready = lambda: calls.append("ready")
    go[0].set()
    go[1].set()
    finished(operator)

    assert calls == ["ready", "one", "two", "ready", "idle", "ready"]


def test_the_watermark_goes_on_from_the_one_of_the_cut(start):
    def run(function: Script, ctx: Any) -> None:
        ctx.emit_watermark(3)
        ctx.collect_with_timestamp(1, 9)
        function.cancelled.wait(DEADLINE)

    operator = start(Script(run))
    assert operator.status()["watermark"] == MIN_WATERMARK
    operator.restore_watermark(5)

    while not operator.take(Output())["taken"]:
        pass
    assert operator.status()["watermark"] == 5


def test_closing_ends_a_run_that_waits_for_room_and_ignores_its_errors(start, monkeypatch):
    monkeypatch.setattr(source_module, "CAPACITY", 1)
    ended: list[BaseException] = []

    def run(function: Script, ctx: Any) -> None:
        try:
            for number in range(100):
                ctx.collect(number)
        except BaseException as exc:
            ended.append(exc)
            raise

    operator = start(Script(run))
    thread = operator._thread
    assert thread is not None

    operator.close()

    assert not thread.is_alive()
    assert len(ended) == 1
    operator.take(Output())
    assert operator._error is None


def test_an_error_that_cancelling_causes_is_not_the_jobs(start):
    def run(function: Script, ctx: Any) -> None:
        function.cancelled.wait(DEADLINE)
        raise OSError("the connection was closed")

    operator = start(Script(run))
    operator.close()

    assert not operator.status()["ready"]


def test_a_cancel_that_fails_does_not_keep_the_source_from_closing(start, caplog):
    class Stubborn(Script):
        def cancel(self) -> None:
            super().cancel()
            raise RuntimeError("I will not")

    operator = start(Stubborn(lambda function, ctx: function.cancelled.wait(DEADLINE)))
    thread = operator._thread
    assert thread is not None

    operator.close()

    assert not thread.is_alive()
    assert "cancel() of source 'source' failed" in caplog.text
