"""How long a job of a million keys stands still when one of its slots dies, or freezes.

`make bench-recovery`. A job on Spark with 2 slots over a million keys, a checkpoint every two seconds, local recovery:
- one slot is killed with SIGKILL once every key is part of a checkpoint: time until the next epoch is done, and what of
  it was noticing the loss and starting the attempt (launching a slot, restoring both, rewinding the source). Without
  and with a spare slot (`slotmanager.redundant-taskmanager-num`);
- one slot is stopped with SIGSTOP: time until it is given up, beside its `heartbeat.timeout`.
Then PyFlink behind a failure of its function, in the same session (`suite/worker_flink.py`): its processes live on.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import tempfile
import time
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import cloudpickle
import jobs
import psutil
from jobs import RunningJob, attach, discard, endless_rows, environment
from measure import EpochLog, Table, epoch_log, median, progress, spread, tuned_session
from suite.peers import run_case
from suite.work import Rows
from suite.worker import Case

from tidemark import RestartStrategies

EPOCH_ROWS = 100_000
TARGET_S = 3.0
HEARTBEAT_S = 3.0
PEER_S = 900.0
SYSTEMS = ("tidemark", "pyflink")


def start(spark: Any, log: EpochLog, folder: Path, backend: str, rows: Rows, spares: int = 1) -> RunningJob:
    env = environment(
        backend,
        2,
        folder,
        2_000,
        state__backend__local_recovery="true",
        slotmanager__redundant_taskmanager_num=str(spares),
        heartbeat__interval="500 ms",
        heartbeat__timeout=f"{HEARTBEAT_S:.0f} s",
    )
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1000, 0))
    attach(env, endless_rows(spark, rows, EPOCH_ROWS), "value", rows).add_sink(discard()).uid("sink")
    return RunningJob(log, env, f"recovery-{backend}")


def covered(job: RunningJob, records: int) -> None:
    """Wait until a checkpoint has completed that began behind so many records."""
    job.wait("every key exists", lambda: job.records >= records)
    known = job.checkpoints()[0].checkpoint_id if job.checkpoints() else 0
    job.wait(
        "a checkpoint", lambda: bool(job.checkpoints()) and job.checkpoints()[0].checkpoint_id > known + 1
    )


def rested(job: RunningJob) -> None:
    """Wait until no spare slot is still starting: they are there for deaths that are further apart."""
    spares = [psutil.Process(pid) for pid in job.client.runner.execution.engine.spare_pids()]
    before: list[float] = []
    while before != (before := [sum(spare.cpu_times()[:2]) for spare in spares]):
        time.sleep(1.0)


def recovery(job: RunningJob, sent: int) -> tuple[float, float, float]:
    """Seconds until the loss was noticed, of starting the attempt, and until the first epoch behind it was done."""
    runner = job.client.runner
    failures, attempts = len(runner.attempt_failures), len(job.log.attempts)
    began = time.perf_counter()
    os.kill(runner.execution.engine.slot_pids()[0], sent)
    job.wait("the loss", lambda: len(runner.attempt_failures) > failures, 0.002)
    noticed = time.perf_counter() - began
    job.wait("the attempt", lambda: len(job.log.attempts) > attempts, 0.002)
    attempt = job.log.attempts[-1]
    job.wait("an epoch", lambda: job.busy_epochs[-1].started > attempt.ended, 0.002)
    epoch = next(epoch for epoch in job.busy_epochs if epoch.started > attempt.ended)
    return noticed, attempt.seconds, epoch.ended - began


def pyflink(table: Table, backend: str, keys: int) -> None:
    """What PyFlink's thread mode takes, or why there is no figure."""
    table.title(f"PyFlink, thread mode, {backend}, a function fails")
    found = run_case(
        Case("flink-thread", "recovery", keys=keys, backend=backend, checkpoint_ms=2_000), PEER_S
    )
    if "error" in found:
        table.row(f"no figure: {found['error']}", "")
    else:
        table.row("every subtask has a record again", f"{found['first_s']:.2f} s")
        table.row("next 100,000 records done", f"{found['recovery_s']:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--backends", nargs="+", default=["heap", "rocksdb"])
    parser.add_argument("--spares", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    # Slots do not have this module.
    cloudpickle.register_pickle_by_value(jobs)
    rows = Rows(records=arguments.keys * 100, keys=arguments.keys)
    spark = tuned_session("recovery")
    table = Table()
    folder = Path(tempfile.mkdtemp(prefix="tidemark-bench-"))
    try:
        with epoch_log() as log:
            ours = product(arguments.backends, arguments.spares) if "tidemark" in arguments.systems else ()
            for backend, spares in ours:
                progress(f"{backend}: {arguments.keys:,} keys, {spares} spare")
                place = folder / f"{backend}-{spares}"
                place.mkdir()
                job = start(spark, log, place, backend, rows, spares)
                covered(job, arguments.keys)
                found = []
                for _ in range(arguments.repetitions):
                    rested(job)
                    found.append(recovery(job, signal.SIGKILL))
                    covered(job, 0)
                table.title(f"{backend}, {spares} spare, a slot is killed")
                for at, name in enumerate(("noticed", "attempt", "next epoch done")):
                    taken = [times[at] for times in found]
                    met = median(taken) < TARGET_S if name == "next epoch done" else None
                    table.row(name, f"{median(taken):.2f} s", spread(taken, digits=2), met)
                rested(job)
                noticed, _, _ = recovery(job, signal.SIGSTOP)
                table.row(f"frozen slot given up (timeout {HEARTBEAT_S:.0f} s)", f"{noticed:.2f} s")
                job.client.cancel().result(120)
        for backend in arguments.backends if "pyflink" in arguments.systems else ():
            progress(f"PyFlink, {backend}: {arguments.keys:,} keys")
            pyflink(table, backend, arguments.keys)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    table.exit()


if __name__ == "__main__":
    main()
