"""Worker of PyFlink: the same work in its DataStream API, on its local mini cluster.

Settings, both execution modes: parallelism = slots; numbers from `NumberSequenceSource`, so that no Python runs
before the key selector; types declared everywhere, so that nothing is pickled. Process mode: bundles of up to
100,000 elements or one second, state caches of up to 100,000 keys per kind of state (`python.fn-execution.bundle.*`,
`python.state.cache-size`, `python.map-state.*`); the group `tuning` shows what other values give. Thread mode has
no bundles and no cache. Steady state: time of the job less that of the same job over few rows, which also warms up
the JVM. Latency: bundles of at most 10 ms, network buffers of at most 5 ms (100 ms by default); the socket source is
that of Flink's Java API, which the Python API lacks.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyflink.common import Configuration, SimpleStringSchema, Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import DataStream, StreamExecutionEnvironment
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.datastream.functions import (
    AggregateFunction,
    FlatMapFunction,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    ProcessWindowFunction,
)
from pyflink.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from pyflink.datastream.window import TumblingEventTimeWindows

from suite import kafka_work
from suite.latency import Ticker, figures_of, noted_ages
from suite.work import LIST_LENGTH, MAP_KEYS, ROWS_PER_MS, RULES, WINDOW_MS, Rows, is_correct
from suite.worker import Case, answer, timed

FEW = 1_000
AFTER_FAILURE = 100_000
"""Records behind a failure that have to be done until the job counts as recovered."""
LATENCY_OPTIONS = {"python.fn-execution.bundle.time": 10, "execution.buffer-timeout.interval": "5 ms"}
MINIMUM_S = 2.0
"""Differences of two jobs' times below this say nothing."""


def pair() -> Any:
    """A new type each time: once used, one holds on to the JVM and cannot be shipped."""
    return Types.TUPLE([Types.LONG(), Types.LONG()])


def rules_state() -> Any:
    """A new descriptor each time, for the same reason."""
    return MapStateDescriptor("rules", Types.LONG(), Types.LONG())


def with_ttl(descriptor: Any, ttl: bool) -> Any:
    if ttl:
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
    return descriptor


class RunningSum(KeyedProcessFunction):
    def __init__(self, rows: Rows, ttl: bool) -> None:
        self.keys, self.every, self.sample, self.ttl = rows.key, rows.every, rows.sample, ttl

    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(
            with_ttl(ValueStateDescriptor("total", Types.LONG()), self.ttl)
        )

    def process_element(self, value: int, ctx: Any) -> Iterator[tuple[int, int]]:
        key = self.keys(value)
        total = (self.total.value() or 0) + key + 1
        self.total.update(total)
        if total % ((key + 1) * self.every) == 0 and key % self.sample == 0:
            yield key, total


class FullLists(KeyedProcessFunction):
    def __init__(self, rows: Rows, ttl: bool) -> None:
        self.keys, self.sample, self.ttl = rows.key, rows.sample, ttl

    def open(self, runtime_context: Any) -> None:
        self.values = runtime_context.get_list_state(
            with_ttl(ListStateDescriptor("values", Types.LONG()), self.ttl)
        )

    def process_element(self, value: int, ctx: Any) -> Iterator[tuple[int, int]]:
        key = self.keys(value)
        self.values.add(key + 1)
        held = list(self.values.get())
        if len(held) == LIST_LENGTH:
            self.values.clear()
            if key % self.sample == 0:
                yield key, sum(held)


class SubCounts(KeyedProcessFunction):
    def __init__(self, rows: Rows, ttl: bool) -> None:
        self.keys, self.sample, self.ttl = rows.key, rows.sample, ttl

    def open(self, runtime_context: Any) -> None:
        self.counts = runtime_context.get_map_state(
            with_ttl(MapStateDescriptor("counts", Types.LONG(), Types.LONG()), self.ttl)
        )

    def process_element(self, value: int, ctx: Any) -> Iterator[tuple[int, int]]:
        key, sub = self.keys(value), value % MAP_KEYS
        count = (self.counts.get(sub) or 0) + 1
        self.counts.put(sub, count)
        if count % 10 == 0 and key % self.sample == 0:
            yield key * MAP_KEYS + sub, count


