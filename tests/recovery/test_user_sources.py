"""Source functions of the user over crashes: the lock, offsets, parallel instances, watermarks, cancelling."""

from __future__ import annotations

import threading

import pytest
from tests.recovery.local_jobs import DEADLINE, Count, board, finals, local_env, new_board

from tidemark import (
    CheckpointedFunction,
    CheckpointListener,
    KeyedProcessFunction,
    ListCheckpointed,
    ListStateDescriptor,
    MapFunction,
    ParallelSourceFunction,
    ProcessWindowFunction,
    RestartStrategies,
    SourceFunction,
    Time,
    TumblingEventTimeWindows,
    Types,
)

TOTAL = 400


class Offsets(ParallelSourceFunction, CheckpointedFunction, CheckpointListener):
    """Instance i of n emits i, i + n, ... below TOTAL, a few between two checkpoints.

    Positions are (next number, step), so that they survive a change of parallelism.
    """

    def __init__(self, board_name, pace=40):
        self.board_name, self.pace = board_name, pace
        self.running = True

    def initialize_state(self, context):
        store = context.get_operator_state_store()
        self.state = store.get_list_state(ListStateDescriptor("positions", Types.PICKLED_BYTE_ARRAY()))
        self.positions = [list(position) for position in self.state.get()]
        self.restored = context.is_restored()
        self.told = threading.Event()

    def open(self, runtime_context):
        self.index = runtime_context.get_index_of_this_subtask()
        if not self.restored:
            self.positions = [[self.index, runtime_context.get_number_of_parallel_subtasks()]]

    def snapshot_state(self, context):
        self.state.update([tuple(position) for position in self.positions])

    def notify_checkpoint_complete(self, checkpoint_id):
        self.told.set()

    def run(self, ctx):
        emitted = 0
        for position in self.positions:
            while self.running and position[0] < TOTAL:
                with ctx.get_checkpoint_lock():
                    ctx.collect(position[0])
                    # Re-entrant, and still one step with the line above.
                    with ctx.get_checkpoint_lock():
                        position[0] += position[1]
                emitted += 1
                if emitted % self.pace == 0:
                    self.told.clear()
                    while self.running and not self.told.wait(0.01):
                        pass

    def cancel(self):
        self.running = False


class OneOffset(SourceFunction, ListCheckpointed, CheckpointListener):
    """Emits 0 to TOTAL - 1; its position is a one-element list."""

    def __init__(self, board_name):
        self.board_name = board_name
        self.offset, self.running = 0, True

    def open(self, runtime_context):
        self.told = threading.Event()
        board(self.board_name).note("starts at", self.offset)

    def snapshot_state(self, checkpoint_id, timestamp):
        return [self.offset]

    def restore_state(self, state):
        board(self.board_name).note("restores", state)
        self.offset = state[0] if state else 0

    def notify_checkpoint_complete(self, checkpoint_id):
        self.told.set()

    def run(self, ctx):
        while self.running and self.offset < TOTAL:
            with ctx.get_checkpoint_lock():
                ctx.collect(self.offset)
                self.offset += 1
            if self.offset % 50 == 0:
                self.told.clear()
                while self.running and not self.told.wait(0.01):
                    pass

    def cancel(self):
        self.running = False


class Flaky(MapFunction):
    """Fails at some numbers, once each."""

    def __init__(self, board_name, numbers):
        self.board_name, self.numbers = board_name, numbers

    def map(self, value):
        seen = board(self.board_name)
        if value in self.numbers and value not in seen.values:
            seen.set(value)
            raise ConnectionError(f"flaky at {value}")
        return value


def run_counting(source, seen, parallelism=1, fails_at=(70, 150, 333), mode=None):
    env = local_env(parallelism=parallelism)
    env.enable_checkpointing(10, mode)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(10, 1))
    numbers = env.add_source(source, type_info=Types.LONG()).uid("source")
    flaky = numbers.map(Flaky(seen.name, fails_at), Types.LONG())
    with flaky.key_by(lambda n: n % 7, Types.LONG()).process(Count()).execute_and_collect() as results:
        return list(results)


def expected(total=TOTAL):
    return {k: len(range(k, total, 7)) for k in range(7)}


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_source_with_offsets_counts_exactly_over_crashes(parallelism):
    seen = new_board()
    pairs = run_counting(Offsets(seen.name), seen, parallelism)
    assert finals(pairs) == expected()
    assert sorted(pairs) == sorted((k, n) for k, count in expected().items() for n in range(1, count + 1))
    assert {70, 150, 333} <= set(seen.values)


def test_a_list_checkpointed_source_counts_exactly_over_crashes():
    seen = new_board()
    pairs = run_counting(OneOffset(seen.name), seen)
    assert finals(pairs) == expected()
    assert len(pairs) == TOTAL
    assert seen.events[0] == ("starts at", 0)
    starts = [event[1] for event in seen.events if event[0] == "starts at"]
    assert starts == sorted(starts)
    assert [event for event in seen.events if event[0] == "restores"][-1] == ("restores", [starts[-1]])


