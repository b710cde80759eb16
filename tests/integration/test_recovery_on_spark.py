"""Crashes of real processes on Spark: slots, Python workers, the driver. Counts stay exact."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.integration.conftest import slot_processes
from tests.integration.test_jobs_on_spark import DEADLINE, Discard, Numbers, RunningCount, wait_for
from tests.watching import completed_checkpoints, files_below, living

from tidemark import (
    AsyncDataStream,
    AsyncFunction,
    CustomCheckpointStorage,
    EmbeddedRocksDBStateBackend,
    Encoder,
    FileSink,
    FsStateBackend,
    HashMapStateBackend,
    OneInputStreamOperator,
    RestartStrategies,
    RocksDBStateBackend,
    Types,
    field,
)
from tidemark.checkpoint.storage import FileSystemStorage

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]


class SlowNumbers(Numbers):
    """Numbers that take long enough for crashes to hit the middle of the stream.

    The second half waits for the file `gate`, if there is one: however slow the machine is, the job does not
    end before the test has done its worst.
    """

    def __init__(self, limit: int, gate: Path | None = None) -> None:
        super().__init__(limit)
        self.gate = gate

    def run(self, ctx: Any) -> None:
        while self.running and self.next < self.limit:
            if self.gate is not None and self.next >= self.limit // 2 and not self.gate.exists():
                time.sleep(0.02)
                continue
            with ctx.get_checkpoint_lock():
                for _ in range(50):
                    ctx.collect(self.next)
                    self.next += 1
            time.sleep(0.02)


class Echo(AsyncFunction):
    """Gives numbers back after a while."""

    async def async_invoke(self, value: int) -> list[int]:
        await asyncio.sleep(random.random() * 0.05)
        return [value]


class RawRunningCount(OneInputStreamOperator):
    """Counts as `RunningCount` does, in raw keyed state."""

    def initialize_state(self, context: Any) -> None:
        self.groups = {
            part.get_key_group_id(): json.load(part.get_stream())
            for part in context.get_raw_keyed_state_inputs()
        }

    def process_element(self, element: Any) -> Any:
        counts = self.groups.setdefault(self.get_current_key_group(), {})
        key = str(self.get_current_key())
        counts[key] = counts.get(key, 0) + 1
        yield self.get_current_key(), counts[key]

    def snapshot_state(self, context: Any) -> None:
        output = context.get_raw_keyed_operator_state_output()
        for group, counts in self.groups.items():
            output.start_new_key_group(group)
            output.write(json.dumps(counts).encode())


def numbers_job(
    env: Any,
    backend: Any,
    limit: int,
    out: Path,
    gate: Path | None = None,
    own: bool = False,
    count: type[RunningCount] = RunningCount,
) -> None:
    env.set_state_backend(backend)
    env.enable_checkpointing(300)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(20, 100))
    pair = Types.TUPLE([Types.LONG(), Types.LONG()])
    numbers = env.add_source(SlowNumbers(limit, gate)).uid("numbers")
    if own:
        echoed = AsyncDataStream.unordered_wait(numbers, Echo(), 0, 500, Types.LONG()).uid("echo")
        counted = echoed.key_by(lambda n: n % 10, Types.LONG()).transform("Count", pair, RawRunningCount())
    else:
        counted = numbers.key_by(lambda n: n % 10, Types.LONG()).process(count(), pair)
    counted.uid("counts")
    counted.sink_to(FileSink.for_row_format(str(out), Encoder.simple_string_encoder()).build()).uid("out")


def committed(out: Path) -> Counter[str]:
    return Counter(line for path in files_below(out, "part-*") for line in path.read_text().splitlines())


def expected(limit: int) -> Counter[str]:
    return Counter(f"({key},{count})" for key in range(10) for count in range(1, limit // 10 + 1))


@pytest.mark.parametrize("kind", ["heap-incremental", "rocksdb-incremental", "own-operators"])
def test_slots_killed_at_random_moments_lose_and_repeat_nothing(make_env, checkpoints, tmp_path, kind):
    rocksdb = kind == "rocksdb-incremental"
    backend = RocksDBStateBackend(checkpoints, True) if rocksdb else FsStateBackend(checkpoints)
    own = kind == "own-operators"
    limit, rng = 10_000 if own else 40_000, random.Random(7)
    # One of the three has a spare slot, which takes the place of each that is killed.
    spare = {"slotmanager__redundant-taskmanager-num": "1"} if rocksdb else {}
    env = make_env(2, state__backend__incremental=str(not own).lower(), **spare)
    numbers_job(env, backend, limit, tmp_path / "out", tmp_path / "go", own=own)
    client = env.execute_async("killed slots")

    for kill in range(3):
        before = client.get_progress()["checkpoints"]
        wait_for(lambda b=before: client.get_progress()["checkpoints"] > b)
        time.sleep(rng.random() * 0.3)
        pids, engine = client.get_progress()["slot_pids"], client.runner.execution.engine
        if rocksdb:
            wait_for(engine.spare_pids)
        spares = engine.spare_pids()
        os.kill(pids[kill % 2], signal.SIGKILL)
        wait_for(lambda k=kill: client.get_progress()["attempt"] > k)
        if rocksdb:
            wait_for(lambda k=kill, s=spares: client.get_progress()["slot_pids"].get(k % 2) in s)
    (tmp_path / "go").touch()
    client.get_job_execution_result().result(DEADLINE)

    assert committed(tmp_path / "out") == expected(limit)
    assert client.get_progress()["attempt"] >= 3
    assert not list((tmp_path / "out").rglob(".*inprogress"))
    assert not list(Path(checkpoints.removeprefix("file://")).rglob("_metadata")), (
        "finished jobs keep nothing"
    )


@pytest.mark.modes("epochs", "auto")
def test_slots_come_and_go_when_a_job_is_rescaled(make_env, checkpoints, tmp_path):
    env = make_env(2)
    env.set_max_parallelism(2)
    numbers_job(env, RocksDBStateBackend(checkpoints, True), 8_000, tmp_path / "out", tmp_path / "go")
    client = env.execute_async("rescaled")
    for parallelism in (3, 1):
        wait_for(lambda: client.get_progress()["checkpoints"] > 0)
        before = client.get_progress()["slot_pids"]
        assert client.runner.rescale(parallelism).result(DEADLINE) == str(parallelism)
        pids = client.get_progress()["slot_pids"]
        assert sorted(pids) == list(range(parallelism))
        assert pids[0] == before[0], "slots that stay are kept"
        surplus = [pid for slot, pid in before.items() if slot >= parallelism]
        wait_for(lambda gone=surplus: not any(psutil.pid_exists(pid) for pid in gone))
    (tmp_path / "go").touch()
    client.get_job_execution_result().result(DEADLINE)

    assert committed(tmp_path / "out") == expected(8_000)
    assert client.get_progress()["attempt"] == 2


class Moved(FileSystemStorage):
    """A storage of the program's own: what is said to lie at /moved/... lies somewhere else."""

    def __init__(self, place: Path) -> None:
        super().__init__()
        self.place = place

    def at(self, path: str) -> str:
        return path.replace("/moved", str(self.place), 1)

    def write(self, path: str, data: bytes) -> None:
        super().write(self.at(path), data)

    def create(self, path: str) -> Any:
        return super().create(self.at(path))

    def read(self, path: str) -> bytes:
        return super().read(self.at(path))

    def open(self, path: str) -> Any:
        return super().open(self.at(path))

    def exists(self, path: str) -> bool:
        return super().exists(self.at(path))

    def is_file(self, path: str) -> bool:
        return super().is_file(self.at(path))

    def list(self, path: str) -> list[str]:
        return super().list(self.at(path))

    def size(self, path: str) -> int:
        return super().size(self.at(path))

    def delete(self, path: str) -> None:
        super().delete(self.at(path))

    def delete_tree(self, path: str) -> None:
        super().delete_tree(self.at(path))


