"""A soak: jobs on Spark at a steady rate for an hour, and whether anything of theirs grows. `make soak`, or

    python -m tests.soak.campaign [--minutes 60] [--backend both] [--mode continuous] [--rate 2000] [--kill-every 5]

For every backend and mode a driver of its own, all of them at the same time. Every few seconds memory, threads,
descriptors and sockets of driver, JVM, slots and workers are read, and the files in the directories of checkpoints and
scratch; every half minute the driver notes its Python's blocks of memory and the JVM's heap behind a collection. At the
end the jobs are let end, what they published is verified, and `trend.py` says of each figure whether it grew. The
samples go to `benchmarks/results/soak.json` (also meanwhile), the picture to `soak.png`. Exit code 1 if something grew,
or was not exact.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
from tests.soak.job import SPLITS, Timing, verified
from tests.soak.sampling import sample
from tests.soak.trend import Trend, trend

PATIENCE_S = 600.0
_ROOT = Path(__file__).parents[2]
RESULTS = _ROOT / "benchmarks" / "results"
HEAP_MB = 512
SPARK = {
    "execution.target": "spark",
    "spark.master": "local[4]",
    "spark.driver.memory": f"{HEAP_MB}m",
    # The heap is there from the start, so that the JVM's memory grows by what is outside of it.
    "spark.driver.extraJavaOptions": f"-Xms{HEAP_MB}m -XX:+AlwaysPreTouch",
    "rest.port": "0",
    # What is remembered is full before the warm-up is over.
    "web.checkpoints.history": "100",
    # Off by default, as in Flink; without it RocksDB keeps what has expired, and the state itself would grow.
    "state.backend.rocksdb.ttl.compaction.filter.enabled": "true",
    # The block cache keeps blocks of files that compactions have replaced until it is full: within the warm-up.
    "state.backend.rocksdb.memory.fixed-per-slot": "24mb",
}
GRAINS = {"own": 2.0, "rss": 2.0, "live heap": 2.0, "blocks": 5000.0}
"""By figure what is no growth, MB or pieces; 3 of everything else (threads, descriptors, sockets, files)."""
NOT_JUDGED = ("files.out",)
"""Published output is meant to grow."""


@dataclass
class Soak:
    """One job, and what was seen of it."""

    name: str
    folder: Path
    backend: str
    timing: Timing
    settings: dict[str, str]
    leak: int = 0
    times: list[float] = field(default_factory=list)
    samples: list[dict[str, float]] = field(default_factory=list)
    kills: int = 0

    def __post_init__(self) -> None:
        for name in ("tmp", "home"):
            (self.folder / name).mkdir(parents=True)
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")]),
            "TIDEMARK_HOME": str(self.home),
            "TMPDIR": str(self.folder / "tmp"),
            "PYSPARK_PYTHON": sys.executable,
        }
        program = (
            "from tests.soak.job import drive, Timing; "
            f"drive({str(self.folder)!r}, {self.backend!r}, Timing({self.timing.rate}, {self.timing.revisit_s}), "
            f"{self.settings!r}, {self.leak})"
        )
        with (self.folder / "driver.log").open("ab") as log:
            self.driver = subprocess.Popen(
                [sys.executable, "-c", program], stdout=log, stderr=log, env=environment, cwd=self.folder
            )
        self.began = time.time()

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def look(self) -> None:
        """Take a sample."""
        if self.driver.poll() is not None:
            raise SystemExit(f"{self.name} has ended by itself\n{self.log()[-6000:]}")
        self.samples.append(sample(self.folder, self.home))
        self.times.append(time.time() - self.began)

    def kill_a_slot(self, rng: random.Random) -> None:
        slots = [process for process in self._processes() if "tidemark.slot.server" in process.cmdline()]
        if slots:
            with contextlib.suppress(psutil.NoSuchProcess):
                rng.choice(slots).kill()
                self.kills += 1

    def _processes(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("TIDEMARK_HOME") == str(self.home):
                    yield process

    def log(self) -> str:
        return (self.folder / "driver.log").read_text(errors="replace")

    def finish(self) -> int:
        """Let the job end; how many records it was exact over."""
        (self.folder / "go").touch()
        if self.driver.wait(PATIENCE_S) != 0:
            raise SystemExit(self.log()[-6000:])
        return verified(self.folder / "out", self.timing.distance)

    def close(self) -> None:
        if self.driver.poll() is None:
            self.driver.kill()
            self.driver.wait()

    def series(self) -> dict[str, tuple[list[float], list[float]]]:
        """Times and values of every figure; one that a sample does not have is 0 there."""
        names = sorted({name for figures in self.samples for name in figures})
        found = {name: (self.times, [figures.get(name, 0.0) for figures in self.samples]) for name in names}
        with contextlib.suppress(FileNotFoundError):
            inner = [json.loads(line) for line in (self.folder / "inner.jsonl").read_text().splitlines()]
            times = [figures.pop("time") - self.began for figures in inner]
            for name in {name for figures in inner for name in figures}:
                found[name] = (times, [figures.get(name, 0.0) for figures in inner])
        return found

    def trends(self, warm_up_s: float) -> dict[str, Trend]:
        """Of every figure that is judged and has enough samples behind the warm-up."""
        found = {}
        for name, (times, values) in self.series().items():
            kept = [(at, value) for at, value in zip(times, values, strict=True) if at >= warm_up_s]
            if name not in NOT_JUDGED:
                with contextlib.suppress(ValueError):
                    at, value = zip(*kept, strict=True)
                    found[name] = trend(at, value, GRAINS.get(name.split(".")[1], 3.0))
        return found


def written(path: Path, soaks: Sequence[Soak], facts: dict[str, Any], warm_up_s: float) -> None:
    """The results so far, as a whole or not at all."""
    content = {
        **facts,
        "warm_up_s": warm_up_s,
        "jobs": {
            soak.name: {
                "kills": soak.kills,
                "series": soak.series(),
                "trends": {name: asdict(found) for name, found in soak.trends(warm_up_s).items()},
            }
            for soak in soaks
        },
    }
    path.parent.mkdir(exist_ok=True)
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps(content))
    unfinished.replace(path)


def table(soaks: Sequence[Soak], warm_up_s: float) -> bool:
    """Print every figure; whether none grew."""
    flat = True
    for soak in soaks:
        measured = soak.times[-1] - warm_up_s
        print(f"\n{soak.name}: {measured / 60:.0f} minutes behind a warm-up of {warm_up_s / 60:.0f}")
        print(f"  {'':<22} {'level':>10} {'per hour':>10} {'late':>10} {'gained':>9} {'noise':>8}")
        for name, found in sorted(soak.trends(warm_up_s).items()):
            flat &= not found.grows
            print(
                f"  {name:<22} {found.level:>10,.1f} {found.per_hour:>+10,.1f} {found.late_per_hour:>+10,.1f} "
                f"{found.gained:>+9,.1f} {found.noise:>8,.1f}  {found.verdict}",
                flush=True,
            )
    return flat


def draw(results: Path) -> None:
    """The picture, if matplotlib can be had."""
    sys.path.insert(0, str(_ROOT / "benchmarks"))
    from suite.peers import drawn

    if drawn(Path(__file__).with_name("plot.py"), results):
        print(results.with_suffix(".png"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the jobs; prints the command that repeats them first."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--warm-up", type=float, help="minutes that do not count (default: a quarter)")
    parser.add_argument("--backend", choices=("both", "heap", "rocksdb"), default="both")
    parser.add_argument("--mode", choices=("both", "continuous", "epochs"), default="continuous")
    parser.add_argument("--rate", type=float, default=2000.0, help="records per second and job")
    parser.add_argument("--revisit", type=float, default=10.0, help="seconds between two records of a key")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two samples")
    parser.add_argument("--kill-every", type=float, help="minutes between two kills of a slot")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 10**9))
    parser.add_argument("--results", type=Path, default=RESULTS / "soak.json")
    options = parser.parse_args(arguments)
    facts = {key: str(value) if isinstance(value, Path) else value for key, value in vars(options).items()}
    warm_up_s = 60 * (options.warm_up if options.warm_up is not None else options.minutes / 4)
    backends = ("heap", "rocksdb") if options.backend == "both" else (options.backend,)
    modes = ("continuous", "epochs") if options.mode == "both" else (options.mode,)
    print(f"soak: {facts}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    soaks: list[Soak] = []
    rng = random.Random(options.seed)
    exact = True
    try:
        for backend in backends:
            for mode in modes:
                name = f"{backend}-{mode}"
                timing = Timing(options.rate / SPLITS, options.revisit)
                settings = {**SPARK, "execution.mode": mode}
                # A short name: sockets are in there, too.
                soaks.append(Soak(name, folder / str(len(soaks)), backend, timing, settings))
        ends, next_write, next_kill = time.time() + options.minutes * 60, 0.0, float("inf")
        if options.kill_every:
            next_kill = time.time() + warm_up_s
        while (now := time.time()) < ends:
            for soak in soaks:
                soak.look()
                if now >= next_kill:
                    soak.kill_a_slot(rng)
            if now >= next_kill:
                next_kill = now + options.kill_every * 60
            if now >= next_write:
                written(options.results, soaks, facts, warm_up_s)
                next_write = now + 60
            time.sleep(options.every)
        written(options.results, soaks, facts, warm_up_s)
        for soak in soaks:
            try:
                print(f"{soak.name}: {soak.finish():,} records exact, {soak.kills} slots killed", flush=True)
            except ValueError as exc:
                exact = False
                print(f"{soak.name}: NOT EXACT, {exc}", flush=True)
        flat = table(soaks, warm_up_s)
        draw(options.results)
    finally:
        for soak in soaks:
            soak.close()
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(0 if flat and exact else 1)


if __name__ == "__main__":
    main()
