"""Jobs of tidemark that several benchmarks run: environments, the functions of the workloads, a running stream.

The functions do what `suite.work` describes; a stream is a `rate-micro-batch` source that always has the next
epoch's rows ready, so a job runs as fast as it can until it is told to stop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from measure import Epoch, EpochLog
from suite.work import LIST_LENGTH, MAP_KEYS, RULES, Rows

from tidemark import (
    AggregateFunction,
    Configuration,
    Duration,
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
    field,
)
from tidemark.common.watermark_strategy import TimestampAssigner
from tidemark.datastream.functions import ProcessWindowFunction

PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
RULES_STATE = MapStateDescriptor("rules", Types.LONG(), Types.LONG())
DEADLINE_S = 900.0


def environment(
    backend: str = "heap",
    slots: int = 2,
    checkpoints: Path | None = None,
    interval_ms: int = 0,
    restore: str | None = None,
    **settings: str,
) -> StreamExecutionEnvironment:
    """An environment with a backend by name (`heap`, `rocksdb`: incremental), perhaps with checkpoints."""
    configuration = Configuration()
    for key, value in settings.items():
        configuration.set_string(key.replace("__", ".").replace("_", "-"), value)
    if checkpoints is not None:
        configuration.set_string("state.checkpoints.dir", f"file://{checkpoints}")
    if restore is not None:
        configuration.set_string("execution.savepoint.path", restore)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(slots)
    env.set_state_backend(HashMapStateBackend() if backend == "heap" else EmbeddedRocksDBStateBackend(True))
    if interval_ms:
        env.enable_checkpointing(interval_ms)
    return env


def endless_rows(spark: Any, rows: Rows, epoch_rows: int, slots: int = 2) -> Any:
    """A stream of the workload's rows, `epoch_rows` at a time."""
    return (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", epoch_rows)
        .option("numPartitions", slots)
        .load()
        .selectExpr(*rows.columns("value"))
    )


def attach(env: StreamExecutionEnvironment, frame: Any, state: str, rows: Rows, ttl: bool = False) -> Any:
    """The stream of results of one workload over a frame of its rows."""
    source = env.from_spark_stream(frame)
    if state == "window":
        timed = source.assign_timestamps_and_watermarks(
            WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(EventTime())
        )
        return (
            timed.key_by(field("k"), Types.LONG())
            .window(TumblingEventTimeWindows.of(Duration.of_millis(1_000)))
            .aggregate(SumValues(), WithKey(), accumulator_type=Types.LONG(), output_type=PAIR)
        )
    keyed = source.key_by(field("k"), Types.LONG())
    if state == "broadcast":
        rules = env.from_collection(list(range(RULES)), Types.LONG()).broadcast(RULES_STATE)
        return keyed.connect(rules).process(MatchRules(rows.every, rows.sample), output_type=PAIR)
    function: KeyedProcessFunction = {"value": RunningSum, "list": FullLists, "map": SubCounts}[state](
        rows.every, rows.sample, ttl
    )
    return keyed.process(function, output_type=PAIR).uid("work")


def discard() -> Any:
    """A sink for results that nobody looks at; bench-runtime and the suite check them."""
    from tidemark.datastream import SinkFunction

    class Discard(SinkFunction):
        def invoke(self, value: Any, context: Any) -> None:
            """Forget it."""

    return Discard()


def collect(stream: Any) -> list[tuple[int, int]]:
    """Let the stream's pairs come to this process; the list fills while the job runs."""
    found: list[tuple[int, int]] = []

    def take(frame: Any, _epoch: int) -> None:
        table = frame.toArrow()
        found.extend(zip(*(column.to_pylist() for column in table.columns), strict=True))

    stream.foreach_batch(take)
    return found