def test_slots_write_to_and_restore_from_a_storage_of_the_program(make_env, tmp_path):
    env = make_env(2)
    numbers_job(env, EmbeddedRocksDBStateBackend(True), 8_000, tmp_path / "out", tmp_path / "go")
    storage = CustomCheckpointStorage(Moved(tmp_path / "place"), "/moved", 0)
    env.get_checkpoint_config().set_checkpoint_storage(storage)
    client = env.execute_async("a storage of its own")

    wait_for(lambda: client.get_progress()["checkpoints"] > 0)
    assert list((tmp_path / "place").rglob("*.sst"))
    os.kill(client.get_progress()["slot_pids"][0], signal.SIGKILL)
    wait_for(lambda: client.get_progress()["attempt"] > 0)
    (tmp_path / "go").touch()
    client.get_job_execution_result().result(DEADLINE)

    assert committed(tmp_path / "out") == expected(8_000)
    assert not Path("/moved").exists()


def test_python_workers_killed_in_mid_epoch_are_survived(make_env, checkpoints, tmp_path):
    limit = 20_000
    env = make_env(2)
    numbers_job(env, FsStateBackend(checkpoints), limit, tmp_path / "out")
    client = env.execute_async("killed workers")
    wait_for(lambda: client.get_progress()["checkpoints"] >= 1)

    for _ in range(5):
        for worker in python_workers():
            worker.kill()
        time.sleep(0.2)
    client.get_job_execution_result().result(DEADLINE)

    assert committed(tmp_path / "out") == expected(limit)


