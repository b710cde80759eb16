"""The job of the soak: state that comes and goes at a steady rate, and says at its end whether it was exact.

Two splits give numbers by the clock. Every key gets `VISITS` records, `REVISIT_S` apart, and then never again:
keys are new all the time, value state expires by its TTL alone, map state is cleared by a timer in event time that
gives the key's total, timers in processing time come and go. At a steady rate all of this has a constant size.
"""

from __future__ import annotations

import json
import resource
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tidemark import (
    Configuration,
    EmbeddedRocksDBStateBackend,
    Encoder,
    FileSink,
    HashMapStateBackend,
    KeyedProcessFunction,
    MapStateDescriptor,
    RestartStrategies,
    Split,
    SplitReader,
    SplitSource,
    StateTtlConfig,
    StreamExecutionEnvironment,
    TimeDomain,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)

SPLITS, VISITS, BLOCK = 2, 8, 800


class Timing:
    """The rates of a job, all in its own seconds: a short run has a short TTL."""

    def __init__(self, rate: float, revisit_s: float) -> None:
        self.rate = rate
        """Records per second and split."""
        self.revisit_s = revisit_s
        self.distance = max(int(rate * revisit_s / VISITS), 1)
        """Between the places of a key's records in the split, in keys."""
        self.ttl_ms = int(revisit_s * 6000)
        self.expiry_ms = int(revisit_s * 1000 * (VISITS + 1))


class Visits(SplitSource[int]):
    """Numbers by the clock, until a file says that the current block is the last one."""

    bounded = True

    def __init__(self, go: Path, timing: Timing) -> None:
        self.go, self.timing = go, timing
        self.began = time.time()

    def enumerate(self) -> list[Split]:
        return [Split(str(n), n) for n in range(SPLITS)]

    def open(self, split: Split, position: Any | None) -> VisitsReader:
        return VisitsReader(split.data, self, position or 0)

    def get_produced_type(self) -> Any:
        return Types.LONG()


class VisitsReader(SplitReader[int]):
    """Gives `n * SPLITS + split` once it is due; blocks end together, so that all keys' last records are known."""

    def __init__(self, split: int, source: Visits, position: int) -> None:
        self.split, self.source, self.next = split, source, position
        self.first = position

    def read(self, max_records: int, timeout_ms: int) -> Sequence[int] | None:
        if self.next and self.next % BLOCK == 0 and self.source.go.exists():
            return None
        due = int((time.time() - self.source.began) * self.source.timing.rate)
        if due <= self.next:
            time.sleep(min(timeout_ms, 20) / 1000)
            return []
        self.first = self.next
        self.next = min(due, self.next + max_records, (self.next // BLOCK + 1) * BLOCK)
        return [n * SPLITS + self.split for n in range(self.first, self.next)]

    def timestamps(self) -> Sequence[int]:
        rate = self.source.timing.rate
        return [int(n / rate * 1000) for n in range(self.first, self.next)]

    def position(self) -> int:
        return self.next


def key_of(number: int, distance: int) -> int:
    """Record n of a split is the visit n % VISITS of a key that was new `distance` keys per visit ago."""
    n, split = divmod(number, SPLITS)
    return (n // VISITS - n % VISITS * distance) * SPLITS + split


class Totals(KeyedProcessFunction):
    """`key total` a while behind the last visit of a key. May be told to leak, for the test of the measuring."""

    leaked: list[Any] = []

    def __init__(self, timing: Timing, leak: int = 0) -> None:
        self.timing, self.leak = timing, leak

    def open(self, runtime_context: Any) -> None:
        expiring = ValueStateDescriptor("last_visit", Types.LONG())
        expiring.enable_time_to_live(StateTtlConfig.new_builder(self.timing.ttl_ms).build())
        self.last_visit = runtime_context.get_state(expiring)
        self.visits = runtime_context.get_map_state(MapStateDescriptor("visits", Types.LONG(), Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Any:
        if self.leak:
            self.leaked.append(bytes(self.leak))
            if value % 20 == 0:
                self.leaked.append(open("/dev/null"))  # noqa: SIM115 - it is a leak
        self.last_visit.update(value)
        if self.visits.is_empty():
            timers = ctx.timer_service()
            timers.register_event_time_timer(ctx.timestamp() + self.timing.expiry_ms)
            timers.register_processing_time_timer(
                timers.current_processing_time() + int(self.timing.revisit_s * 500)
            )
        self.visits.put(value, 1)
        return ()

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        if ctx.time_domain() is TimeDomain.PROCESSING_TIME:
            return
        yield f"{ctx.get_current_key()} {sum(self.visits.values())}"
        self.visits.clear()


def drive(folder: str, backend: str, timing: Timing, settings: dict[str, str], leak: int = 0) -> None:
    """The program of the driver; ends once there is a file `go` in the folder."""
    here = Path(folder)
    if leak:
        # On a slow machine the test takes a while, and must not end for want of descriptors.
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    configuration = Configuration.from_dict(
        {"state.checkpoints.dir": f"file://{here}/checkpoints", **settings}
    )
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(SPLITS)
    env.set_state_backend(HashMapStateBackend() if backend == "heap" else EmbeddedRocksDBStateBackend(True))
    env.enable_checkpointing(1000)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1_000_000, 100))
    numbers = env.from_source(
        Visits(here / "go", timing), WatermarkStrategy.for_monotonous_timestamps(), "visits"
    ).uid("visits")
    distance = timing.distance
    totals = (
        numbers.key_by(lambda n: key_of(n, distance), Types.LONG())
        .process(Totals(timing, leak), Types.STRING())
        .uid("totals")
    )
    totals.sink_to(FileSink.for_row_format(f"{here}/out", Encoder.simple_string_encoder()).build()).uid("out")
    threading.Thread(target=_note_inner_figures, args=(here / "inner.jsonl",), daemon=True).start()
    env.execute(f"soak-{backend}")


def _note_inner_figures(file: Path, every_s: float = 30.0) -> None:
    """What only the driver itself can say: its Python's blocks of memory, and the JVM's heap behind a collection."""
    while True:
        time.sleep(every_s)
        figures: dict[str, float] = {"time": time.time(), "driver.blocks": sys.getallocatedblocks()}
        from tidemark.runtime.session import active_session

        if session := active_session():
            machine: Any = session.sparkContext._jvm
            machine.java.lang.System.gc()
            runtime = machine.java.lang.Runtime.getRuntime()
            figures["jvm.live heap"] = (runtime.totalMemory() - runtime.freeMemory()) / 2**20
        with file.open("a") as stream:
            stream.write(json.dumps(figures) + "\n")


def verified(out: Path, distance: int) -> int:
    """How many records the published totals stand for, once the job has ended.

    Raises:
        ValueError: A total is missing, there twice, or not what the source gave.
    """
    totals: Counter[int] = Counter()
    for file in out.rglob("part-*"):
        for line in file.read_text().splitlines():
            key, total = map(int, line.split())
            if key in totals:
                raise ValueError(f"the total of key {key} came twice")
            totals[key] = total
    expected: Counter[int] = Counter()
    for split in range(SPLITS):
        # The newest key of a split had its first visit in the last place of its last block.
        newest = max(key // SPLITS for key in totals if key % SPLITS == split)
        for n in range((newest + 1) * VISITS):
            expected[key_of(n * SPLITS + split, distance)] += 1
    if totals != expected:
        wrong = [key for key in expected.keys() | totals.keys() if totals[key] != expected[key]]
        raise ValueError(f"{len(wrong)} totals are not what the source gave, such as of key {wrong[0]}")
    return expected.total()
