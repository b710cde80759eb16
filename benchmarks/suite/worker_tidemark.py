"""Worker of tidemark: every case of the suite, each on the Spark session that the library itself would create.

A bounded case is one epoch over a DataFrame (`epoch_rows` 0); an endless one runs as many epochs of
`epoch_rows` as it takes for `records` rows and is then drained. A small run of the same job warms up first.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import jobs
from jobs import RunningJob, attach, collect, endless_rows, environment
from measure import EpochLog, epoch_log, tuned_session

from suite import tidemark_cases, tidemark_kafka
from suite.work import Rows, is_correct
from suite.worker import Case, answer

warnings.filterwarnings("ignore", category=FutureWarning)

FEATURES: dict[str, dict[str, Any]] = {"pair-ttl": {"ttl": True}, "pair-checkpoint": {"checkpoint_ms": 1_000}}
"""Cases that measure what a feature costs, and how the feature is switched on."""


def measure(case: Case) -> dict[str, Any]:
    cloudpickle.register_pickle_by_value(jobs)
    cloudpickle.register_pickle_by_value(tidemark_cases)
    cloudpickle.register_pickle_by_value(tidemark_kafka)
    folder = Path(tempfile.mkdtemp(prefix="bench-tidemark-"))
    started = time.perf_counter()
    spark = tuned_session("tidemark bench", case.options.get("cores", max(case.slots, 2)))
    session_s = time.perf_counter() - started
    try:
        with epoch_log() as log:
            special = tidemark_cases.SPECIAL.get(case.state.split("-")[0])
            if case.state in FEATURES:
                result = run_pairs(case, spark, log, folder)
            elif special is not None:
                result = special(case, spark, log, folder)
            elif case.epoch_rows or case.state in ("window", "broadcast"):
                result = run_endless(case, spark, log, folder)
            else:
                run_bounded(case, spark, log, folder, max(case.records // 10, 1000))
                result = run_bounded(case, spark, log, folder)
        result["startup_s"] = result.get("startup_s", 0.0) + session_s
        return result
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


def run_pairs(case: Case, spark: Any, log: EpochLog, folder: Path) -> dict[str, Any]:
    """The running sum with a feature and without it, in turns: what the feature costs, whatever the machine does.

    The first round warms up. Every other round begins with the feature.
    """
    plain = replace(case, state="value")
    pair = [plain, replace(plain, **FEATURES[case.state])]
    run = run_endless if case.epoch_rows else run_bounded
    rates: list[list[float]] = [[], []]
    correct, startup, checkpoints = True, 0.0, []
    for turn in range(case.options["rounds"] + 1):
        for index in (0, 1) if turn % 2 else (1, 0):
            place = folder / f"{turn}-{index}"
            result = run(pair[index], spark, log, place)
            shutil.rmtree(place, ignore_errors=True)
            correct = correct and result["correct"]
            startup = startup or result["startup_s"]
            if turn:
                rates[index].append(result["rate"])
            if pair[index].checkpoint_ms:
                checkpoints.append(result["checkpoints"])
    ratios = [rate / without for without, rate in zip(*rates, strict=True)]
    return {
        "ratio": statistics.median(ratios),
        "ratio_low": min(ratios),
        "ratio_high": max(ratios),
        "rate_without": statistics.median(rates[0]),
        "rate_with": statistics.median(rates[1]),
        "startup_s": startup,
        "correct": correct and min(checkpoints, default=1) > 0,
        **({"fewest_checkpoints": min(checkpoints)} if checkpoints else {}),
    }


def run_bounded(
    case: Case, spark: Any, log: EpochLog, folder: Path, records: int | None = None
) -> dict[str, Any]:
    """All rows, or another number of them, in one epoch of a job that ends by itself."""
    records = records or case.records
    rows = Rows(records, case.keys, case.kind)
    env = environment(case.backend, case.slots, folder / "checkpoints", case.checkpoint_ms)
    frame = spark.range(0, records, 1, case.slots).selectExpr(*rows.columns())
    found = collect(attach(env, frame, case.state, rows, case.ttl))
    job = str(env.execute("bench").get_job_id())
    busy = [epoch for epoch in log.of(job) if epoch.records]
    return {
        "rate": log.steady_rate(job),
        "steady_s": sum(epoch.seconds for epoch in busy),
        "startup_s": log.attempts_of(job)[0].seconds,
        "correct": is_correct(case.state, rows, found),
    }


def run_endless(case: Case, spark: Any, log: EpochLog, folder: Path) -> dict[str, Any]:
    """Epochs of some size, one after the other; the first fifth warms up."""
    epoch_rows = case.epoch_rows or max(case.records // 20, 1000)
    count = -(-case.records // epoch_rows)
    warm = max(2, count // 5)
    rows = Rows(case.records, case.keys, case.kind)
    env = environment(case.backend, case.slots, folder / "checkpoints", case.checkpoint_ms)
    found = collect(
        attach(env, endless_rows(spark, rows, epoch_rows, case.slots), case.state, rows, case.ttl)
    )
    job = RunningJob(log, env, "bench")
    job.wait_for_epochs(warm + count + 1)
    result = {
        "rate": job.rate_between(warm, warm + count),
        "steady_s": job.busy_epochs[warm + count].ended - job.busy_epochs[warm].ended,
        "startup_s": log.attempts_of(job.id)[0].seconds,
        "epoch_ms": 1000 * sorted(log.intervals(job.id)[warm:])[count // 2],
        "checkpoints": len(job.checkpoints()),
    }
    job.stop(folder / "savepoints", drain=True)
    done = Rows(job.records, case.keys, case.kind, built_for=case.records)
    result["correct"] = is_correct(case.state, done, found)
    return result


if __name__ == "__main__":
    answer(measure)