def test_positions_of_a_parallel_source_move_with_the_parallelism(tmp_path):
    class Endless(Offsets):
        def run(self, ctx):
            super().run(ctx)
            board(self.board_name).note("done")
            while self.running:
                self.told.wait(0.01)

    def start(source, parallelism, path=None):
        env = local_env({} if path is None else {"execution.savepoint.path": path}, parallelism)
        env.enable_checkpointing(10)
        numbers = env.add_source(source, type_info=Types.LONG()).uid("source")
        counted = numbers.key_by(lambda n: n % 7, Types.LONG()).process(Count()).uid("count")
        return counted.execute_and_collect()

    seen = new_board()
    first = start(Endless(seen.name, pace=10), 3)
    taken = [next(first) for _ in range(50)]
    path = first.get_job_client().stop_with_savepoint(False, str(tmp_path)).result(DEADLINE)
    taken += list(first)
    taken += list(start(Offsets(seen.name), 2, path))
    assert sorted(taken) == sorted((k, n) for k, count in expected().items() for n in range(1, count + 1))


class Forgetful(SourceFunction):
    """Keeps no position."""

    def run(self, ctx):
        for number in range(10):
            ctx.collect(number)


def test_a_source_without_a_position_starts_again_from_the_beginning_and_is_warned_about(caplog):
    seen = new_board()
    pairs = run_counting(Forgetful(), seen, fails_at=(5,))
    assert finals(pairs) == expected(10)
    assert "keeps no position" in caplog.text


class Fails(SourceFunction):
    def __init__(self, board_name, times):
        self.board_name, self.times = board_name, times

    def open(self, runtime_context):
        self.attempt = runtime_context.get_attempt_number()

    def run(self, ctx):
        ctx.collect(self.attempt)
        if self.attempt < self.times:
            raise OSError(f"source down in attempt {self.attempt}")


def test_a_source_that_fails_fails_the_job_and_is_restarted():
    seen = new_board()
    env = local_env()
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(2, 1))
    assert 2 in list(env.add_source(Fails(seen.name, 2)).execute_and_collect())
    env.set_restart_strategy(RestartStrategies.no_restart())
    env.add_source(Fails(seen.name, 1)).print()
    client = env.execute_async()
    error = client.get_job_execution_result().exception(DEADLINE)
    assert "OSError: source down in attempt 0" in str(error)
    assert isinstance(error.__cause__, OSError)


class Watermarked(SourceFunction):
    """Emits what it is given: (value, timestamp), or a bare number as a watermark."""

    def __init__(self, steps):
        self.steps = steps

    def run(self, ctx):
        for step in self.steps:
            if isinstance(step, int):
                ctx.emit_watermark(step)
            else:
                ctx.collect_with_timestamp(*step)


class ShowTime(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield value, ctx.timestamp(), ctx.timer_service().current_watermark()


def test_watermarks_of_a_source_come_between_its_elements():
    env = local_env()
    steps = [("a", 1), 5, ("b", 6), ("c", 3), 10, ("d", 11)]
    stream = env.add_source(Watermarked(steps)).key_by(lambda v: "k").process(ShowTime())
    assert list(stream.execute_and_collect()) == [("a", 1, -(2**63)), ("b", 6, 5), ("c", 3, 5), ("d", 11, 10)]


def test_elements_behind_the_watermark_of_their_source_are_late():
    env = local_env()
    steps = [("a", 1), ("a", 2), 20, ("late", 5), ("a", 21), 40, ("late", 22)]
    windows = (
        env.add_source(Watermarked(steps))
        .key_by(lambda v: v)
        .window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
    )
    counts = windows.process(WindowCount())
    assert list(counts.execute_and_collect()) == [("a", 0, 2), ("a", 20, 1)]


class WindowCount(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, context.window().start, len(list(elements))


class Stubborn(SourceFunction):
    """Emits without end and notices a cancellation only in `collect`."""

    def __init__(self, board_name):
        self.board_name = board_name

    def run(self, ctx):
        number = 0
        while True:
            ctx.collect(number)
            number += 1
            board(self.board_name).set("emitted")

    def close(self):
        board(self.board_name).note("closed")


def test_a_source_that_ignores_cancel_is_stopped_in_collect():
    seen = new_board()
    env = local_env()
    env.add_source(Stubborn(seen.name)).filter(lambda n: False).print()
    client = env.execute_async()
    seen.wait_set("emitted")
    client.cancel().result(DEADLINE)
    assert seen.events == ["closed"]


class LocksItself(SourceFunction, CheckpointedFunction):
    """Takes the lock in `snapshot_state` again, and holds it while it emits many blocks."""

    def __init__(self, blocks, size):
        self.blocks, self.size = blocks, size

    def initialize_state(self, context):
        self.lock = None

    def snapshot_state(self, context):
        if self.lock is not None:
            with self.lock:
                pass

    def run(self, ctx):
        self.lock = ctx.get_checkpoint_lock()
        for block in range(self.blocks):
            with self.lock:
                for number in range(self.size):
                    ctx.collect(block * self.size + number)


def test_a_source_may_hold_the_lock_for_more_than_the_buffer_takes(monkeypatch):
    monkeypatch.setattr("tidemark.operators.source.CAPACITY", 100)
    env = local_env()
    env.enable_checkpointing(10)
    results = env.add_source(LocksItself(40, 500)).execute_and_collect()
    assert list(results) == list(range(20_000))
