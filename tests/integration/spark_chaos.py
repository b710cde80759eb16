"""A campaign of kills against jobs on Spark: `make chaos-spark`, or

    python -m tests.integration.spark_chaos [--seed N] [--kills 20] [--only slot driver ...] [--mode continuous]
        [--backend heap]

A job counts numbers of two splits into exactly-once files. One after the other, in random order, so many of each kind:
Python workers, their daemon, slots and the driver are killed with -9, slots and the driver are stopped for longer than
their lease and wake up late, connections of slots are cut; executors are killed in a job of their own
(`local-cluster`). Each comes at a random moment behind a checkpoint that is newer than the one before it; then the job
comes to its end. In the files every number must be there once, with counts that have no gap; no process may be left.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
from tests.watching import completed_checkpoints

from tidemark import (
    Configuration,
    Encoder,
    ExternalizedCheckpointRetention,
    FileSink,
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

VICTIMS = ("worker", "daemon", "slot", "frozen-slot", "socket", "driver", "frozen-driver", "executor")
LEASE_S = 5.0
SPLITS, BLOCK, KEYS = 2, 1000, 10
PATIENCE_S = 3600.0
"""A machine full of other work takes minutes to start a driver; nothing here is about time."""
_ROOT = Path(__file__).parents[2]
_PIDFD_GETFD = 438
"""Number of the system call, the same on every architecture; Python has no name for it."""


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


def drive(folder: str, master: str, mode: str, backend: str, restored: str | None) -> None:
    """The program of the driver."""
    here = Path(folder)
    settings = {
        "spark.master": master,
        "execution.mode": mode,
        "rest.enabled": "false",
        "heartbeat.interval": "500 ms",
        "heartbeat.timeout": f"{LEASE_S:.0f} s",
        "state.backend": "rocksdb" if backend == "rocksdb" else "filesystem",
        "state.checkpoints.dir": f"file://{here}/checkpoints",
        "state.backend.incremental": "true",
    }
    if restored:
        settings["execution.savepoint.path"] = restored
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    env.set_parallelism(SPLITS)
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


def cut_a_connection(pid: int, rng: random.Random) -> bool:
    """End a connection of another process, as a network would; False if it has none."""
    own = os.pidfd_open(pid)
    call = ctypes.CDLL(None, use_errno=True).syscall
    connections = []
    try:
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                if not os.readlink(entry.path).startswith("socket:"):
                    continue
                copy = call(_PIDFD_GETFD, own, int(entry.name), 0)
                if copy < 0:
                    raise OSError(ctypes.get_errno(), "pidfd_getfd")
                connections.append(socket.socket(fileno=copy))
        # Those that listen have no peer.
        connected = [connection for connection in connections if _has_peer(connection)]
        if connected:
            with contextlib.suppress(OSError):
                rng.choice(connected).shutdown(socket.SHUT_RDWR)
        return bool(connected)
    finally:
        os.close(own)
        for connection in connections:
            connection.close()


def _has_peer(connection: socket.socket) -> bool:
    try:
        connection.getpeername()
    except OSError:
        return False
    return True


class Campaign:
    """One job and its murderer."""

    def __init__(self, folder: Path, master: str, mode: str, backend: str, rng: random.Random) -> None:
        self.folder, self.rng = folder, rng
        self.master, self.mode, self.backend = master, mode, backend
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
            f"drive({str(self.folder)!r}, {self.master!r}, {self.mode!r}, {self.backend!r}, {restored!r})"
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
        return next(reversed(completed_checkpoints(self.folder / "checkpoints")), None)

    def processes(self, pattern: str) -> list[psutil.Process]:
        """Processes of the job whose command line matches; slots are nobody's children."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                ours = process.environ().get("TIDEMARK_HOME") == str(self.folder / "home")
                if ours and re.search(pattern, " ".join(process.cmdline())):
                    found.append(process)
        return found

    def victims(self, kind: str) -> list[psutil.Process]:
        if kind in ("driver", "frozen-driver"):
            return [psutil.Process(self.driver.pid)]
        if kind in ("slot", "frozen-slot", "socket"):
            return self.processes(r"tidemark\.slot\.server")
        if kind == "executor":
            return self.processes(r"CoarseGrainedExecutorBackend")
        # The JVM starts the daemon, which makes the workers; these outlive it.
        found = []
        for process in self.processes(r"pyspark[./]daemon"):
            with contextlib.suppress(psutil.Error):
                parent = process.parent()
                if (parent is not None and "java" in parent.name()) == (kind == "daemon"):
                    found.append(process)
        return found

    def strike(self, kind: str) -> None:
        """Do it to one of them at a random moment behind a checkpoint that is new."""
        self.until_newer(self.newest())
        time.sleep(self.rng.random() * 0.4)
        if kind == "daemon" and not self.victims(kind):
            # It was struck before and its workers have outlived it: Spark starts another one with the next worker.
            self.strike("worker")
        victim = self.rng.choice(self.until(lambda: self.victims(kind), f"a {kind}"))
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError, FileNotFoundError):
            if kind == "socket":
                cut_a_connection(victim.pid, self.rng)
            elif kind.startswith("frozen"):
                self.freeze(victim, kind)
            else:
                victim.kill()
        if kind == "driver":
            self.driver.wait()
            restored = self.newest()
            assert restored is not None
            self.driver = self.start(str(restored))

    def freeze(self, victim: psutil.Process, kind: str) -> None:
        """Stop it until others have given it up, then let it wake up."""
        victim.suspend()
        try:
            time.sleep(LEASE_S + 1)
            if kind == "frozen-slot":
                self.until_newer(self.newest())
        finally:
            victim.resume()

    def until_newer(self, before: Path | None) -> None:
        self.until(lambda: self.newest() not in (None, before), "a new checkpoint")

    def finish(self) -> tuple[int, int]:
        """Let the job end; records, and attempts that ended. Raises if anything is wrong with the files."""
        self.until_newer(self.newest())
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
    parser.add_argument("--mode", choices=("continuous", "epochs"), default="continuous")
    parser.add_argument("--backend", choices=("heap", "rocksdb"), default="heap")
    options = parser.parse_args(arguments)
    only = f' ONLY="{" ".join(options.only)}"' if options.only != VICTIMS else ""
    places = f"MODE={options.mode} BACKEND={options.backend}"
    print(f"make chaos-spark SEED={options.seed} KILLS={options.kills} {places}{only}", flush=True)
    local = [kind for kind in options.only if kind != "executor"]
    if local:
        campaign(local, "local[4]", options)
    if "executor" in options.only:
        campaign(["executor"], "local-cluster[2,2,1024]", options)


def campaign(kinds: Sequence[str], master: str, options: argparse.Namespace) -> None:
    """One job, and so many strikes of each kind."""
    rng = random.Random(f"{options.seed}-{master}")
    strikes = [kind for kind in kinds for _ in range(options.kills)]
    rng.shuffle(strikes)
    with tempfile.TemporaryDirectory(prefix="spark-chaos-", ignore_cleanup_errors=True) as name:
        started = time.monotonic()
        job = Campaign(Path(name), master, options.mode, options.backend, rng)
        try:
            for number, kind in enumerate(strikes, 1):
                job.strike(kind)
                print(f"  {number} {kind}, {time.monotonic() - started:.0f} s", flush=True)
            records, restarts = job.finish()
        finally:
            job.close()
    took = time.monotonic() - started
    told = ", ".join(f"{options.kills} {kind}" for kind in kinds)
    print(
        f"{len(strikes)} ({told}), {restarts} attempts ended, {records:,} records exact, {took:.0f} s",
        flush=True,
    )


if __name__ == "__main__":
    main()
