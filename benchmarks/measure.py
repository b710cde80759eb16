"""What the benchmarks share: how epochs are timed, how figures are summed up and printed.

Nothing here knows a workload. Times are wall-clock; a figure is the median over repetitions, its spread the
smallest and the largest of them.
"""

from __future__ import annotations

import os
import statistics
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Epoch:
    """One epoch as the job's own loop saw it."""

    job_id: str
    records: int
    started: float
    ended: float
    cpu: dict[str, float] = field(default_factory=dict)
    """Kind of process -> CPU seconds it used meanwhile; empty unless the log was asked for it."""

    @property
    def seconds(self) -> float:
        return self.ended - self.started


@dataclass(frozen=True, slots=True)
class Attempt:
    """The start of an attempt: slots launched or reset, state restored, sources rewound."""

    job_id: str
    started: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.started


@dataclass(slots=True)
class EpochLog:
    """The epochs and attempts of all jobs of this process, in the order in which they ended."""

    epochs: list[Epoch] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    pauses: list[tuple[str, float]] = field(default_factory=list)
    """Job and seconds of each barrier at which a checkpoint began: no epoch runs meanwhile."""

    def pauses_of(self, job_id: str) -> list[float]:
        return [seconds for job, seconds in self.pauses if job == job_id]

    def attempts_of(self, job_id: str) -> list[Attempt]:
        return [attempt for attempt in self.attempts if attempt.job_id == job_id]

    def of(self, job_id: str) -> list[Epoch]:
        return [epoch for epoch in self.epochs if epoch.job_id == job_id]

    def steady_rate(self, job_id: str) -> float:
        """Records per second while epochs with records ran: no start, no end, no idle time."""
        busy = [epoch for epoch in self.of(job_id) if epoch.records]
        return sum(epoch.records for epoch in busy) / sum(epoch.seconds for epoch in busy)

    def intervals(self, job_id: str) -> list[float]:
        """Seconds from the end of an epoch with records to the end of the next one."""
        ends = [epoch.ended for epoch in self.of(job_id) if epoch.records]
        return [after - before for before, after in pairwise(ends)]


_SESSION = "TIDEMARK_BENCHMARK"
"""Variable that all processes of a benchmark's session inherit, those that lose their parents, too."""


def cpu_seconds() -> dict[str, float]:
    """CPU seconds so far of the processes of this session: slots, Spark's JVM, its Python workers, the driver."""
    seconds = dict.fromkeys(("slots", "JVM", "workers", "driver"), 0.0)
    for kind, used in _cpu_by_process().values():
        seconds[kind] += used
    return seconds


def _cpu_by_process() -> dict[int, tuple[str, float]]:
    """Process id -> kind and CPU seconds so far, of the processes of this session."""
    import psutil

    found = {}
    for process in psutil.process_iter(["cmdline", "cpu_times", "environ"]):
        if (process.info["environ"] or {}).get(_SESSION) != str(os.getpid()) and process.pid != os.getpid():
            continue
        command, times = " ".join(process.info["cmdline"] or ()), process.info["cpu_times"]
        if "tidemark.slot.server" in command:
            kind = "slots"
        elif "pyspark.daemon" in command:
            kind = "workers"
        elif "org.apache.spark" in command:
            kind = "JVM"
        elif process.pid == os.getpid():
            kind = "driver"
        else:
            continue
        found[process.pid] = kind, times.user + times.system
    return found


class CpuMeter:
    """CPU seconds that the processes of this session use in a block, those included that end meanwhile.

    Processes are looked at several times a second: what one does behind the last look is not seen.
    """

    INTERVAL_S = 0.3

    def __init__(self) -> None:
        self._before: dict[int, tuple[str, float]] = {}
        self._last: dict[int, tuple[str, float]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._before = _cpu_by_process()
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._over.set()
        self._thread.join()
        self._last.update(_cpu_by_process())

    def _look(self) -> None:
        while not self._over.wait(self.INTERVAL_S):
            self._last.update(_cpu_by_process())

    @property
    def seconds(self) -> float:
        """Of all of them, once the block has ended."""
        return sum(used - self._before.get(pid, ("", 0.0))[1] for pid, (_kind, used) in self._last.items())


@contextmanager
def epoch_log(cpu: bool = False) -> Iterator[EpochLog]:
    """Record every epoch, every start of an attempt and every barrier inside the block.

    Args:
        cpu: Also record the CPU time of every epoch by kind of process.
    """
    from tidemark.runtime.execution import JobExecution

    log = EpochLog()
    original, original_start = JobExecution.run_epoch, JobExecution.start_attempt
    original_barrier = JobExecution.barrier

    def timed(execution: JobExecution, work: Any) -> None:
        before = execution.progress.records
        used = cpu_seconds() if cpu else {}
        started = time.perf_counter()
        original(execution, work)
        ended = time.perf_counter()
        spent = {kind: seconds - used[kind] for kind, seconds in cpu_seconds().items()} if cpu else {}
        log.epochs.append(Epoch(execution.job_id, execution.progress.records - before, started, ended, spent))

    def timed_start(execution: JobExecution) -> None:
        started = time.perf_counter()
        original_start(execution)
        log.attempts.append(Attempt(execution.job_id, started, time.perf_counter()))

    def timed_barrier(execution: JobExecution) -> None:
        before = execution.coordinator.statistics.triggered
        started = time.perf_counter()
        original_barrier(execution)
        if execution.coordinator.statistics.triggered > before:
            log.pauses.append((execution.job_id, time.perf_counter() - started))

    JobExecution.barrier = timed_barrier  # type: ignore[method-assign]
    JobExecution.run_epoch = timed  # type: ignore[method-assign]
    JobExecution.start_attempt = timed_start  # type: ignore[method-assign]
    try:
        yield log
    finally:
        JobExecution.barrier = original_barrier  # type: ignore[method-assign]
        JobExecution.run_epoch = original  # type: ignore[method-assign]
        JobExecution.start_attempt = original_start  # type: ignore[method-assign]


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def percentile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def spread(values: Iterable[float], unit: float = 1.0, digits: int = 0) -> str:
    """`min-max`, in units."""
    ordered = sorted(values)
    return f"{ordered[0] / unit:,.{digits}f}-{ordered[-1] / unit:,.{digits}f}"


class Table:
    """Rows of a result, printed as they come; remembers whether every target was met."""

    def __init__(self, width: int = 58) -> None:
        self._width = width
        self.missed: list[str] = []

    def title(self, text: str) -> None:
        print(f"\n{text}", flush=True)

    def row(self, what: str, figure: str, note: str = "", met: bool | None = None) -> None:
        mark = "" if met is None else ("ok" if met else "MISSED")
        if met is False:
            self.missed.append(what)
        print(f"  {what:<{self._width}} {figure:>20}  {note:<30} {mark}".rstrip(), flush=True)

    def exit(self) -> None:
        """End the process: 1 if a target was missed."""
        sys.exit(1 if self.missed else 0)


def progress(text: str) -> None:
    """A line on standard error: what is going on now."""
    print(f"  .. {text}", file=sys.stderr, flush=True)


def tuned_session(name: str, cores: int = 2) -> Any:
    """The Spark session that all parts of a benchmark share: the one tidemark itself would create."""
    from tidemark.runtime.session import find_or_create_session

    os.environ[_SESSION] = str(os.getpid())
    settings = {
        "spark.master": f"local[{cores}]",
        "spark.app.name": name,
        "spark.driver.memory": "3g",
        "spark.sql.shuffle.partitions": str(cores),
    }
    return find_or_create_session(settings)[0]
