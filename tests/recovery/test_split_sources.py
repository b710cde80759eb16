"""`SplitSource`s of the user in epochs: exact over crashes and changes of parallelism, watermarks per split."""

from __future__ import annotations

import pytest
from tests.recovery.local_jobs import DEADLINE, Count, board, finals, local_env, new_board

from tidemark import (
    Duration,
    KeyedProcessFunction,
    MapFunction,
    RestartStrategies,
    RuntimeExecutionMode,
    Split,
    SplitReader,
    SplitSource,
    Types,
    WatermarkStrategy,
)
from tidemark.errors import ConfigError, JobExecutionException

SPLITS, PER_SPLIT = 5, 60
TOTAL = SPLITS * PER_SPLIT


class Slice(SplitReader):
    """The numbers of one split in steps of SPLITS, a few at a time."""

    def __init__(self, source, split, position):
        self.source, self.first = source, split.data["first"]
        self.next = 0 if position is None else position["next"]
        board(source.board_name).note("open", split.id, self.next)

    def read(self, max_records, timeout_ms):
        if self.next >= PER_SPLIT:
            return None if self.source.bounded else []
        first, self.next = self.next, min(PER_SPLIT, self.next + min(max_records, 7))
        return [self.first + SPLITS * n for n in range(first, self.next)]

    def position(self):
        return {"next": self.next}

    def close(self):
        board(self.source.board_name).note("close")


class Numbers(SplitSource):
    """0 to TOTAL - 1 in SPLITS splits."""

    bounded = True

    def __init__(self, board_name, type_info=None):
        self.board_name, self.type_info = board_name, type_info

    def enumerate(self):
        board(self.board_name).note("enumerate")
        return [Split(f"part-{n}", {"first": n}) for n in range(SPLITS)]

    def open(self, split, position):
        return Slice(self, split, position)

    def notify_checkpoint_complete(self, checkpoint_id, positions):
        board(self.board_name).note("complete", checkpoint_id, positions)

    def close(self):
        board(self.board_name).note("driver closes")

    def get_produced_type(self):
        return self.type_info


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


def counted(env, source, seen, fails_at=()):
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("source")
    flaky = numbers.map(Flaky(seen.name, fails_at), Types.LONG())
    return flaky.key_by(lambda n: n % 7, Types.LONG()).process(Count()).uid("count")


def expected(total=TOTAL):
    return {k: len(range(k, total, 7)) for k in range(7)}


def exact(total=TOTAL):
    return sorted((k, n) for k, count in expected(total).items() for n in range(1, count + 1))


@pytest.fixture(autouse=True)
def _small_epochs(monkeypatch):
    """An epoch reads few records, so that there are many."""
    monkeypatch.setenv("TIDEMARK_EXECUTION_EPOCHS_MAX_RECORDS_PER_TASK", "20")


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_splits_are_counted_exactly_over_crashes(parallelism):
    seen = new_board()
    env = local_env(parallelism=parallelism)
    env.enable_checkpointing(10)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(10, 1))

    pairs = list(counted(env, Numbers(seen.name, Types.LONG()), seen, (70, 150, 293)).execute_and_collect())

    assert {70, 150, 293} <= set(seen.values)
    assert finals(pairs) == expected()
    assert sorted(pairs) == exact()


def test_readers_are_closed_and_the_source_hears_of_checkpoints_and_of_the_end():
    seen = new_board()
    env = local_env(parallelism=2)
    env.enable_checkpointing(10)

    list(counted(env, Numbers(seen.name), seen).execute_and_collect())

    assert seen.events.count("enumerate") == 1
    opened = [event for event in seen.events if event[0] == "open"]
    assert seen.events.count("close") == len(opened)
    told = [event for event in seen.events if event[0] == "complete"]
    assert told[-1][2] == {f"part-{n}": {"next": PER_SPLIT} for n in range(SPLITS)}
    seen.wait(lambda board: board.events[-1] == "driver closes", "the end of the driver's copy")


