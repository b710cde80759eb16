"""A campaign of `kill -9` against continuous jobs on Spark: `make chaos-spark`, or

    python -m tests.integration.spark_chaos [--seed N] [--kills 20] [--only worker slot executor driver]

A job counts numbers of two splits into exactly-once files. Its Python workers, its slots, its executors
(`local-cluster`) or its driver are killed one after the other, each at a random moment behind a checkpoint that came
after the kill before; then the job comes to its end. In the files every number must be there once, with counts
that have no gap, and no process may be left.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from tidemark import (
    Configuration,
    Encoder,
    ExternalizedCheckpointRetention,
    FileSink,
    FsStateBackend,
    KeyedProcessFunction,
    RestartStrategies,
    Split,
    SplitReader,
    SplitSource,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)

VICTIMS = ("worker", "slot", "executor", "driver")
SPLITS, BLOCK, KEYS = 2, 1000, 10
PATIENCE_S = 600.0
_ROOT = Path(__file__).parents[2]


class Numbers(SplitSource[int]):
    """Numbers without end, until a file says that the current block is the last one."""

    bounded = True

    def __init__(self, go: Path) -> None:
        self.go = go

    def enumerate(self) -> list[Split]:
        return [Split(str(n), n) for n in range(SPLITS)]

    def open(self, split: Split, position: Any | None) -> NumbersReader:
        return NumbersReader(split.data, self.go, position or 0)

    def get_produced_type(self) -> Any:
        return Types.LONG()


class NumbersReader(SplitReader[int]):
    """Some numbers of a split every few milliseconds; where it stands counts those that were read."""

    def __init__(self, split: int, go: Path, position: int) -> None:
        self.split, self.go, self.next = split, go, position
        self.due = 0.0

    def read(self, max_records: int, timeout_ms: int) -> Sequence[int] | None:
        if self.next and self.next % BLOCK == 0 and self.go.exists():
            return None
        if time.monotonic() < self.due:
            return []
        self.due = time.monotonic() + 0.01
        first, self.next = self.next, self.next + 5
        return [n * SPLITS + self.split for n in range(first, self.next)]

    def position(self) -> int:
        return self.next


class Numbered(KeyedProcessFunction):
    """`key count number` for every number."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Any:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield f"{value % KEYS} {count} {value}"


def drive(folder: str, master: str, restored: str | None) -> None:
    """The program of the driver."""
    here = Path(folder)
    settings = {"spark.master": master, "execution.mode": "continuous", "rest.enabled": "false"}
    if restored:
        settings["execution.savepoint.path"] = restored
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    env.set_parallelism(SPLITS)
    env.set_state_backend(FsStateBackend(f"file://{here}/checkpoints"))
    env.enable_checkpointing(200)
    env.get_checkpoint_config().set_externalized_checkpoint_retention(
        ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    )
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1000, 100))
    numbers = env.from_source(Numbers(here / "go"), WatermarkStrategy.no_watermarks(), "numbers").uid(
        "numbers"
    )
    counted = (
        numbers.key_by(lambda n: n % KEYS, Types.LONG()).process(Numbered(), Types.STRING()).uid("counts")
    )
    sink = FileSink.for_row_format(f"{here}/out", Encoder.simple_string_encoder()).build()
    counted.sink_to(sink).uid("out")
    env.execute("chaos")


