"""Programs of peers that run in a JVM of their own and take one job after the other: a line in, a line out."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import psutil

from suite.peers import PeerMissingError

__all__ = ["JvmProgram", "done"]


def done(command: list[str]) -> None:
    """Run a tool that fetches or compiles.

    Raises:
        PeerMissingError: It is not there, or failed.
    """
    try:
        ended = subprocess.run(command, capture_output=True, text=True)
    except OSError as exc:
        raise PeerMissingError(f"{command[0]}: {exc}") from exc
    if ended.returncode:
        raise PeerMissingError(f"{command[0]}: {' '.join((ended.stdout + ended.stderr).split())[-300:]}")


class JvmProgram:
    """A process that says READY, and then RESULT and numbers for each line that it gets."""

    def __init__(self, command: Callable[[str], list[str]]) -> None:
        """Start it.

        Args:
            command: Gets a directory that lives as long as the process.
        """
        self._directory = tempfile.TemporaryDirectory(prefix="bench-jvm-")
        self.scratch = self._directory.name
        self._errors = (Path(self.scratch) / "stderr").open("w+")
        self._process = subprocess.Popen(
            command(self.scratch),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._answer("READY")

    def run(self, *words: object) -> list[int]:
        """The numbers that a job answers with, milliseconds first.

        Raises:
            RuntimeError: The process ended.
        """
        assert self._process.stdin is not None
        print(*words, file=self._process.stdin, flush=True)
        return [int(word) for word in self._answer("RESULT").split()]

    def cpu_seconds(self) -> float:
        """CPU seconds of the process so far."""
        times = psutil.Process(self._process.pid).cpu_times()
        return float(times.user + times.system)

    def _answer(self, word: str) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(word):
                return line.removeprefix(word)
        self._errors.seek(0)
        raise RuntimeError(f"The peer's JVM ended: {self._errors.read()[-2000:]}")

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()
        self._directory.cleanup()
