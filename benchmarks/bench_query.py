"""Benchmark of queryable state: reads while a job runs at full speed on two slots. `make bench-query`.

The job counts numbers by key, as fast as it can. A client in a process of its own reads the counts: one key
at a time, a hundred at a time, and a hundred reads per second. What the job loses is measured on the counts
themselves: how fast a sample of them grows, in phases with and without reads, one after the other.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections import deque
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from tidemark.queryablestate import QueryableStateClient
from tidemark.state.descriptors import ValueStateDescriptor
from tidemark.types.typeinfo import Types

KEYS = 10_000
SAMPLE = 1_000
BATCH = 100
IN_FLIGHT = 4
PHASE_S = float(os.environ.get("BENCH_QUERY_PHASE_S", "8"))
ROUNDS = int(os.environ.get("BENCH_QUERY_ROUNDS", "3"))
STEADY_RATE = 100

TARGET_P99_MS = 20.0
TARGET_KEYS_PER_S = 20_000.0
TARGET_LOSS = 0.10


class Reader:
    """The client's side; lives in the reading process."""

    def __init__(self, job_id: str, port: int) -> None:
        self._client = QueryableStateClient("127.0.0.1", port, timeout=30)
        self._job_id = job_id
        self._descriptor = ValueStateDescriptor("count", Types.LONG())

    def one(self, key: int) -> int:
        found = self._client.get_kv_state(self._job_id, "counts", key, Types.LONG(), self._descriptor)
        return int(found.get().value())

    def ask(self, keys: range) -> Any:
        return self._client.get_kv_states(self._job_id, "counts", keys, Types.LONG(), self._descriptor)

    def many(self, keys: range) -> list[int]:
        return [0 if state is None else state.value() for state in self.ask(keys).get()]

    def progress(self) -> tuple[float, float]:
        """When, and how many records the job has processed until then, judged by a sample of the keys."""
        started = time.perf_counter()
        counts = self.many(range(SAMPLE))
        return (started + time.perf_counter()) / 2, sum(counts) * KEYS / SAMPLE


READER: list[Reader] = []


def connect(job_id: str, port: int) -> None:
    READER.append(Reader(job_id, port))


def wait_until_busy() -> None:
    """Until every sampled key has been seen and the warm-up is over."""
    reader = READER[0]
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if min(reader.many(range(SAMPLE))) > 100:
            return
        time.sleep(0.2)
    sys.exit("The job did not get going within two minutes.")


def phase(kind: str, seconds: float) -> tuple[float, list[float]]:
    """Records per second of the job and the latency of each read, while reads of one kind go on."""
    reader = READER[0]
    before, done_before = reader.progress()
    end = before + seconds
    latencies: list[float] = []
    if kind == "none":
        time.sleep(seconds)
    elif kind == "batch":
        latencies = read_batches(reader, end)
    else:
        latencies = read_singles(reader, end, 1 / STEADY_RATE if kind == "steady" else 0.0)
    after, done_after = reader.progress()
    return (done_after - done_before) / (after - before), latencies


def read_singles(reader: Reader, end: float, period: float) -> list[float]:
    latencies = []
    key = 0
    while (started := time.perf_counter()) < end:
        reader.one(key % KEYS)
        latencies.append(time.perf_counter() - started)
        key += 7_919
        if period:
            time.sleep(max(0.0, started + period - time.perf_counter()))
    return latencies


def read_batches(reader: Reader, end: float) -> list[float]:
    """Reads of many keys, a few of them under way at any time: what an asynchronous client is for."""
    latencies = []
    under_way: deque[tuple[float, Any]] = deque()
    key = 0
    while (now := time.perf_counter()) < end:
        at = key % (KEYS - BATCH)
        under_way.append((now, reader.ask(range(at, at + BATCH))))
        key += 7_919
        if len(under_way) == IN_FLIGHT:
            started, future = under_way.popleft()
            future.get()
            latencies.append(time.perf_counter() - started)
    for _started, future in under_way:
        future.get()
    return latencies