class Endless(Numbers):
    """Stays open, and finds another split when the board says so."""

    bounded = False
    discovery_interval_ms = 10

    def discover(self):
        more = [Split("late", {"first": 0})] if board(self.board_name).values.get("late") else []
        return [*self.enumerate(), *more]


def test_positions_of_splits_survive_a_savepoint_and_another_parallelism(tmp_path):
    def start(source, parallelism, path=None):
        env = local_env({} if path is None else {"execution.savepoint.path": path}, parallelism)
        env.enable_checkpointing(10)
        return counted(env, source, seen).execute_and_collect()

    seen = new_board()
    first = start(Endless(seen.name), 3)
    taken = [next(first) for _ in range(50)]
    path = first.get_job_client().stop_with_savepoint(False, str(tmp_path)).result(DEADLINE)
    taken += list(first)
    taken += list(start(Numbers(seen.name), 2, path))

    assert sorted(taken) == exact()


def test_a_split_that_is_discovered_later_is_read():
    seen = new_board()
    env = local_env()
    results = counted(env, Endless(seen.name), seen).execute_and_collect()
    taken = [next(results) for _ in range(TOTAL)]

    seen.set("late")
    taken += [next(results) for _ in range(PER_SPLIT)]
    results.close()

    assert sum(finals(taken).values()) == TOTAL + PER_SPLIT


def test_splits_run_in_batch_mode():
    seen = new_board()
    env = local_env(parallelism=2)
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)

    pairs = list(counted(env, Numbers(seen.name, Types.LONG()), seen).execute_and_collect())

    assert finals(pairs) == expected()


class Stamps(SplitReader):
    """Timestamps of one split, in order, one at a time; nothing while it has to wait for the board."""

    def __init__(self, source, split, position):
        self.source, self.stamps = source, split.data["stamps"]
        self.gate = split.data.get("gate")
        self.next = position or 0

    def read(self, max_records, timeout_ms):
        if self.next == len(self.stamps):
            return None
        if self.gate is not None and not board(self.source.board_name).values.get(self.gate):
            return []
        self.next += 1
        return [f"at {self.stamps[self.next - 1]}"]

    def timestamps(self):
        return [self.stamps[self.next - 1]]

    def position(self):
        return self.next


class Timed(SplitSource):
    """Splits with timestamps of their own."""

    bounded = True

    def __init__(self, board_name, **splits):
        self.board_name, self.splits = board_name, splits

    def enumerate(self):
        return [Split(name, data) for name, data in self.splits.items()]

    def open(self, split, position):
        return Stamps(self, split, position)


class ShowTime(KeyedProcessFunction):
    """Each record with its timestamp and the watermark it meets; opens a gate at a timestamp."""

    def __init__(self, board_name, opens=()):
        self.board_name, self.opens = board_name, dict(opens)

    def process_element(self, value, ctx):
        board(self.board_name).set(self.opens.get(ctx.timestamp()))
        yield ctx.timestamp(), ctx.timer_service().current_watermark()


def shown(seen, source, opens=(), parallelism=1):
    env = local_env(parallelism=parallelism)
    stream = env.from_source(source, WatermarkStrategy.for_monotonous_timestamps(), "timed")
    return list(stream.key_by(lambda v: 0).process(ShowTime(seen.name, opens)).execute_and_collect())


@pytest.mark.modes("epochs", reason="a continuous job may read everything within one watermark interval")
@pytest.mark.parametrize("parallelism", [1, 2])
def test_the_slowest_split_holds_the_watermark_back(parallelism, monkeypatch):
    monkeypatch.setenv("TIDEMARK_EXECUTION_EPOCHS_MAX_RECORDS_PER_TASK", "3")
    seen = new_board()
    slow, fast = list(range(0, 40)), list(range(1000, 1040))

    pairs = shown(seen, Timed(seen.name, slow={"stamps": slow}, fast={"stamps": fast}), (), parallelism)

    assert sorted(stamp for stamp, _mark in pairs) == slow + fast
    assert not [pair for pair in pairs if pair[0] <= pair[1]], "no split in order has late records"
    assert any(0 < mark < 1000 for _stamp, mark in pairs), "and time moves"