def python_workers() -> list[psutil.Process]:
    """Worker processes that Spark's daemon forked for this test process."""
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            command = " ".join(child.cmdline())
            if (
                "pyspark.daemon" in command
                and child.parent()
                and "pyspark.daemon" in " ".join(child.parent().cmdline())
            ):
                found.append(child)
        except psutil.Error:
            continue
    return found


def test_a_streaming_file_source_is_rewound_exactly(spark, make_env, checkpoints, tmp_path):
    spark.range(0, 4000, 1, 40).write.parquet(str(tmp_path / "in"))
    frame = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    env = make_env(2)
    env.set_state_backend(FsStateBackend(checkpoints))
    env.enable_checkpointing(300)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(20, 100))
    kind = Types.TUPLE([Types.LONG(), Types.LONG()])
    keyed = env.from_spark_stream(frame.selectExpr("id", "id % 10 AS k")).key_by(field("k"), Types.LONG())
    sink = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder()).build()
    keyed.process(RunningCount(), kind).uid("counts").sink_to(sink).uid("out")
    client = env.execute_async("files")

    for kill in range(2):
        before = client.get_progress()["checkpoints"]
        wait_for(lambda b=before: client.get_progress()["checkpoints"] > b)
        os.kill(client.get_progress()["slot_pids"][0], signal.SIGKILL)
        wait_for(lambda k=kill: client.get_progress()["attempt"] > k)
    wait_for(lambda: sum(committed(tmp_path / "out").values()) >= 4000)
    client.cancel().result(DEADLINE)

    assert committed(tmp_path / "out") == expected(4000)


DRIVER = """
import sys
sys.path.insert(0, {root!r})
from tests.integration.test_recovery_on_spark import driver_main
driver_main({checkpoints!r}, {out!r}, {savepoint!r}, {limit}, {mode!r})
"""


def driver_main(checkpoints: str, out: str, savepoint: str | None, limit: int, mode: str) -> None:
    """The program of the driver process in the tests below."""
    from tidemark import Configuration, ExternalizedCheckpointRetention, StreamExecutionEnvironment

    configuration = Configuration()
    configuration.set_string("spark.master", "local[2]")
    configuration.set_string("execution.mode", mode)
    if savepoint:
        configuration.set_string("execution.savepoint.path", savepoint)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    numbers_job(env, FsStateBackend(checkpoints), limit, Path(out), Path(out).with_name("go"))
    env.get_checkpoint_config().set_externalized_checkpoint_retention(
        ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    )
    env.execute("driver")


def test_a_killed_driver_continues_from_its_retained_checkpoint(tmp_path):
    limit, out, checkpoints = 40_000, tmp_path / "out", tmp_path / "checkpoints"
    first = start_driver(tmp_path, None, limit)

    def half_way() -> bool:
        assert first.poll() is None, (tmp_path / "driver-start.log").read_text()
        return bool(completed_checkpoints(checkpoints)) and sum(committed(out).values()) > 500

    wait_for(half_way)
    slots = slots_of(first.pid)
    assert slots

    first.kill()
    first.wait()
    _gone, alive = psutil.wait_procs(slots, timeout=120)
    assert not alive, "slots outlived their driver"
    (tmp_path / "go").touch()
    second = start_driver(tmp_path, str(completed_checkpoints(checkpoints)[-1]), limit)

    assert second.wait(DEADLINE) == 0, (tmp_path / "driver-again.log").read_text()
    assert committed(out) == expected(limit)


