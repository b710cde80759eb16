"""Flink in Java: running (count, sum) per key on its mini cluster, compiled and started from here.

Settings, as Flink's documentation advises where throughput counts: buffers leave when they are full
(`execution.buffer-timeout.enabled: false`), no watermarks, tuples of longs with Flink's own serializers, 1 GiB of
managed memory for RocksDB with its options for flash disks and Bloom filters, the parallel garbage collector, 4 GiB of
heap. With object reuse rows, values of state and results are written in place. The JVM lives as long as the object, so
that only the first jobs are compiled while they run. Steady state: net runtime of the job, as Flink tells it, less that
of one over few rows.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from suite.peers import ROOT, PeerMissingError
from suite.work import Rows

__all__ = ["FlinkJava"]

HERE = Path(__file__).resolve().parent
FOLDER = ROOT / "flink-java"
FEW = 1_000
JVM = ("-Xmx4g", "-Xms4g", "-XX:+UseParallelGC", "--add-opens=java.base/java.util=ALL-UNNAMED")


def built() -> str:
    """The class path of the program: jars by their names in `pom.xml`, and its classes, fetched and compiled once.

    Raises:
        PeerMissingError: Maven or the compiler is not there, or failed.
    """
    jars, classes = FOLDER / "jars", FOLDER / "classes"
    source, pom = HERE / "src" / "RunningTotals.java", HERE / "pom.xml"
    wanted = pom.read_text() + source.read_text()
    stamp = FOLDER / ".built"
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(FOLDER, ignore_errors=True)
        classes.mkdir(parents=True)
        goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
        scope = ["-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
        _done(["mvn", "-q", "-B", "-f", str(pom), goal, *scope])
        _done(["javac", "-cp", f"{jars}/*", "-d", str(classes), str(source)])
        stamp.write_text(wanted)
    return f"{jars}/*:{classes}"


def _done(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as exc:
        raise PeerMissingError(f"{command[0]}: {exc}") from exc
    if done.returncode:
        raise PeerMissingError(f"{command[0]}: {' '.join((done.stdout + done.stderr).split())[-300:]}")


class FlinkJava:
    """A JVM that runs one job after the other."""

    def __init__(self) -> None:
        """Start it.

        Raises:
            PeerMissingError: Flink cannot be had here.
        """
        path = built()
        self._starts: dict[str, int] = {}
        """Milliseconds of the quickest job over few rows, by backend."""
        self._scratch = tempfile.TemporaryDirectory(prefix="bench-flink-java-")
        folder = Path(self._scratch.name)
        self._errors = (folder / "stderr").open("w+")
        self._process = subprocess.Popen(
            ["java", *JVM, f"-Djava.io.tmpdir={folder}", "-cp", path, "RunningTotals"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._answer("READY")

    def rate(self, rows: Rows, backend: str, reuse: bool, parallelism: int = 2) -> float:
        """Records per second of a job over `rows`, whose result is checked.

        Raises:
            RuntimeError: The job failed, or its result is wrong.
        """
        few = Rows(FEW, rows.keys, rows.kind)
        if backend not in self._starts:
            # Loads classes.
            self._starts[backend] = self._milliseconds(few, backend, reuse, parallelism)
        start = self._milliseconds(few, backend, reuse, parallelism)
        start = self._starts[backend] = min(start, self._starts[backend])
        whole = self._milliseconds(rows, backend, reuse, parallelism)
        if whole <= start:
            raise RuntimeError(f"{rows.records} rows took no longer than {FEW}; ask for more rows.")
        return (rows.records - FEW) / (whole - start) * 1000

    def _milliseconds(self, rows: Rows, backend: str, reuse: bool, parallelism: int) -> int:
        assert rows.kind == "random"
        assert self._process.stdin is not None
        words = (rows.records, rows.keys, backend, str(reuse).lower(), parallelism, self._scratch.name)
        print(*words, file=self._process.stdin, flush=True)
        milliseconds, *found = map(int, self._answer("RESULT").split())
        if tuple(found) != rows.running_totals():
            raise RuntimeError(f"Flink gave {found} instead of {rows.running_totals()}.")
        return milliseconds

    def _answer(self, word: str) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(word):
                return line.removeprefix(word)
        self._errors.seek(0)
        raise RuntimeError(f"Flink's JVM ended: {self._errors.read()[-2000:]}")

    def close(self) -> None:
        """End the JVM."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()
        self._scratch.cleanup()