def test_a_split_without_a_record_yet_holds_the_watermark_back():
    seen = new_board()
    early, late = list(range(1000, 1060)), [5, 6]
    source = Timed(seen.name, early={"stamps": early}, late={"stamps": late, "gate": "go"})

    pairs = shown(seen, source, {1059: "go"})

    assert (5, -(2**63)) in pairs
    assert not [pair for pair in pairs if pair[0] <= pair[1]]


@pytest.mark.modes("epochs", reason="a continuous job may read everything within one watermark interval")
def test_a_split_that_has_ended_holds_nothing_back():
    seen = new_board()
    source = Timed(seen.name, short={"stamps": [1]}, long={"stamps": [*range(10, 50), 60], "gate": "go"})

    pairs = shown(seen, source, {1: "go"})

    assert max(mark for _stamp, mark in pairs) > 9, "time goes on behind the end of the short split"


@pytest.mark.modes("epochs", reason="a continuous job may read everything within one watermark interval")
def test_a_quiet_split_is_left_out_after_its_idle_timeout():
    seen = new_board()
    early = {"stamps": list(range(1000, 5000))}
    source = Timed(seen.name, early=early, late={"stamps": [9000], "gate": "time has moved"})
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_idleness(Duration.of_millis(1))

    class Watches(ShowTime):
        def process_element(self, value, ctx):
            mark = ctx.timer_service().current_watermark()
            if mark > 1000:
                board(self.board_name).set("time has moved")
            yield ctx.timestamp(), mark

    env = local_env()
    stream = env.from_source(source, strategy, "timed").key_by(lambda v: 0).process(Watches(seen.name))

    assert max(stream.execute_and_collect())[0] == 9000


class Hangs(Endless):
    """One of its methods does not return before the board says so."""

    def __init__(self, board_name, where):
        super().__init__(board_name)
        self.where = where

    def hang(self, where):
        if where == self.where:
            board(self.board_name).set("hangs")
            board(self.board_name).wait_set("released")

    def enumerate(self):
        self.hang("enumerate")
        return super().enumerate()

    def discover(self):
        self.hang("discover")
        return super().discover()

    def open(self, split, position):
        self.hang("open")
        return super().open(split, position)

    def notify_checkpoint_complete(self, checkpoint_id, positions):
        self.hang("notify")


@pytest.mark.parametrize("where", ["enumerate", "discover", "open", "notify"])
def test_a_job_whose_source_hangs_can_be_cancelled(where):
    seen = new_board()
    env = local_env({"task.cancellation.timeout": "100 ms"})
    env.enable_checkpointing(10)
    counted(env, Hangs(seen.name, where), seen).print()
    client = env.execute_async()
    seen.wait_set("hangs")

    client.cancel().result(DEADLINE)

    seen.set("released")


def test_a_reader_that_fails_fails_the_job_and_is_named():
    class Failing(Numbers):
        def open(self, split, position):
            raise PermissionError("no entry")

    seen = new_board()
    env = local_env()
    env.set_restart_strategy(RestartStrategies.no_restart())

    with pytest.raises(JobExecutionException, match=r"Operator 'numbers' .*PermissionError: no entry"):
        list(counted(env, Failing(seen.name), seen).execute_and_collect())


def test_records_are_of_the_type_the_source_declares():
    seen = new_board()
    env = local_env()
    env.set_restart_strategy(RestartStrategies.no_restart())
    stream = env.from_source(Numbers(seen.name, Types.STRING()), WatermarkStrategy.no_watermarks(), "numbers")

    with pytest.raises(JobExecutionException, match=r"Operator 'numbers' .*SerializationError"):
        list(stream.execute_and_collect())


def test_only_sources_are_taken():
    with pytest.raises(TypeError, match="needs a Source"):
        local_env().from_source(Slice, WatermarkStrategy.no_watermarks(), "numbers")
    with pytest.raises(ConfigError, match="does not say whether it ends"):
        source = Numbers("nobody")
        source.bounded = None
        local_env().from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
