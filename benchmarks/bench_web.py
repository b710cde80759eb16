"""What the web server costs: `/jobs/:id` and events of a large job, and the throughput of a job that is looked at.

    python benchmarks/bench_web.py

The large job has 50 vertices, 200 slots and 10,000 checkpoints in its history; it is made of facts, not run. The other
one runs in the local executor as fast as it can, in turns with and without somebody who looks: a process of its own
that follows the events as a page does. Driver, slots and server share one interpreter there: nothing hides the cost.
"""

from __future__ import annotations

import itertools
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import psutil

from tidemark import (
    Configuration,
    KeyedProcessFunction,
    NumberSequenceSource,
    SinkFunction,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
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
TURN_S, MEASURED_S = 2.0, 150.0
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


class Count(KeyedProcessFunction):
    def open(self, runtime_context):  # type: ignore[no-untyped-def]
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):  # type: ignore[no-untyped-def]
        self.count.update((self.count.value() or 0) + 1)
        yield value


class Nowhere(SinkFunction):
    received = 0
    """Of all subtasks; the job itself tells only now and then how far it is."""

    def invoke(self, value, context):  # type: ignore[no-untyped-def]
        Nowhere.received += 1


def throughput() -> None:
    given = {
        "execution.target": "local",
        "execution.checkpointing.interval": "1 s",
        "state.checkpoints.dir": tempfile.mkdtemp(),
        "rest.port": "0",
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(given))
    env.set_parallelism(2)
    # Splits are read by the tasks themselves: no thread of a source beside them that comes and goes in bursts.
    numbers = env.from_source(NumberSequenceSource(0, 10**15), WatermarkStrategy.no_watermarks(), "numbers")
    counted = numbers.key_by(lambda value: value % 1000, key_type=Types.LONG()).process(Count(), Types.LONG())
    counted.add_sink(Nowhere())
    addresses: list[str] = []
    with announcing(addresses.append):
        job = env.execute_async("flood")
    runner = live_jobs()[0]
    time.sleep(3)
    rates: dict[bool, list[float]] = {True: [], False: []}
    shares: list[float] = []
    # Alone, looked at, looked at, alone, ...: what changes slowly on the machine falls on both.
    end = time.monotonic() + MEASURED_S
    for looking in itertools.cycle((False, True, True, False)):
        if time.monotonic() > end and len(rates[True]) == len(rates[False]) > 1:
            break
        if looking:
            with somebody_who_looks(addresses[0], runner.execution.job_id):
                rate, share = turn()
            shares.append(share)
        else:
            rate, _ = turn()
        rates[looking].append(rate)
    job.cancel()
    job.get_job_execution_result().exception()
    costs = [100 * (1 - watched / alone) for alone, watched in zip(rates[False], rates[True], strict=True)]
    for name, figures, unit in (
        ("alone", rates[False], "records/s"),
        ("looked at", rates[True], "records/s"),
        ("less, turn by turn", costs, "%"),
        ("processor time of the server's threads", [100 * share for share in shares], "% of the job's"),
    ):
        low, middle, high = statistics.quantiles(figures, n=4)
        print(f"{name:<40} median {middle:,.2f} {unit}, quartiles {low:,.2f} to {high:,.2f}")
    # The mean of n turns is known to their standard deviation by the root of n; twice that is where it lies.
    error = 2 * statistics.stdev(costs) / len(costs) ** 0.5
    print(f"mean cost {statistics.mean(costs):.2f} % ± {error:.2f} in {len(costs)} turns of {TURN_S:g} s")


def turn() -> tuple[float, float]:
    """Records a second of one turn, and the share of the process's time that the server had."""
    web_before, all_before = server_cpu_s(), time.process_time()
    before, started = Nowhere.received, time.perf_counter()
    time.sleep(TURN_S)
    after, ended = Nowhere.received, time.perf_counter()
    share = (server_cpu_s() - web_before) / (time.process_time() - all_before)
    return (after - before) / (ended - started), share


def server_cpu_s() -> float:
    """Processor seconds of the server's threads so far: what looking costs, however busy the machine is otherwise."""
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    of_server = ("tidemark-web", "AnyIO worker")
    return sum(
        one.user_time + one.system_time
        for one in psutil.Process().threads()
        if names.get(one.id, "").startswith(of_server)
    )


@contextmanager
def somebody_who_looks(address: str, job_id: str) -> Iterator[None]:
    """A process that follows the job's events, from when it has got the first one."""
    with subprocess.Popen([sys.executable, __file__, address, job_id], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield
        process.kill()


def look(address: str, job_id: str) -> None:
    """What a page does: one stream of events, for ever."""
    with (
        httpx.Client(base_url=address, timeout=60) as client,
        client.stream("GET", "/v1/events", params={"job": job_id}) as stream,
    ):
        for number, _line in enumerate(stream.iter_lines()):
            if number == 0:
                print("looking", flush=True)


if __name__ == "__main__":
    if sys.argv[1:]:
        look(*sys.argv[1:])
    else:
        answers()
        throughput()