class RunningJob:
    """A stream that runs as fast as it can, and what is known of it."""

    def __init__(self, log: EpochLog, env: StreamExecutionEnvironment, name: str) -> None:
        self.log = log
        self.client: Any = env.execute_async(name)
        self.id = str(self.client.get_job_id())

    @property
    def busy_epochs(self) -> list[Epoch]:
        return [epoch for epoch in self.log.of(self.id) if epoch.records]

    @property
    def records(self) -> int:
        return sum(epoch.records for epoch in self.busy_epochs)

    def checkpoints(self) -> list[Any]:
        """Completed checkpoints, newest first."""
        statistics = self.client.runner.execution.coordinator.statistics
        return [record for record in statistics.records() if record.is_completed]

    def wait(self, what: str, condition: Callable[[], bool], pause_s: float = 0.02) -> None:
        """Until `condition()`; the job must be alive meanwhile."""
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            if self.client.get_job_status().result().is_terminal_state():
                self.client.get_job_execution_result().result()
                raise RuntimeError(f"The job ended before {what}.")
            if time.monotonic() > deadline:
                raise RuntimeError(f"Not within {DEADLINE_S:.0f} s: {what}.")
            time.sleep(pause_s)

    def wait_for_epochs(self, count: int) -> None:
        self.wait(f"{count} epochs", lambda: len(self.busy_epochs) >= count)

    def rate_between(self, first: int, last: int) -> float:
        """Records per second of wall-clock time from the end of one busy epoch to that of a later one."""
        epochs = self.busy_epochs
        seconds = epochs[last].ended - epochs[first].ended
        return sum(epoch.records for epoch in epochs[first + 1 : last + 1]) / seconds

    def slot_memory(self) -> int:
        """Resident bytes of all slot processes."""
        import psutil

        pids = self.client.get_progress()["slot_pids"]
        listed = pids.values() if isinstance(pids, dict) else pids
        return sum(psutil.Process(pid).memory_info().rss for pid in listed)

    def stop(self, directory: Path, drain: bool = False) -> str:
        """Stop with a savepoint; its path."""
        savepoint = self.client.stop_with_savepoint(drain, str(directory)).result(DEADLINE_S)
        self.client.get_job_execution_result().result(DEADLINE_S)
        return str(savepoint)

    def cancel(self) -> None:
        self.client.cancel().result(60)


class EventTime(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value[3]  # type: ignore[no-any-return]


class RunningSum(KeyedProcessFunction):
    def __init__(self, every: int, sample: int, ttl: bool = False) -> None:
        self.every, self.sample, self.ttl = every, sample, ttl

    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(
            with_ttl(ValueStateDescriptor("total", Types.LONG()), self.ttl)
        )

    def process_element(self, value: Any, ctx: Any) -> Iterator[tuple[int, int]]:
        total = (self.total.value() or 0) + value[1]
        self.total.update(total)
        if total % (value[1] * self.every) == 0 and value[0] % self.sample == 0:
            yield value[0], total


class FullLists(KeyedProcessFunction):
    def __init__(self, every: int, sample: int, ttl: bool = False) -> None:
        self.sample, self.ttl = sample, ttl

    def open(self, runtime_context: Any) -> None:
        self.values = runtime_context.get_list_state(
            with_ttl(ListStateDescriptor("values", Types.LONG()), self.ttl)
        )

    def process_element(self, value: Any, ctx: Any) -> Iterator[tuple[int, int]]:
        self.values.add(value[1])
        held = list(self.values.get())
        if len(held) == LIST_LENGTH:
            self.values.clear()
            if value[0] % self.sample == 0:
                yield value[0], sum(held)


class SubCounts(KeyedProcessFunction):
    def __init__(self, every: int, sample: int, ttl: bool = False) -> None:
        self.sample, self.ttl = sample, ttl

    def open(self, runtime_context: Any) -> None:
        self.counts = runtime_context.get_map_state(
            with_ttl(MapStateDescriptor("counts", Types.LONG(), Types.LONG()), self.ttl)
        )

    def process_element(self, value: Any, ctx: Any) -> Iterator[tuple[int, int]]:
        sub = value[2]
        count = (self.counts.get(sub) or 0) + 1
        self.counts.put(sub, count)
        if count % 10 == 0 and value[0] % self.sample == 0:
            yield value[0] * MAP_KEYS + sub, count


class MatchRules(KeyedBroadcastProcessFunction[int, Any, int, Any]):
    """Counts how many rules a key's rows have matched, from when all rules are there."""

    def __init__(self, every: int, sample: int) -> None:
        self.every, self.sample = every, sample

    def open(self, runtime_context: Any) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("matches", PAIR))

    def process_element(self, value: Any, ctx: Any) -> Iterator[tuple[int, int]]:
        number, seen, hits = value[1], 0, 0
        for rule, _ in ctx.get_broadcast_state(RULES_STATE).items():
            seen += 1
            if number % (rule + 2) == 0:
                hits += 1
        if seen < RULES:
            return
        rows, matches = self.state.value() or (0, 0)
        rows, matches = rows + 1, matches + hits
        self.state.update((rows, matches))
        if rows % self.every == 0 and value[0] % self.sample == 0:
            yield value[0], matches

    def process_broadcast_element(self, value: int, ctx: Any) -> None:
        ctx.get_broadcast_state(RULES_STATE).put(value, value)


class SumValues(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + value[1]  # type: ignore[no-any-return]

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class WithKey(ProcessWindowFunction[int, Any, int, Any]):
    def process(self, key: int, context: Any, elements: Any) -> Iterator[tuple[int, int]]:
        for total in elements:
            yield key, total

    def clear(self, context: Any) -> None:
        """No state per window."""


def with_ttl(descriptor: Any, ttl: bool) -> Any:
    if ttl:
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(3_600_000).build())
    return descriptor