def test_a_supervised_continuous_job_outlives_the_jvm_of_its_driver_and_the_driver(tmp_path, monkeypatch):
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path / "home"))
    limit, out, gate = 4_000, tmp_path / "out", tmp_path / "go"
    options = {
        "high-availability.type": "filesystem",
        "high-availability.storageDir": str(tmp_path / "ha"),
        "high-availability.lease-duration": "2 s",
        "rest.enabled": "false",
    }
    defines = [part for key, value in options.items() for part in ("-D", f"{key}={value}")]
    (tmp_path / "program.py").write_text(program(tmp_path, None, limit, "continuous"))
    supervisor = run_python(
        tmp_path, "supervisor", "-m", "tidemark.cli", "run", "--supervise", *defines, "program.py"
    )
    log = tmp_path / "driver-supervisor.log"

    def newest() -> int:
        assert supervisor.poll() is None, log.read_text()
        found = completed_checkpoints(tmp_path / "checkpoints")
        return int(found[-1].name.split("-")[1]) if found else 0

    def kill(victim: str) -> None:
        before = newest()
        wait_for(lambda: newest() > before + 1)
        (driver,) = psutil.Process(supervisor.pid).children()
        (jvm,) = [child for child in driver.children() if child.name() == "java"]
        others = slots_of(driver.pid) + jvm.children(recursive=True)
        assert len(others) > 2, "two slots, and Python workers"
        (jvm if victim == "jvm" else driver).kill()
        _gone, alive = psutil.wait_procs([driver, jvm, *others], timeout=DEADLINE)
        assert not alive, log.read_text()

    try:
        kill("jvm")
        told = log.read_text()
        assert "The JVM of Spark's driver" in told
        assert "its next driver goes on with it" in told
        assert "is restarted in" not in told, "an attempt without a JVM"
        kill("driver")
        gate.touch()
        assert supervisor.wait(DEADLINE) == 0, log.read_text()
    finally:
        supervisor.terminate()
        supervisor.wait(DEADLINE)

    assert committed(out) == expected(limit)


def start_driver(tmp_path: Path, savepoint: str | None, limit: int) -> subprocess.Popen[str]:
    name = "start" if savepoint is None else "again"
    return run_python(tmp_path, name, "-c", program(tmp_path, savepoint, limit))


def program(tmp_path: Path, savepoint: str | None, limit: int, mode: str = "epochs") -> str:
    return DRIVER.format(
        root=str(ROOT),
        checkpoints=str(tmp_path / "checkpoints"),
        out=str(tmp_path / "out"),
        savepoint=savepoint,
        limit=limit,
        mode=mode,
    )


def run_python(tmp_path: Path, name: str, *arguments: str) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    log = open(tmp_path / f"driver-{name}.log", "w")  # noqa: SIM115 - the child owns it
    return subprocess.Popen(
        [sys.executable, *arguments], stdout=log, stderr=log, text=True, env=environment, cwd=str(tmp_path)
    )


def slots_of(driver: int) -> list[psutil.Process]:
    """Slots launched by the Spark of that driver: those of this test run that are younger than it."""
    since = psutil.Process(driver).create_time()
    return [slot for slot in living(slot_processes()) if slot.create_time() > since]


@pytest.mark.parametrize("first", [HashMapStateBackend, EmbeddedRocksDBStateBackend])
def test_a_savepoint_moves_to_another_backend_and_parallelism(make_env, tmp_path, first):
    second = EmbeddedRocksDBStateBackend if first is HashMapStateBackend else HashMapStateBackend
    limit = 20_000
    env = make_env(2)
    env.set_state_backend(first())
    build(env, limit, tmp_path / "go").add_sink(Discard())
    client = env.execute_async("before")
    wait_for(lambda: client.get_progress()["records"] > 500)
    path = client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result(DEADLINE)
    client.get_job_execution_result().result(DEADLINE)

    (tmp_path / "go").touch()
    env = make_env(3, **{"execution__savepoint__path": path})
    env.set_state_backend(second())
    results = list(build(env, limit, tmp_path / "go").execute_and_collect())

    final = {key: max(count for k, count in results if k == key) for key, _ in results}
    assert final == dict.fromkeys(range(10), limit // 10)
    assert len(results) < limit, "the second job must not start from the beginning"


def build(env: Any, limit: int, gate: Path) -> Any:
    return (
        env.add_source(SlowNumbers(limit, gate))
        .uid("numbers")
        .key_by(lambda n: n % 10, Types.LONG())
        .process(RunningCount(), Types.TUPLE([Types.LONG(), Types.LONG()]))
        .uid("counts")
    )
