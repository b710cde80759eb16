"""What the latency case has in common on every system: who sends the events, and what their ages say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from suite.worker import Case

TICKER = Path(__file__).with_name("ticker.py")


class Ticker:
    """The process that sends events, for one reader of its `port`; ends with the context."""

    def __init__(self, case: Case) -> None:
        rate, seconds = case.options.get("rate", 1000), case.options.get("seconds", 20)
        self._arguments = [str(rate), str(seconds), str(case.keys), str(case.options.get("fill", 0))]

    def __enter__(self) -> Ticker:
        command = [sys.executable, str(TICKER), *self._arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.port = int(self._line())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def sent(self) -> int:
        """Wait until the last event was sent; how many there were."""
        return int(self._line())

    def stop(self) -> None:
        """End the stream for its reader, who still gets everything that was sent."""
        self._process.kill()
        self._process.wait()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


def figures_of(ages: list[list[float]], sent: int) -> dict[str, Any]:
    """Percentiles of the ages in milliseconds, noted by one or several subtasks.

    The first half of each subtask's events met a system that was still warming up.
    """
    settled = sorted(age for subtask in ages for age in subtask[len(subtask) // 2 :])
    return {
        "p50_ms": settled[len(settled) // 2],
        "p99_ms": settled[int(len(settled) * 0.99)],
        "correct": sum(map(len, ages)) == sent,
    }


def noted_ages(folder: Path) -> list[list[float]]:
    """Ages that subtasks wrote to their files `latency-*`, one per line."""
    return [[float(line) for line in path.open()] for path in folder.glob("latency-*")]
