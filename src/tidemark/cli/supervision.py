"""`run --supervise`: the program in a process of its own, started again when that dies.

What the program itself says about its end is final: it finished, it failed, it was refused. A process that was killed,
or whose Spark was, or that could not reach its storage, or whose job another driver runs, has said nothing final.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tidemark.cli.detached import run_command
from tidemark.cli.exit_codes import ExitCode
from tidemark.cli.program import ProgramSettings

__all__ = ["pause_before", "run_supervised"]

_AGAIN = frozenset({int(ExitCode.SNAPSHOT), int(ExitCode.FENCED), int(ExitCode.SPARK_LOST)})
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
_STEADY_S = 300.0
"""A process that lived this long has been all right: the next pause is short again."""

Told = Callable[[int, float], None]
"""Is told how the process ended and how many seconds later it is started again."""


def run_supervised(program: str, arguments: Sequence[str], settings: ProgramSettings, tell: Told) -> int:
    """Run the program until it has ended for good; returns its exit code."""
    deaths = 0
    with _Signals() as signals:
        while True:
            started = time.monotonic()
            # Not in our process group: Ctrl-C reaches it once, through us.
            command = run_command(program, arguments, settings)
            with subprocess.Popen(command, process_group=0) as process, signals.passed_to(process):
                code = process.wait()
            if signals.seen or (code >= 0 and code not in _AGAIN):
                # A negative code is the signal that killed it; shells say 128 + signal.
                return code if code >= 0 else 128 - code
            deaths = 1 if time.monotonic() - started >= _STEADY_S else deaths + 1
            pause = pause_before(deaths)
            tell(code, pause)
            if signals.wait(pause):
                return 128 + signals.number


def pause_before(restart: int) -> float:
    """Seconds before the n-th restart in a row."""
    return min(_FIRST_PAUSE_S * (1 << min(restart - 1, 16)), _LONGEST_PAUSE_S)


class _Signals:
    """SIGINT and SIGTERM of the supervisor: they are the program's, and end the supervision."""

    def __init__(self) -> None:
        self.number = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def seen(self) -> bool:
        """Whether one came."""
        return self.number != 0

    def __enter__(self) -> _Signals:
        self._before = {n: signal.signal(n, self._take) for n in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def passed_to(self, process: subprocess.Popen[bytes]) -> Iterator[None]:
        """Pass them on inside the block, one that came just before as well."""
        self._process = process
        if self.seen:
            process.send_signal(self.number)
        try:
            yield
        finally:
            self._process = None

    def wait(self, seconds: float) -> bool:
        """Sleep; whether a signal came."""
        deadline = time.monotonic() + seconds
        while not self.seen and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))
        return self.seen

    def _take(self, number: int, _frame: Any) -> None:
        self.number = number
        if self._process is not None:
            self._process.send_signal(number)
