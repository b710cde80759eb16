"""What the web server costs: `/jobs/:id` and events of a large job, and the throughput of a job that is looked at.

    python benchmarks/bench_web.py

The large job has 50 vertices, 200 slots and 10,000 checkpoints in its history; it is made of facts, not run. The other
one runs in the local executor as fast as it can, in turns with and without somebody who looks every second.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Callable

import httpx
import psutil

from tidemark import (
    Configuration,
    KeyedProcessFunction,
    SinkFunction,
    SourceFunction,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)
from tidemark.runtime.archive import Archive, ArchivedJobView
from tidemark.runtime.control import live_jobs
from tidemark.runtime.rest import announcing
from tidemark.runtime.web_jobs import DriverJobs
from tidemark.web.facts import (
    CheckpointFacts,
    CheckpointHistory,
    Input,
    JobFacts,
    Shares,
    SlotFacts,
    SubtaskFacts,
    Times,
    VertexFacts,
    vertex_id,
)
from tidemark.web.server import ServerSettings, WebServer

VERTICES, SLOTS, CHECKPOINTS = 50, 200, 10_000
ROUNDS, TURN_S = 4, 6.0
JOB = "a" * 32


def subtask(index: int, records: int, now: int) -> SubtaskFacts:
    times, shares = Times(index, index, index), Shares(0.5, 0.25, 0.25)
    return SubtaskFacts(index, records, records, 1.5, 1.5, times, shares, (3, 4), now, "host")


def large_job() -> ArchivedJobView:
    now = round(time.time() * 1000)
    vertices = tuple(
        VertexFacts(
            vertex_id(f"v{n}"), f"v{n}", f"Operator {n}", "Operator", SLOTS, 1024, True,
            inputs=(Input(vertex_id(f"v{n - 1}"), "HASH"),) if n else (),
            subtasks=tuple(subtask(i, n * i, now) for i in range(SLOTS)),
        )
        for n in range(VERTICES)
    )  # fmt: skip
    slots = tuple(SlotFacts(i, "host", i, 1 << 27, 1.0, 5) for i in range(SLOTS))
    records = tuple(
        CheckpointFacts(n, "completed", False, now - n, SLOTS, SLOTS, now, n * 1000, n, directory=f"/c/{n}")
        for n in range(CHECKPOINTS, 0, -1)
    )
    facts = JobFacts(JOB, "large", "RUNNING", now - 60_000, now=now, vertices=vertices, slots=slots)
    return ArchivedJobView(Archive(facts, CheckpointHistory(CHECKPOINTS, CHECKPOINTS, records=records)))


def answers() -> None:
    jobs = DriverJobs({})
    jobs.end(JOB, large_job())
    server = WebServer(jobs, ServerSettings(port=0))
    paths = ["", "/checkpoints", "/checkpoints?offset=9000&limit=100", "/plan", "/exceptions"]
    try:
        with httpx.Client(base_url=server.address, timeout=60) as client:
            for path in paths:
                took = sorted(timed(lambda path=path: client.get(f"/v1/jobs/{JOB}{path}")) for _ in range(30))
                print(f"GET /jobs/:id{path:<36} p50 {took[15]:6.1f} ms   max {took[-1]:6.1f} ms")
            took = sorted(timed(lambda: client.get("/metrics")) for _ in range(5))
            print(f"GET /metrics{'':<37} p50 {took[2]:6.1f} ms   max {took[-1]:6.1f} ms")
    finally:
        server.close()


def timed(call: Callable[[], httpx.Response]) -> float:
    started = time.perf_counter()
    call().raise_for_status()
    return (time.perf_counter() - started) * 1000


class Flood(SourceFunction):
    def run(self, ctx):  # type: ignore[no-untyped-def]
        self.running, number = True, 0
        while self.running:
            with ctx.get_checkpoint_lock():
                for _ in range(1000):
                    ctx.collect(number % 1000)
                    number += 1

    def cancel(self) -> None:
        self.running = False


class Count(KeyedProcessFunction):
    def open(self, runtime_context):  # type: ignore[no-untyped-def]
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):  # type: ignore[no-untyped-def]
        self.count.update((self.count.value() or 0) + 1)
        yield value


class Nowhere(SinkFunction):
    def invoke(self, value, context):  # type: ignore[no-untyped-def]
        pass


def throughput() -> None:
    given = {
        "execution.target": "local",
        "execution.checkpointing.interval": "1 s",
        "state.checkpoints.dir": tempfile.mkdtemp(),
        "rest.port": "0",
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(given))
    env.set_parallelism(2)
    numbers = env.add_source(Flood(), type_info=Types.LONG())
    counted = numbers.key_by(lambda value: value, key_type=Types.LONG()).process(Count(), Types.LONG())
    counted.add_sink(Nowhere())
    addresses: list[str] = []
    with announcing(addresses.append):
        job = env.execute_async("flood")
    runner = live_jobs()[0]
    time.sleep(3)
    rates: dict[bool, list[float]] = {True: [], False: []}
    shares: list[float] = []
    for _ in range(ROUNDS):
        for looking in (False, True):
            stop = threading.Event()
            thread = threading.Thread(target=look, args=(addresses[0], runner.execution.job_id, stop))
            if looking:
                thread.start()
            before, started = runner.execution.progress.records, time.perf_counter()
            web_before, all_before = server_cpu_s(), time.process_time()
            time.sleep(TURN_S)
            if looking:
                shares.append((server_cpu_s() - web_before) / (time.process_time() - all_before))
            rates[looking].append(
                (runner.execution.progress.records - before) / (time.perf_counter() - started)
            )
            stop.set()
            if looking:
                thread.join()
    job.cancel()
    job.get_job_execution_result().exception()
    alone, watched = statistics.median(rates[False]), statistics.median(rates[True])
    print(f"records/s alone {alone:,.0f}, looked at {watched:,.0f}: {100 * (1 - watched / alone):.1f} % less")
    print(
        f"of the processor time of the job, looked at, the server's threads had {100 * statistics.median(shares):.1f} %"
    )
    print(
        f"  alone {[round(rate) for rate in rates[False]]}, looked at {[round(rate) for rate in rates[True]]}"
    )


def server_cpu_s() -> float:
    """Processor seconds of the server's threads so far: what looking costs, however busy the machine is otherwise."""
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    of_server = ("tidemark-web", "AnyIO worker")
    return sum(
        one.user_time + one.system_time
        for one in psutil.Process().threads()
        if names.get(one.id, "").startswith(of_server)
    )


def look(address: str, job_id: str, stop: threading.Event) -> None:
    """What a page does: one stream of events."""
    with (
        httpx.Client(base_url=address, timeout=60) as client,
        client.stream("GET", "/v1/events", params={"job": job_id}) as stream,
    ):
        for _line in stream.iter_lines():
            if stop.is_set():
                return


if __name__ == "__main__":
    answers()
    throughput()