class Campaign:
    """One job and its murderer."""

    def __init__(self, folder: Path, victim: str, rng: random.Random) -> None:
        self.folder, self.victim, self.rng = folder, victim, rng
        self.master = "local-cluster[2,2,1024]" if victim == "executor" else "local[4]"
        self.driver = self.start(None)

    def start(self, restored: str | None) -> subprocess.Popen[bytes]:
        import pyspark

        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")]),
            "TIDEMARK_HOME": str(self.folder / "home"),
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_SCALA_VERSION": "2.13",
            "SPARK_WORKER_DIR": str(self.folder / "work"),
            "PYSPARK_PYTHON": sys.executable,
        }
        program = (
            "from tests.integration.spark_chaos import drive; "
            f"drive({str(self.folder)!r}, {self.master!r}, {restored!r})"
        )
        with (self.folder / "driver.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-c", program], stdout=log, stderr=log, env=environment, cwd=self.folder
            )

    def log(self) -> str:
        return (self.folder / "driver.log").read_text(errors="replace")

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while not (found := condition()):
            if self.driver.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{what}: did not happen\n{self.log()[-6000:]}")
            time.sleep(0.02)
        return found

    def newest(self) -> Path | None:
        """The newest checkpoint; ids grow, also over drivers."""
        found = (self.folder / "checkpoints").rglob("chk-*/_metadata")
        return max(found, key=lambda path: int(path.parent.name.removeprefix("chk-")), default=None)

    def processes(self, pattern: str) -> list[psutil.Process]:
        """Processes of the job whose command line matches; slots are nobody's children."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                ours = process.environ().get("TIDEMARK_HOME") == str(self.folder / "home")
                if ours and re.search(pattern, " ".join(process.cmdline())):
                    found.append(process)
        return found

    def victims(self) -> list[psutil.Process]:
        if self.victim == "driver":
            return [psutil.Process(self.driver.pid)]
        if self.victim == "slot":
            return self.processes(r"tidemark\.slot\.server")
        if self.victim == "executor":
            return self.processes(r"CoarseGrainedExecutorBackend")
        workers = self.processes(r"pyspark[./]daemon")
        # The daemon is the parent of the workers; tasks are in these.
        return [worker for worker in workers if worker.ppid() in {other.pid for other in workers}]

    def kill(self) -> None:
        """Kill one at a random moment behind a checkpoint that is new."""
        before = self.newest()
        self.until(lambda: self.newest() != before, "a new checkpoint")
        time.sleep(self.rng.random() * 0.4)
        victims = self.until(self.victims, f"a {self.victim} to kill")
        with contextlib.suppress(psutil.NoSuchProcess):
            self.rng.choice(victims).kill()
        if self.victim == "driver":
            self.driver.wait()
            restored = self.newest()
            assert restored is not None
            self.driver = self.start(str(restored.parent))

    def finish(self) -> tuple[int, int]:
        """Let the job end; records, and attempts that ended. Raises if anything is wrong with the files."""
        before = self.newest()
        self.until(lambda: self.newest() != before, "a new checkpoint")
        (self.folder / "go").touch()
        if self.driver.wait(PATIENCE_S) != 0:
            raise SystemExit(self.log()[-6000:])
        self.until_nothing_is_left()
        return self.verified(), self.log().count("is restarted")

    def until_nothing_is_left(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while left := self.processes(r"tidemark|pyspark|CoarseGrained"):
            if time.monotonic() > deadline:
                raise SystemExit(f"processes are left behind: {left}")
            time.sleep(0.1)

    def verified(self) -> int:
        lines = [
            tuple(map(int, line.split()))
            for path in (self.folder / "out").rglob("part-*")
            for line in path.read_text().splitlines()
        ]
        numbers = Counter(number for _key, _count, number in lines)
        twice = [number for number, times in numbers.items() if times > 1]
        problems = [f"{len(twice)} numbers came twice: {sorted(twice)[:5]}"] if twice else []
        for split in range(SPLITS):
            read = {number // SPLITS for number in numbers if number % SPLITS == split}
            if read != set(range(len(read))) or len(read) % BLOCK:
                problems.append(f"split {split}: {sorted(set(range(max(read) + 1)) - read)[:5]} are missing")
        for key in range(KEYS):
            counts = sorted(count for of, count, _number in lines if of == key)
            if counts != list(range(1, len(counts) + 1)):
                problems.append(f"the counts of key {key} have gaps or are there twice")
        if problems:
            raise SystemExit("; ".join(problems))
        return len(lines)

    def close(self) -> None:
        if self.driver.poll() is None:
            self.driver.kill()
            self.driver.wait()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the campaigns; prints the seed first."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 10**9))
    parser.add_argument("--kills", type=int, default=20, help="in a row, of each kind (default: %(default)s)")
    parser.add_argument("--only", nargs="+", choices=VICTIMS, default=VICTIMS)
    options = parser.parse_args(arguments)
    print(f"make chaos-spark SEED={options.seed} KILLS={options.kills}", flush=True)
    for victim in options.only:
        with tempfile.TemporaryDirectory(prefix="spark-chaos-", ignore_cleanup_errors=True) as name:
            started = time.monotonic()
            campaign = Campaign(Path(name), victim, random.Random(f"{options.seed}-{victim}"))
            try:
                for kill in range(options.kills):
                    campaign.kill()
                    print(f"  {victim} {kill + 1}, {time.monotonic() - started:.0f} s", flush=True)
                records, restarts = campaign.finish()
            finally:
                campaign.close()
        took = time.monotonic() - started
        print(
            f"{victim}: {options.kills} killed, {restarts} attempts ended, {records:,} records exact, {took:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
