"""Whether all tasks of a continuous job can have a core at the same time: those that wait for one may only be slow.

A task that never gets a core keeps all others waiting, for ever. Where there is room for all of them, here or in
executors that are on their way, the machine is merely busy, and waiting helps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__all__ = ["ExecutorLoad", "may_all_start"]


@dataclass(frozen=True, slots=True)
class ExecutorLoad:
    """An executor that has registered."""

    cores: int
    running: int
    """Tasks it runs, of whatever job."""


def may_all_start(
    tasks: int, started: int, executors: Iterable[ExecutorLoad], spark: Mapping[str, str]
) -> bool:
    """Whether there are cores for all tasks, if nobody else takes more of them.

    Args:
        tasks: Of the job.
        started: How many of them have a core; asked for after the executors, or one of them would count as another's.
        executors: All of the application.
        spark: Settings of the application.
    """
    each = int(spark.get("spark.task.cpus", "1"))
    here = [executor for executor in executors if executor.cores]
    room = sum(executor.cores // each for executor in here)
    others = sum(executor.running for executor in here) - started
    if room - others >= tasks:
        return True
    to_come = _expected(spark) - len(here)
    per_executor = max(1, int(spark.get("spark.executor.cores", "1")) // each)
    return to_come > 0 and room - others + to_come * per_executor >= tasks


def _expected(spark: Mapping[str, str]) -> float:
    """How many executors there will be once the cluster has given all that it was asked for."""
    if spark.get("spark.master", "").startswith("local"):
        return 0
    if spark.get("spark.dynamicAllocation.enabled", "false") == "true":
        return float(spark.get("spark.dynamicAllocation.maxExecutors", "inf"))
    return int(spark.get("spark.executor.instances", "0"))