class FailsOnce(KeyedProcessFunction):
    """Sums, fails at one record of the first attempt, and notes when that was and when it went on."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.fails_at, self.folder = fails_at(case), str(folder)
        self.due = AFTER_FAILURE // case.slots
        self.seen = 0

    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))
        self.subtask = uuid.uuid4().hex
        self.again = os.path.exists(os.path.join(self.folder, "failed"))

    def note(self, name: str) -> None:
        Path(self.folder, name).write_text(repr(time.time()))

    def process_element(self, value: int, ctx: Any) -> Iterator[tuple[int, int]]:
        self.total.update((self.total.value() or 0) + value)
        if self.again:
            self.seen += 1
            if self.seen in (1, self.due):
                self.note(f"{'first' if self.seen == 1 else 'done'}-{self.subtask}")
        elif value == self.fails_at:
            self.note("failed")
            raise RuntimeError("this failure is wanted")
        yield from ()


class MatchRules(KeyedBroadcastProcessFunction):
    def __init__(self, rows: Rows) -> None:
        self.keys, self.every, self.sample = rows.key, rows.every, rows.sample

    def open(self, runtime_context: Any) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("matches", pair()))
        self.rules = rules_state()

    def process_element(self, value: int, ctx: Any) -> Iterator[tuple[int, int]]:
        key = self.keys(value)
        seen = hits = 0
        for rule, _ in ctx.get_broadcast_state(self.rules).items():
            seen += 1
            if (key + 1) % (rule + 2) == 0:
                hits += 1
        if seen < RULES:
            return
        rows, matches = self.state.value() or (0, 0)
        rows, matches = rows + 1, matches + hits
        self.state.update((rows, matches))
        if rows % self.every == 0 and key % self.sample == 0:
            yield key, matches

    def process_broadcast_element(self, value: int, ctx: Any) -> Iterator[Any]:
        ctx.get_broadcast_state(self.rules).put(value, value)
        yield from ()


class EventTime(TimestampAssigner):
    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return value // ROWS_PER_MS


class CountTexts(KeyedProcessFunction):
    """Counts the records of a key."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: str, ctx: Any) -> Iterator[tuple[int, int]]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        if count % kafka_work.EVERY == 0:
            yield int(value), count


class SumValues(AggregateFunction):
    def __init__(self, rows: Rows) -> None:
        self.keys = rows.key

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return accumulator + self.keys(value) + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class WithKey(ProcessWindowFunction):
    def process(self, key: int, context: Any, elements: Any) -> Iterator[tuple[int, int]]:
        for total in elements:
            yield key, total

    def clear(self, context: Any) -> None:
        """No state per window."""


class CountAndPass(KeyedProcessFunction):
    """Counts a key's events and passes on when each was created."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[int]:
        self.count.update((self.count.value() or 0) + 1)
        yield value[1]


class NoteLatency(FlatMapFunction):
    """Writes the age of every event, in milliseconds, to a file per subtask."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def open(self, runtime_context: Any) -> None:
        # In thread mode a function cannot ask for its subtask's index.
        name = f"latency-{uuid.uuid4().hex}"
        self.file = open(os.path.join(self.folder, name), "a", buffering=1 << 16)  # noqa: SIM115

    def flat_map(self, value: int) -> Iterator[int]:
        self.file.write(f"{time.time() * 1000 - value / 1000:.3f}\n")
        yield from ()

    def close(self) -> None:
        self.file.close()


def environment(case: Case, folder: Path) -> Any:
    configuration = Configuration()
    settings = {
        "python.execution-mode": case.system.removeprefix("flink-"),
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
        "python.fn-execution.bundle.size": "100000",
        "python.fn-execution.bundle.time": "1000",
        "python.state.cache-size": "100000",
        "python.map-state.read-cache-size": "100000",
        "python.map-state.write-cache-size": "100000",
        "parallelism.default": str(case.slots),
        "state.backend.type": "hashmap" if case.backend == "heap" else "rocksdb",
        "execution.checkpointing.dir": f"file://{folder}/checkpoints",
        "execution.checkpointing.incremental": "true",
        "rest.port": "0",
        "taskmanager.memory.process.size": "4g",
        "taskmanager.memory.managed.size": "1g",
    }
    if case.checkpoint_ms:
        settings["execution.checkpointing.interval"] = f"{case.checkpoint_ms} ms"
    if "jars" in case.options:
        settings["pipeline.jars"] = ";".join(f"file://{jar}" for jar in case.options["jars"])
    own = {key: value for key, value in case.options.items() if "." in key}
    for key, value in {**settings, **own}.items():
        configuration.set_string(key, str(value))
    return StreamExecutionEnvironment.get_execution_environment(configuration)


