"""A savepoint taken in one execution mode starts in the other, at another parallelism. No JVM."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from tests.recovery.local_jobs import DEADLINE, Numbers, board, local_env, new_board

from tidemark import (
    BroadcastProcessFunction,
    CheckpointedFunction,
    Duration,
    EmbeddedRocksDBStateBackend,
    Encoder,
    FileSink,
    FileSource,
    HashMapStateBackend,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    NumberSequenceSource,
    Split,
    SplitReader,
    SplitSource,
    StreamFormat,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from tidemark.common.time import Time

pytestmark = pytest.mark.modes("epochs", reason="every job here is given its mode")
CROSSINGS = [("epochs", "continuous", 3), ("continuous", "epochs", 1), ("continuous", "continuous", 3)]
RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
TOTAL = 60
"""Numbers that every kind of source gives, 0 to 59; the first job has read what lies below `HALF`."""
HALF = 30


class Halves(SplitSource):
    """The even and the odd numbers; waits at HALF until the board says "go on"."""

    bounded = True

    def __init__(self, board_name):
        self.board_name = board_name

    def enumerate(self):
        return [Split("even", 0), Split("odd", 1)]

    def open(self, split, position):
        return _Half(self.board_name, split.data if position is None else position)


class _Half(SplitReader):
    def __init__(self, board_name, following):
        self.board_name, self.next = board_name, following

    def read(self, max_records, timeout_ms):
        if self.next >= TOTAL:
            return None
        if self.next >= HALF and not board(self.board_name).values.get("go on"):
            return []
        self.next += 2
        return [self.next - 2]

    def timestamps(self):
        return [self.next - 2]

    def position(self):
        return self.next


class Ledger(KeyedProcessFunction, CheckpointedFunction):
    """Counts in keyed and in operator state; a timer at the end of time tells both."""

    def __init__(self, board_name):
        self.board_name = board_name

    def initialize_state(self, context):
        self.all = context.get_operator_state_store().get_list_state(ListStateDescriptor("all", Types.LONG()))
        self.seen = sum(self.all.get())
        board(self.board_name).note("operator state", self.seen)

    def snapshot_state(self, context):
        self.all.update([self.seen])

    def open(self, runtime_context):
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value, ctx):
        self.seen += 1
        self.total.update((self.total.value() or 0) + value)
        if value < HALF:
            ctx.timer_service().register_event_time_timer(10_000)
        board(self.board_name).note("processed", value)

    def on_timer(self, timestamp, ctx):
        yield f"total {ctx.get_current_key()}={self.total.value()}"


class Matched(BroadcastProcessFunction):
    """Tells which rules are known; the rules came before the savepoint."""

    def __init__(self, board_name):
        self.board_name = board_name

    def process_element(self, value, ctx):
        if value == TOTAL - 1:
            yield f"rules {sorted(key for key, _ in ctx.get_broadcast_state(RULES).items())}"

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(RULES).put(value, 1)
        board(self.board_name).note("rule", value)


def keyed_job(env, seen, target):
    """Keyed, operator and broadcast state, timers and windows over a source of splits."""
    numbers = env.from_source(
        Halves(seen.name), WatermarkStrategy.for_monotonous_timestamps(), "numbers", Types.LONG()
    ).uid("numbers")
    totals = (
        numbers.key_by(lambda n: n % 3, Types.LONG()).process(Ledger(seen.name), Types.STRING()).uid("ledger")
    )
    windows = (
        numbers.key_by(lambda n: n % 2, Types.LONG())
        .window(TumblingEventTimeWindows.of(Time.milliseconds(20)))
        .reduce(lambda a, b: a + b)
        .uid("windows")
        .map(lambda n: f"window {n}", Types.STRING())
        .uid("named")
    )
    rules = env.from_collection(["x", "y"], Types.STRING()).uid("rules").broadcast(RULES)
    known = numbers.connect(rules).process(Matched(seen.name), Types.STRING()).uid("matched")
    sink = FileSink.for_row_format(str(target), Encoder.simple_string_encoder()).build()
    totals.union(windows, known).sink_to(sink).uid("files")


def finished_lines(target):
    return Counter(
        line
        for path in target.rglob("*")
        if path.is_file() and not any(part.startswith((".", "_")) for part in path.relative_to(target).parts)
        for line in path.read_text().splitlines()
    )


def expected_lines():
    totals = [f"total {key}={sum(n for n in range(TOTAL) if n % 3 == key)}" for key in range(3)]
    windows = [
        f"window {sum(n for n in range(start, start + 20) if n % 2 == key)}"
        for start in range(0, TOTAL, 20)
        for key in range(2)
    ]
    return Counter([*totals, *windows, "rules ['x', 'y']"])


@pytest.mark.parametrize(("before", "after", "parallelism"), CROSSINGS)
@pytest.mark.parametrize(
    "backend", [HashMapStateBackend(), EmbeddedRocksDBStateBackend()], ids=["heap", "rocksdb"]
)
def test_state_timers_windows_and_output_cross(tmp_path, before, after, parallelism, backend):
    seen, target = new_board(), tmp_path / "out"
    env = local_env({"execution.mode": before}, 2, backend)
    env.enable_checkpointing(20)
    keyed_job(env, seen, target)
    client = env.execute_async("before")
    processed = [("processed", n) for n in range(HALF)]
    seen.wait(lambda b: set(processed) <= set(b.events) and ("rule", "y") in b.events, "the first half")
    path = client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result(DEADLINE)
    del seen.events[:]
    seen.set("go on")

    env = local_env({"execution.mode": after, "execution.savepoint.path": path}, parallelism, backend)
    env.enable_checkpointing(20)
    keyed_job(env, seen, target)
    env.execute("after")

    assert finished_lines(target) == expected_lines()
    restored = [event[1] for event in seen.events if event[0] == "operator state"]
    assert sum(restored) == HALF, "operator state was dealt out, none of it twice"
    assert sorted(event[1] for event in seen.events if event[0] == "processed") == list(range(HALF, TOTAL))


class Noted(KeyedProcessFunction):
    """Notes what comes; the first record waits until the job is being stopped."""

    def __init__(self, board_name):
        self.board_name = board_name

    def process_element(self, value, ctx):
        board(self.board_name).note(int(value))
        board(self.board_name).wait_set("stopping")


MANY = 30_000
"""More than one read takes, so that a source of them is stopped amid its records."""


def sequence(env, seen, tmp_path):
    return env.from_source(NumberSequenceSource(0, MANY - 1), WatermarkStrategy.no_watermarks(), "numbers")


def collection(env, seen, tmp_path):
    return env.from_collection(range(MANY), Types.LONG())


def files(env, seen, tmp_path):
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path / "in"))
    watched = source.monitor_continuously(Duration.of_millis(5)).build()
    return env.from_source(watched, WatermarkStrategy.no_watermarks(), "numbers")


def function(env, seen, tmp_path):
    return env.add_source(
        Numbers(seen.name, blocks=3, size=TOTAL // 3, bounded=False), type_info=Types.LONG()
    )


@pytest.mark.parametrize(("before", "after", "parallelism"), CROSSINGS)
@pytest.mark.parametrize(
    ("source", "total"), [(sequence, MANY), (collection, MANY), (files, TOTAL), (function, TOTAL)]
)
def test_positions_of_every_kind_of_source_cross(tmp_path, source, total, before, after, parallelism):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("".join(f"{n}\n" for n in range(TOTAL // 2)))
    seen = new_board()

    def submit(mode, parallel, **more):
        env = local_env({"execution.mode": mode, **more}, parallel)
        env.enable_checkpointing(10)
        source(env, seen, tmp_path).uid("numbers").key_by(lambda n: int(n) % 5, Types.LONG()).process(
            Noted(seen.name)
        ).uid("seen").print()
        return env.execute_async("crossing")

    def numbers():
        return Counter(event for event in list(seen.events) if isinstance(event, int))

    client = submit(before, 2)
    seen.wait(lambda _b: numbers(), "the first number")
    stopping = client.stop_with_savepoint(False, str(tmp_path / "savepoints"))
    seen.set("stopping")
    path = stopping.result(DEADLINE)
    (tmp_path / "in" / "b").write_text("".join(f"{n}\n" for n in range(TOTAL // 2, TOTAL)))

    client = submit(after, parallelism, **{"execution.savepoint.path": path})
    seen.set("end")
    if source is files:
        deadline = time.monotonic() + DEADLINE
        while len(numbers()) < total:
            assert time.monotonic() < deadline, f"missing: {set(range(total)) - set(numbers())}"
            time.sleep(0.01)
        client.cancel().result(DEADLINE)
    else:
        client.get_job_execution_result().result(DEADLINE)
    assert numbers() == Counter(range(total))
