"""Benchmark of the first minute: from `python job.py` to the first record. `make bench-start`.

Each round starts a small program anew for every way to run it: on Spark in epochs and continuously, and without Spark.
Spark's classes are kept from an earlier start, as they are for everybody but the first time on a machine; `--first`
measures without them. `--against DIR` runs the sources of another version in turns with these.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAM = """
from tidemark import KeyedProcessFunction, StreamExecutionEnvironment, Types, ValueStateDescriptor

print("imported", flush=True)


class Count(KeyedProcessFunction):
    def open(self, runtime_context):
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value, ctx):
        self.seen.update((self.seen.value() or 0) + 1)
        yield f"{value} {self.seen.value()}"


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
words = env.from_collection("the tide comes in and the tide goes out".split(), Types.STRING())
words.key_by(lambda word: word, Types.STRING()).process(Count(), Types.STRING()).uid("count").print()
env.execute("word count")
print("executed", flush=True)
"""
WAYS = {
    "epochs": {"TIDEMARK_EXECUTION_MODE": "epochs"},
    "continuous": {"TIDEMARK_EXECUTION_MODE": "continuous"},
    "local": {"TIDEMARK_EXECUTION_TARGET": "local"},
}
HERE = str(Path(__file__).resolve().parents[1] / "src")


def start(program: Path, way: str, sources: str, archive: str) -> dict[str, float]:
    """Seconds until the program had its imports, its first record, its end."""
    environ = {
        **os.environ,
        **WAYS[way],
        "PYTHONPATH": sources,
        "PYSPARK_PYTHON": sys.executable,
        "TIDEMARK_SPARK_CLASS_ARCHIVE": archive,
    }
    began = time.monotonic()
    process = subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True, env=environ)
    assert process.stdout is not None
    at: dict[str, float] = {}
    for line in process.stdout:
        name = line.strip() if line.strip() in ("imported", "executed") else "first record"
        at.setdefault(name, time.monotonic() - began)
    if process.wait():
        raise SystemExit(f"The program failed with {process.returncode} ({way}, {sources}).")
    return at


def main() -> None:
    """Start every version in every way, in turns, and print medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--against", nargs="*", default=[], help="src directories of other versions")
    parser.add_argument("--first", action="store_true", help="without classes from an earlier start")
    options = parser.parse_args()
    versions = [HERE, *options.against]
    taken: dict[tuple[str, str], list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="bench-start-") as folder:
        program = Path(folder, "job.py")
        program.write_text(PROGRAM)
        archive = "off" if options.first else os.path.join(folder, "classes")
        if not options.first and set(options.ways) - {"local"}:
            start(program, "epochs", HERE, archive)
            wait_for_classes(Path(archive))
        for _ in range(options.rounds):
            for way in options.ways:
                for version in versions:
                    taken.setdefault((way, version), []).append(start(program, way, version, archive))
    for (way, version), rounds in taken.items():
        figures = [
            f"{name} {statistics.median(times):.2f} s ({min(times):.2f}-{max(times):.2f})"
            for name in ("imported", "first record", "executed")
            if (times := [one[name] for one in rounds])
        ]
        print(f"{way:10} {'' if version == HERE else version + ' '}{', '.join(figures)}")


def wait_for_classes(folder: Path) -> None:
    """A JVM writes them when it ends, behind the program that started it."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if any(file.read_bytes()[:1] != b"\0" for file in folder.glob("*.jsa")):
            return
        time.sleep(0.5)
    print("No classes were kept: figures are those of first starts.")


if __name__ == "__main__":
    main()
