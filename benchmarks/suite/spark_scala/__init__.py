"""Spark's `transformWithState` in Scala: running (count, sum) per key with a row for every row, all in the JVM.

Compiled with the Scala compiler among PySpark's jars and started with its `spark-submit`. Settings: RocksDB state store
(the only one it supports) with changelog checkpoints, as many shuffle partitions as cores, five micro-batches, state
read and written once per key and micro-batch. Steady state: time of the micro-batches as Spark tells it, without the
first, which warms up.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from suite.jvm_program import JvmProgram, done
from suite.peers import ROOT
from suite.work import Rows

__all__ = ["SparkScala"]

HERE = Path(__file__).resolve().parent
FOLDER = ROOT / "spark-scala"
BATCHES = 5
_STATE = "spark.sql.streaming.stateStore"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    f"{_STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
}


def built(spark_home: Path) -> Path:
    """The jar of the program, compiled once.

    Raises:
        PeerMissingError: Java is not there, or the compiler failed.
    """
    source, jar, stamp = HERE / "TransformTotals.scala", FOLDER / "totals.jar", FOLDER / ".built"
    wanted = f"{spark_home}\n{source.read_text()}"
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir(parents=True)
        jars = ":".join(map(str, sorted((spark_home / "jars").glob("*.jar"))))
        done(["java", "-cp", jars, "scala.tools.nsc.Main", "-cp", jars, "-d", str(jar), str(source)])
        stamp.write_text(wanted)
    return jar


class SparkScala(JvmProgram):
    """A Spark of its own that runs one query after the other."""

    def __init__(self) -> None:
        """Start it.

        Raises:
            PeerMissingError: It cannot be compiled here.
        """
        import pyspark

        home = Path(pyspark.__file__).parent
        jar = built(home)
        settings = [part for key, value in SETTINGS.items() for part in ("--conf", f"{key}={value}")]
        submit = [str(home / "bin" / "spark-submit"), "--master", "local[2]", "--driver-memory", "3g"]
        super().__init__(lambda _scratch: [*submit, *settings, "--class", "TransformTotals", str(jar)])
        self._queries = 0

    def rate(self, rows: Rows) -> tuple[float, float]:
        """Records per second of the micro-batches behind the first, and CPU microseconds per record of all.

        Raises:
            RuntimeError: The query failed, or its result is wrong.
        """
        self._queries += 1
        size = rows.records // BATCHES
        began = self.cpu_seconds()
        words = size, BATCHES, f"{self.scratch}/{self._queries}", rows.key_sql("value")
        milliseconds, *found = self.run(*words)
        used = self.cpu_seconds() - began
        expected = Rows(size * BATCHES, rows.keys, rows.kind).running_totals()
        if tuple(found) != expected:
            raise RuntimeError(f"transformWithState gave {found} instead of {expected}.")
        return size * (BATCHES - 1) / milliseconds * 1000, used / (size * BATCHES) * 1e6
