"""Flink in Java on its mini cluster, compiled and started from here: running (count, sum) per key, and queries in SQL.

Settings, as Flink's documentation advises where throughput counts: buffers leave when they are full
(`execution.buffer-timeout.enabled: false`), no watermarks, tuples of longs with Flink's own serializers, 1 GiB of
managed memory for RocksDB with its options for flash disks and Bloom filters, the parallel garbage collector, 4 GiB of
heap. With object reuse rows, values of state and results are written in place. The JVM lives as long as the object, so
that only the first jobs are compiled while they run. Steady state: net runtime of the job, as Flink tells it, less that
of one over few rows. SQL: on the heap with object reuse; with and without mini-batches of 2 s and 50,000 rows and split
distinct aggregations, as Nexmark's own settings have them; rows are made as the planner's own.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from suite.jvm_program import JvmProgram, done
from suite.peers import ROOT
from suite.work import Rows

__all__ = ["FlinkJava", "FlinkSql"]

HERE = Path(__file__).resolve().parent
FOLDER = ROOT / "flink-java"
FEW = 1_000
JVM = ("-Xmx4g", "-Xms4g", "-XX:+UseParallelGC", "--add-opens=java.base/java.util=ALL-UNNAMED")


def built() -> str:
    """The class path of the programs: jars by their names in `pom.xml`, and their classes, fetched and compiled once.

    Raises:
        PeerMissingError: Maven or the compiler is not there, or failed.
    """
    jars, classes = FOLDER / "jars", FOLDER / "classes"
    sources, pom = sorted((HERE / "src").glob("*.java")), HERE / "pom.xml"
    wanted = "".join([path.read_text() for path in (pom, *sources)])
    stamp = FOLDER / ".built"
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(FOLDER, ignore_errors=True)
        classes.mkdir(parents=True)
        goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
        scope = ["-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
        done(["mvn", "-q", "-B", "-f", str(pom), goal, *scope])
        done(["javac", "-cp", f"{jars}/*", "-d", str(classes), *map(str, sources)])
        services = classes / "META-INF" / "services"
        services.mkdir(parents=True)
        (services / "org.apache.flink.table.factories.Factory").write_text("NexmarkTables")
        stamp.write_text(wanted)
    return f"{jars}/*:{classes}"


class _Flink(JvmProgram):
    """One of the programs."""

    def __init__(self, name: str) -> None:
        """Start it.

        Raises:
            PeerMissingError: Flink cannot be had here.
        """
        path = built()
        super().__init__(lambda scratch: ["java", *JVM, f"-Djava.io.tmpdir={scratch}", "-cp", path, name])


class FlinkJava(_Flink):
    """Running totals."""

    def __init__(self) -> None:
        super().__init__("RunningTotals")
        self._starts: dict[str, int] = {}
        """Milliseconds of the quickest job over few rows, by backend."""

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
        words = (rows.records, rows.keys, backend, str(reuse).lower(), parallelism, self.scratch)
        milliseconds, *found = self.run(*words)
        if tuple(found) != rows.running_totals():
            raise RuntimeError(f"Flink gave {found} instead of {rows.running_totals()}.")
        return milliseconds


class FlinkSql(_Flink):
    """Queries of Nexmark in SQL."""

    def __init__(self) -> None:
        super().__init__("Nexmark")
        self._starts: dict[tuple[str, bool], int] = {}

    def result(self, query: str, events: int, mini_batch: bool) -> tuple[int, int]:
        """Rows that stay of a query over `events` events, and their checksum."""
        _milliseconds, _rows, *found = self.run(events, 2, str(mini_batch).lower(), query)
        return found[0], found[1]

    def seconds(self, query: str, events: int, mini_batch: bool) -> tuple[float, float, tuple[int, int]]:
        """Seconds and CPU seconds of a query without those of one over few events, and what `result` gives."""
        words = 2, str(mini_batch).lower(), query
        case = query, mini_batch
        began = self.cpu_seconds()
        start = self.run(FEW, *words)[0]
        start = self._starts[case] = min(start, self._starts.get(case, start))
        middle = self.cpu_seconds()
        whole, _rows, *found = self.run(events, *words)
        used = self.cpu_seconds() - middle - (middle - began)
        return max(whole - start, 1) / 1000, max(used, 0.001), (found[0], found[1])