def start_job() -> tuple[Any, str]:
    from tidemark import (
        Configuration,
        KeyedProcessFunction,
        NumberSequenceSource,
        StreamExecutionEnvironment,
        WatermarkStrategy,
    )

    class Count(KeyedProcessFunction):
        def open(self, runtime_context: Any) -> None:
            descriptor = ValueStateDescriptor("count", Types.LONG())
            descriptor.set_queryable("counts")
            self.count = runtime_context.get_state(descriptor)

        def process_element(self, value: int, ctx: Any) -> None:
            self.count.update((self.count.value() or 0) + 1)

    configuration = Configuration()
    configuration.set_string("queryable-state.enable", "true")
    configuration.set_string("queryable-state.server.ports", "50100-50199")
    configuration.set_string("queryable-state.proxy.ports", "50200-50299")
    configuration.set_string("spark.master", "local[2]")
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    environment.set_parallelism(2)
    numbers = environment.from_source(
        NumberSequenceSource(0, 10**12), WatermarkStrategy.no_watermarks(), "numbers", Types.LONG()
    )
    numbers.key_by(lambda number: number % KEYS, Types.LONG()).process(Count(), Types.LONG()).print()
    job = environment.execute_async("bench-query")
    return job, str(job.get_job_id())


def proxy_port(job_id: str) -> int:
    from tidemark.errors import JobNotFoundError
    from tidemark.jobs import find_job

    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            port = find_job(job_id).query_port
        except JobNotFoundError:
            port = None
        if port is not None:
            return port
        time.sleep(0.1)
    sys.exit("The job's proxy did not start within two minutes.")


def report(what: str, figure: str, target: str = "", met: bool | None = None) -> None:
    mark = "" if met is None else ("ok" if met else "MISSED")
    print(f"  {what:<52} {figure:>22}  {target:<16} {mark}", flush=True)


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return 1000 * ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def measure(pool: ProcessPoolExecutor) -> bool:
    pool.submit(wait_until_busy).result()
    results: dict[str, list[tuple[float, list[float]]]] = {
        "none": [],
        "steady": [],
        "single": [],
        "batch": [],
    }
    for _ in range(ROUNDS):
        for kind, figures in results.items():
            figures.append(pool.submit(phase, kind, PHASE_S).result())
    speed = {kind: statistics.median([rate for rate, _ in runs]) for kind, runs in results.items()}
    latencies = {kind: [value for _, values in runs for value in values] for kind, runs in results.items()}
    per_second = {kind: len(values) / (PHASE_S * ROUNDS) for kind, values in latencies.items()}

    print(f"Job of {KEYS} keys on 2 slots, {ROUNDS} rounds of {PHASE_S:g} s each\n")
    report("job without reads", f"{speed['none']:,.0f} records/s")
    steady_p99 = percentile(latencies["steady"], 0.99)
    single_p99 = percentile(latencies["single"], 0.99)
    verdicts = []
    for kind, p99, what in (
        ("steady", steady_p99, f"{STEADY_RATE} single reads/s"),
        ("single", single_p99, "single reads, one after the other"),
    ):
        met = p99 <= TARGET_P99_MS
        verdicts.append(met)
        figure = f"p50 {percentile(latencies[kind], 0.5):.2f}  p99 {p99:.2f} ms"
        report(what, figure, f"p99 <= {TARGET_P99_MS:g} ms", met)
    report("  reads per second", f"{per_second['single']:,.0f} /s")
    keys_per_second = per_second["batch"] * BATCH
    verdicts.append(keys_per_second >= TARGET_KEYS_PER_S)
    figure = (
        f"p50 {percentile(latencies['batch'], 0.5):.2f}  p99 {percentile(latencies['batch'], 0.99):.2f} ms"
    )
    report(f"reads of {BATCH} keys, {IN_FLIGHT} under way at a time", figure)
    report("  keys per second", f"{keys_per_second:,.0f} /s", f">= {TARGET_KEYS_PER_S:,.0f}/s", verdicts[-1])
    # Neighbouring phases are compared, so that a machine that slows down does not count as a loss.
    losses = [
        1 - busy / free for (free, _), (busy, _) in zip(results["none"], results["steady"], strict=True)
    ]
    loss = statistics.median(losses)
    verdicts.append(loss <= TARGET_LOSS)
    report(
        f"job loses at {STEADY_RATE} reads/s",
        f"{100 * loss:.1f} %",
        f"<= {100 * TARGET_LOSS:g} %",
        verdicts[-1],
    )
    for kind, what in (
        ("single", "single reads at full speed"),
        ("batch", f"reads of {BATCH} at full speed"),
    ):
        report(f"job loses under {what}", f"{100 * (1 - speed[kind] / speed['none']):.1f} %")
    return all(verdicts)


def main() -> None:
    job, job_id = start_job()
    try:
        port = proxy_port(job_id)
        with ProcessPoolExecutor(
            1, mp_context=get_context("spawn"), initializer=connect, initargs=(job_id, port)
        ) as pool:
            met = measure(pool)
    finally:
        job.cancel().result(60)
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