def run(case: Case, rows: Rows, folder: Path) -> list[Any]:
    """One job over all rows; its results."""
    env = environment(case, folder)
    numbers = env.from_source(
        NumberSequenceSource(0, rows.records - 1), WatermarkStrategy.no_watermarks(), "numbers", Types.LONG()
    )
    if case.state == "window":
        # Numbers grow within each subtask of the source, and the watermark is the lowest of all subtasks.
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(EventTime())
        numbers = numbers.assign_timestamps_and_watermarks(strategy)
    keyed = numbers.key_by(rows.key, key_type=Types.LONG())
    if case.state == "window":
        results = keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(WINDOW_MS))).aggregate(
            SumValues(rows), WithKey(), accumulator_type=Types.LONG(), output_type=pair()
        )
    elif case.state == "broadcast":
        rules = env.from_collection(list(range(RULES)), type_info=Types.LONG()).broadcast(rules_state())
        results = keyed.connect(rules).process(MatchRules(rows), output_type=pair())
    else:
        function = {"value": RunningSum, "list": FullLists, "map": SubCounts}[case.state]
        results = keyed.process(function(rows, case.ttl), output_type=pair())
    with results.execute_and_collect() as found:
        return list(found)


def run_kafka(case: Case, topic: str, folder: Path) -> list[Any]:
    """The records of a topic, counted by key."""
    from pyflink.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource

    env = environment(case, folder)
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(case.options["bootstrap"])
        .set_topics(topic)
        .set_group_id("flink")
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_bounded(KafkaOffsetsInitializer.latest())
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )
    texts = env.from_source(source, WatermarkStrategy.no_watermarks(), "kafka")
    counted = texts.key_by(lambda text: text, key_type=Types.STRING()).process(
        CountTexts(), output_type=pair()
    )
    with counted.execute_and_collect() as found:
        return list(found)


def latency(case: Case, folder: Path) -> dict[str, Any]:
    """Age of events when they reach the last function; they come from the same ticker as tidemark's."""
    env = environment(replace(case, options=LATENCY_OPTIONS), folder)
    with Ticker(case) as ticker:
        lines = DataStream(env._j_stream_execution_environment.socketTextStream("127.0.0.1", ticker.port))
        events = lines.map(lambda line: tuple(map(int, line.split(","))), output_type=pair())
        counted = events.key_by(lambda event: event[0], key_type=Types.LONG()).process(
            CountAndPass(), output_type=Types.LONG()
        )
        counted.flat_map(NoteLatency(folder), output_type=Types.LONG()).print()
        job = env.execute_async("latency")
        sent = ticker.sent()
        # The end of the stream ends the job, once it has read everything.
        ticker.stop()
        job.get_job_execution_result().result()
    return figures_of(noted_ages(folder), sent)


def fails_at(case: Case) -> int:
    """Every key has state by then, in several checkpoints."""
    return case.keys + case.keys // 10


def recovery(case: Case, folder: Path) -> dict[str, Any]:
    """A function fails once: seconds until every subtask has a record again, and until many are done."""
    restarts = {
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "3",
        "restart-strategy.fixed-delay.delay": "0 s",
        "execution.state-recovery.from-local": "true",
    }
    env = environment(replace(case, options=restarts), folder)
    source = NumberSequenceSource(0, fails_at(case) + 4 * AFTER_FAILURE)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers", Types.LONG())
    keys = case.keys
    numbers.key_by(lambda number: number % keys, Types.LONG()).process(
        FailsOnce(case, folder), pair()
    ).print()
    env.execute("recovery")
    failed = float((folder / "failed").read_text())
    first, done = (
        max(float(note.read_text()) for note in folder.glob(f"{name}-*")) - failed
        for name in ("first", "done")
    )
    return {"first_s": first, "recovery_s": done}


def measure(case: Case) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="bench-flink-"))
    try:
        if case.state == "latency":
            return latency(case, folder)
        if case.state == "recovery":
            return recovery(case, folder)
        if case.state == "kafka":
            return kafka_work.figures(case, lambda topic: run_kafka(case, topic, folder))
        few = Rows(FEW, case.keys, case.kind, built_for=case.records)
        rows = Rows(case.records, case.keys, case.kind)
        cold, _ = timed(lambda: run(case, few, folder))
        start, _ = timed(lambda: run(case, few, folder))
        seconds, found = timed(lambda: run(case, rows, folder))
        steady = seconds - start
        if steady < MINIMUM_S:
            raise RuntimeError(
                f"{case.records} rows took only {steady:.1f} s more than {FEW}; ask for more rows"
            )
        return {
            "rate": (case.records - FEW) / steady,
            "steady_s": steady,
            "startup_s": start,
            "warmup_s": cold,
            "correct": is_correct(case.state, rows, found),
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    # The interpreter inside the JVM (thread mode) does not look into a virtual environment by itself.
    os.environ["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry)
    answer(measure)
