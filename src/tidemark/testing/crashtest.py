"""Runs random schedules with crashes and compares them with runs that never crashed. Needs no JVM.

::

    python -m tidemark.testing.crashtest --seeds 1000 [--start 0] [--backend heap|incremental-heap|rocksdb|all]
        [--mode epochs|continuous|all] [--seconds 60]

What is compared: the output of every branch and key in order (state is part of it: at the end every key
empties its state into the output), what operator state held, what the sink committed, and, against a model
that shares no code with the library, counts and window contents. A seed that fails is printed with the
command that runs it again. With `all` a seed is a schedule on each backend and in each mode, all of them compared
with the same run without crashes.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark.api.state_backends import EmbeddedRocksDBStateBackend, HashMapStateBackend
from tidemark.config import Configuration, Options
from tidemark.testing.crash_job import LATENESS, WINDOW, build_crash_job, close_journal, open_journal
from tidemark.testing.scripts import AT, WATERMARK, run_script
from tidemark.testing.strategies import Schedule, random_schedule

__all__ = ["Mismatch", "Outcome", "check_seed", "main", "mismatches", "model_of", "run_schedule"]

BACKENDS = ("heap", "incremental-heap", "rocksdb")
MODES = ("epochs", "continuous")
ALL = "all"

_runs = itertools.count()


class Mismatch(AssertionError):
    """A schedule with crashes did not give what the same schedule gives without."""


@dataclass(slots=True)
class Outcome:
    """Everything a run can be judged by."""

    branches: dict[tuple[str, str], list[Any]]
    """(branch, key) -> what came out, in order."""
    held: tuple[list[int], list[int]]
    committed: list[Any]

    def difference(self, expected: Outcome) -> str | None:
        """The first thing that is not as expected, or None."""
        for branch in sorted(set(self.branches) | set(expected.branches)):
            got, wanted = self.branches.get(branch, []), expected.branches.get(branch, [])
            if got != wanted:
                at = next((i for i, (a, b) in enumerate(zip(got, wanted, strict=False)) if a != b), None)
                at = min(len(got), len(wanted)) if at is None else at
                return (
                    f"branch {branch}, position {at}: got {got[at : at + 3]}, expected {wanted[at : at + 3]}"
                )
        if self.held != expected.held:
            return f"operator state: got {self.held}, expected {expected.held}"
        if self.committed != expected.committed:
            return f"committed by the sink: got {self.committed}, expected {expected.committed}"
        return None


def run_schedule(schedule: Schedule, backend: str = "heap", mode: str = "epochs") -> Outcome:
    """Play a schedule on one backend in one execution mode."""
    run = f"run-{next(_runs)}"
    journal = open_journal(run)
    try:
        elements = run_script(
            build_crash_job(run, schedule.parts),
            schedule.events,
            parallelism=schedule.parallelism,
            configuration=Configuration.from_dict(
                {
                    Options.EXECUTION_MODE.key: mode,
                    Options.INCREMENTAL.key: str(backend == "incremental-heap").lower(),
                    # So few that chains also end between two crashes.
                    Options.HEAP_MAX_CHANGES.key: "2",
                }
            ),
            state_backend=_backend(backend),
            seed=schedule.seed,
        )
    finally:
        close_journal(run)
    branches: dict[tuple[str, str], list[Any]] = {}
    for branch, key, *rest in elements:
        branches.setdefault((branch, key), []).append(tuple(rest))
    return Outcome(branches, journal.last_held(), journal.output())


def _backend(name: str) -> Any:
    return EmbeddedRocksDBStateBackend(True) if name == "rocksdb" else HashMapStateBackend()


def check_seed(seed: int, backend: str = "heap", mode: str = "epochs") -> None:
    """Run one seed against its oracle and the model.

    Raises:
        Mismatch: With the seed, the schedule and the command that runs it again.
    """
    for problem in mismatches(seed, [(backend, mode)]):
        raise problem


def mismatches(seed: int, places: Sequence[tuple[str, str]]) -> Iterator[Mismatch]:
    """What went wrong with the schedule of a seed on some backends in some modes, against one oracle and the model."""
    schedule = random_schedule(seed)
    expected = run_schedule(schedule.peaceful())
    if problem := _against_model(schedule, expected):
        yield Mismatch(_story(schedule, *places[0], problem))
        return
    for backend, mode in places:
        try:
            problem = run_schedule(schedule, backend, mode).difference(expected)
        except Exception as exc:
            mismatch = Mismatch(_story(schedule, backend, mode, f"{type(exc).__name__}: {exc}"))
            mismatch.__cause__ = exc
            yield mismatch
        else:
            if problem is not None:
                yield Mismatch(_story(schedule, backend, mode, problem))


def _story(schedule: Schedule, backend: str, mode: str, problem: str) -> str:
    return (
        f"seed {schedule.seed} on {backend}, {mode}: {problem}\n"
        f"  parts {schedule.parts}, parallelism {schedule.parallelism}, events {list(schedule.events)}\n"
        f"  again: python -m tidemark.testing.crashtest --start {schedule.seed} --seeds 1 --backend {backend} "
        f"--mode {mode}"
    )


def model_of(schedule: Schedule) -> dict[tuple[str, str], list[Any]]:
    """Counts and windows of a schedule, computed from its events alone.

    Returns:
        ("numbers", key) -> numbers of the key in order; ("windows", key) -> (start, numbers) of every firing;
        ("late", key) -> numbers too late for their window.
    """
    found: dict[tuple[str, str], list[Any]] = {}
    windows: dict[tuple[str, int], list[int]] = {}
    watermark = -(2**63)
    marks = [e for e in schedule.events if isinstance(e, (AT, WATERMARK))]
    for event in [*marks, WATERMARK(2**63 - 1)]:
        if isinstance(event, WATERMARK):
            fired = [k for k in windows if watermark < k[1] + WINDOW - 1 <= event.timestamp]
            for key, start in sorted(fired, key=lambda pair: pair[1]):
                found.setdefault(("windows", key), []).append((start, list(windows[key, start])))
            watermark = max(watermark, event.timestamp)
            windows = {k: v for k, v in windows.items() if k[1] + WINDOW - 1 + LATENESS > watermark}
        elif event.value[0] == "data":
            _, key, number = event.value
            start = event.timestamp // WINDOW * WINDOW
            found.setdefault(("numbers", key), []).append(number)
            if start + WINDOW - 1 + LATENESS <= watermark:
                found.setdefault(("late", key), []).append(number)
                continue
            windows.setdefault((key, start), []).append(number)
            if start + WINDOW - 1 <= watermark:
                found.setdefault(("windows", key), []).append((start, list(windows[key, start])))
    return found


def _against_model(schedule: Schedule, outcome: Outcome) -> str | None:
    model = model_of(schedule)
    for key in sorted({key for _, key in model}):
        checks = {}
        numbers = model[("numbers", key)]
        ledger = outcome.branches.get(("ledger", key), [])
        if "ledger" in schedule.parts:
            checks["numbers"] = ([row[1] for row in ledger if row[0] == "seen"], numbers)
            checks["total"] = ([row[4] for row in ledger if row[0] == "final"], [sum(numbers)])
        if "window" in schedule.parts:
            fired = [(start, content) for start, content, _count in outcome.branches.get(("window", key), [])]
            checks["windows"] = (fired, model.get(("windows", key), []))
            late = [row[0] for row in outcome.branches.get(("late", key), [])]
            checks["late"] = (late, model.get(("late", key), []))
        for name, (got, wanted) in checks.items():
            if got != wanted:
                return f"without crashes, {name} of key {key}: got {got}, the model says {wanted}"
    everything = sorted(
        number for (kind, _), numbers in model.items() if kind == "numbers" for number in numbers
    )
    if "operator" in schedule.parts and outcome.held != (everything, everything):
        return f"without crashes, operator state: got {outcome.held}, the model says {everything} twice"
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run seeds until there are enough or the time is over; exit code 1 if one failed."""
    parser = argparse.ArgumentParser(
        prog="python -m tidemark.testing.crashtest", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--seeds", type=int, default=100, help="how many (default: %(default)s)")
    parser.add_argument("--start", type=int, default=0, help="the first one (default: %(default)s)")
    parser.add_argument("--backend", choices=(*BACKENDS, ALL), default="heap")
    parser.add_argument("--mode", choices=(*MODES, ALL), default="epochs")
    parser.add_argument("--seconds", type=float, default=None, help="stop after this time")
    options = parser.parse_args(arguments)
    backends = BACKENDS if options.backend == ALL else (options.backend,)
    modes = MODES if options.mode == ALL else (options.mode,)
    places = [(backend, mode) for backend in backends for mode in modes]
    began = time.monotonic()
    failed = done = 0
    for seed in range(options.start, options.start + options.seeds):
        for problem in mismatches(seed, places):
            failed += 1
            print(problem, file=sys.stderr, flush=True)
        done += 1
        if options.seconds is not None and time.monotonic() - began >= options.seconds:
            break
    took = time.monotonic() - began
    print(
        f"{done} seeds from {options.start} on {options.backend} ({options.mode}), {done * len(places)} schedules "
        f"in {took:.1f} s, {failed} failed"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
