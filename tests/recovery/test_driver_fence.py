"""Two drivers of one lineage: whoever wakes up late or starts behind publishes nothing, and says why. No JVM."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from tests.recovery.killed_driver import TOTAL
from tests.recovery.local_jobs import DEADLINE, Numbers, local_env, new_board
from tests.recovery.local_jobs import board as board_of
from tests.watching import files_below

from tidemark import (
    BucketAssigner,
    CheckpointListener,
    Encoder,
    ExternalizedCheckpointRetention,
    FileSink,
    JobStatus,
    RestartStrategies,
    Types,
)
from tidemark.errors import CheckpointError, ExecutionError, FencedError

PROGRAM = str(Path(__file__).with_name("killed_driver.py"))
PATIENCE = 300
"""Seconds for a whole program on a slow machine."""


class Driver:
    """The program as a process of its own."""

    def __init__(self, directory: Path, checkpoint: str | None = None) -> None:
        command = [sys.executable, PROGRAM, str(directory), "heap", *([checkpoint] if checkpoint else [])]
        scratch = {**os.environ, "TMPDIR": str(directory)}
        self.log = directory / f"driver-{len(list(directory.glob('driver-*')))}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=scratch)

    def wait_for(self, text: str, times: int = 1) -> None:
        deadline = time.monotonic() + PATIENCE
        while self.log.read_text().count(text) < times:
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.005)

    def end(self) -> str:
        """Wait for its end; what it said."""
        self.process.wait(PATIENCE)
        return self.log.read_text()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()


@pytest.fixture
def start(tmp_path: Path) -> Any:
    with contextlib.ExitStack() as drivers:

        def new(checkpoint: str | None = None) -> Driver:
            driver = Driver(tmp_path, checkpoint)
            drivers.callback(driver.kill)
            return driver

        yield new


def checkpoints(directory: Path) -> list[str]:
    """Complete ones of all jobs, newest first."""
    found = list((directory / "checkpoints").glob("*/chk-*/_metadata"))
    found.sort(key=lambda path: (int(path.parent.name[4:]), path.stat().st_mtime_ns), reverse=True)
    return [str(path.parent) for path in found]


def published(directory: Path) -> Counter[str]:
    visible = [path for path in files_below(directory / "out", "*") if path.name[0] != "."]
    return Counter(line for path in visible for line in path.read_text().splitlines())


EXACT = Counter(f"{key} {count}" for key in range(50) for count in range(1, TOTAL // 50 + 1))


@pytest.mark.slow
@pytest.mark.parametrize("completions", [1, 6])
def test_a_frozen_driver_that_wakes_up_after_the_takeover_stops_and_publishes_nothing(
    tmp_path: Path, start: Any, completions: int
) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    frozen = start()
    frozen.wait_for("complete", completions)
    frozen.process.send_signal(signal.SIGSTOP)
    successor = start(checkpoints(tmp_path)[0])
    successor.wait_for("complete", 2)

    frozen.process.send_signal(signal.SIGCONT)

    hold.unlink()
    assert "FencedError" in frozen.end()
    assert frozen.process.returncode == 1
    assert "finished" in successor.end()
    assert published(tmp_path) == EXACT
    assert not list((tmp_path / "out").rglob("*.inprogress"))


@pytest.mark.slow
def test_a_frozen_driver_that_wakes_up_after_its_successor_has_ended_stops_too(
    tmp_path: Path, start: Any
) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    frozen = start()
    frozen.wait_for("complete", 3)
    frozen.process.send_signal(signal.SIGSTOP)
    hold.unlink()
    successor = start(checkpoints(tmp_path)[0])
    assert "finished" in successor.end()

    frozen.process.send_signal(signal.SIGCONT)

    assert "FencedError" in frozen.end()
    assert published(tmp_path) == EXACT


@pytest.mark.slow
def test_of_two_drivers_started_from_one_checkpoint_one_at_most_publishes(tmp_path: Path, start: Any) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    first = start()
    first.wait_for("complete", 3)
    first.kill()
    hold.unlink()
    checkpoint = checkpoints(tmp_path)[0]

    drivers = [start(checkpoint), start(checkpoint)]
    said = [driver.end() for driver in drivers]

    finished = ["finished" in text for text in said]
    assert sum(finished) <= 1
    assert all(done or "FencedError" in text for done, text in zip(finished, said, strict=True)), said
    if not any(finished):
        # The second one claimed just when the first one published for the first time: both were refused.
        assert any("finished" in start(path).end() for path in checkpoints(tmp_path))
    assert published(tmp_path) == EXACT


def job(
    board: Any,
    out: str,
    settings: dict[str, str],
    interval: int = 10,
    retain: bool = True,
    source: type[Numbers] = Numbers,
    restarts: int = 1000,
) -> Any:
    env = local_env(settings)
    env.enable_checkpointing(interval)
    if retain:
        retention = ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
        env.get_checkpoint_config().set_externalized_checkpoint_retention(retention)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(restarts, 0))
    numbers = env.add_source(source(board.name, 4, bounded=False), type_info=Types.LONG()).uid("numbers")
    sink = FileSink.for_row_format(out, Encoder.simple_string_encoder())
    sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    numbers.map(str, Types.STRING()).sink_to(sink.build()).uid("out")
    return env.execute_async()


def retained(tmp_path: Path) -> str:
    """A checkpoint of a job that was cancelled amid its stream; its sink is another one's."""
    board = new_board()
    client = job(board, str(tmp_path / "first"), {"state.checkpoints.dir": str(tmp_path / "checkpoints")})
    board.wait(lambda board: ("complete", 1) in board.events)
    client.cancel().result(DEADLINE)
    return checkpoints(tmp_path)[0]


def failure(client: Any) -> BaseException:
    error = client.get_job_execution_result().exception(DEADLINE)
    assert isinstance(error, ExecutionError)
    assert client.get_job_status().result() is JobStatus.FAILED
    assert error.__cause__ is not None
    return error.__cause__


class Gate(MemoryFileSystem):
    """A file system whose next rename waits, as that of a driver that is frozen between its check and the rename."""

    protocol = "gate"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    frozen: ClassVar[threading.Event] = threading.Event()
    thaw: ClassVar[threading.Event] = threading.Event()

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("gate://", "memory://")))

    def mv(self, path1: str, path2: str, **options: Any) -> None:
        if not self.frozen.is_set():
            self.frozen.set()
            assert self.thaw.wait(DEADLINE)
        super().mv(path1, path2, **options)


def test_a_driver_frozen_between_its_check_and_the_rename_publishes_nothing(tmp_path: Path) -> None:
    fsspec.register_implementation("gate", Gate, clobber=True)
    Gate.store.clear()
    Gate.pseudo_dirs[:] = [""]
    Gate.frozen.clear()
    Gate.thaw.clear()
    settings = {"state.checkpoints.dir": str(tmp_path / "checkpoints")}
    first, second = new_board(), new_board()
    frozen = job(first, "gate://out", settings, retain=False)
    assert Gate.frozen.wait(DEADLINE)
    successor = job(second, "gate://out", {**settings, "execution.savepoint.path": checkpoints(tmp_path)[0]})
    second.wait_set("emitted")
    Gate.thaw.set()

    assert isinstance(failure(frozen), FencedError)
    second.set("end")
    successor.get_job_execution_result().result(DEADLINE)
    files = fsspec.filesystem("gate")
    visible = [path for path in files.find("/out") if "/." not in path]
    lines = Counter(b"".join(files.cat(visible).values()).split())
    assert lines == Counter(str(number).encode() for number in range(40))
    assert checkpoints(tmp_path), "a driver that lost its sinks deletes no checkpoint: others depend on them"


def until(condition: Any) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_the_older_of_two_drivers_from_one_checkpoint_completes_no_snapshot_any_more(tmp_path: Path) -> None:
    settings = {"execution.savepoint.path": retained(tmp_path)}
    out = tmp_path / "out"
    one, two = new_board(), new_board()
    # The older one takes no checkpoint by itself: nothing it has made is visible when the newer one comes.
    older = job(one, str(out), settings, interval=3_600_000)
    until(lambda: list(out.glob(".tidemark-*/.generation-*")))
    newer = job(two, str(out), settings)
    two.wait_set("emitted")

    savepoint = older.trigger_savepoint(str(tmp_path / "savepoints"))

    assert savepoint.exception(DEADLINE) is not None
    assert isinstance(failure(older), FencedError)
    assert not list((tmp_path / "savepoints").rglob("_metadata"))
    two.set("end")
    newer.get_job_execution_result().result(DEADLINE)
    start = min(int(line) for line in published(tmp_path))
    assert published(tmp_path) == Counter(str(number) for number in range(start, 40))


def test_a_driver_that_starts_behind_what_another_has_published_is_refused(tmp_path: Path) -> None:
    settings = {"execution.savepoint.path": retained(tmp_path)}
    out = str(tmp_path / "out")
    one, two = new_board(), new_board()
    older = job(one, out, settings)
    one.wait_set("emitted")
    newer = job(two, out, settings)

    error = failure(newer)
    assert isinstance(error, FencedError)
    assert "Start from the newest snapshot" in str(error)
    one.set("end")
    older.get_job_execution_result().result(DEADLINE)
    assert max(published(tmp_path).values()) == 1


def highly_available(tmp_path: Path) -> dict[str, str]:
    return {
        "state.checkpoints.dir": str(tmp_path / "checkpoints"),
        "high-availability.type": "filesystem",
        "high-availability.storageDir": str(tmp_path / "ha"),
        "execution.job-id": "ab" * 16,
    }


def test_a_highly_available_driver_that_a_sink_refuses_deletes_no_checkpoint(tmp_path: Path) -> None:
    settings = highly_available(tmp_path)
    one, two = new_board(), new_board()
    first = job(one, str(tmp_path / "out"), settings)
    one.wait(lambda board: ("complete", 2) in board.events)
    first.cancel().result(DEADLINE)
    before = list((tmp_path / "checkpoints").rglob("_metadata"))
    # Nothing knows of the first driver but the sink, so the next one starts from the beginning.
    shutil.rmtree(tmp_path / "ha")

    assert isinstance(failure(job(two, str(tmp_path / "out"), settings, retain=False)), FencedError)

    assert before
    assert all(path.exists() for path in before)
    assert max(published(tmp_path).values()) == 1


class Fails(Numbers):
    """Takes no checkpoint any more when the board says so."""

    def snapshot_state(self, context: Any) -> None:
        if board_of(self.board_name).values.get("fail"):
            raise ValueError("as the test wishes")
        super().snapshot_state(context)


def test_a_damaged_checkpoint_of_a_former_driver_outlives_its_successor(tmp_path: Path) -> None:
    settings = {**highly_available(tmp_path), "state.checkpoints.num-retained": "2"}
    settings["execution.checkpointing.allow-fallback"] = "duplicate"
    one, two = new_board(), new_board()
    first = job(one, str(tmp_path / "out"), settings, source=Fails, restarts=0)
    one.wait(lambda board: ("complete", 3) in board.events)
    one.set("fail")
    assert isinstance(failure(first), CheckpointError)
    damaged = max((tmp_path / "checkpoints").rglob("_metadata"), key=lambda path: path.stat().st_mtime_ns)
    damaged.write_bytes(damaged.read_bytes()[:-1])

    second = job(two, str(tmp_path / "out"), settings)
    two.wait_set("emitted")
    two.set("end")
    second.get_job_execution_result().result(DEADLINE)

    assert list((tmp_path / "checkpoints").rglob("_metadata")) == [damaged]
    assert damaged.with_name("_quarantined").exists()


class Unconfirmed(Numbers):
    """Does nothing when a checkpoint completes, so there is nothing it could not take back; waits by its cuts."""

    notify_checkpoint_complete = CheckpointListener.notify_checkpoint_complete

    def snapshot_state(self, context: Any) -> None:
        super().snapshot_state(context)
        # The cut before this one is complete: there is one checkpoint at a time.
        self.covered = max(
            [cut for at, cut in self.cuts.items() if at < context.get_checkpoint_id()], default=0
        )
        self.told.set()


def cancelled_with_many_checkpoints(tmp_path: Path) -> dict[str, str]:
    """Settings of a job that has published 40 numbers, was cancelled, and is to start from its oldest checkpoint."""
    board = new_board()
    settings = {
        "state.checkpoints.dir": str(tmp_path / "checkpoints"),
        "state.checkpoints.num-retained": "1000",
    }
    client = job(board, str(tmp_path / "out"), settings, source=Unconfirmed)
    board.wait_set("emitted")
    client.cancel().result(DEADLINE)
    assert published(tmp_path) == Counter(str(number) for number in range(40))
    return {**settings, "execution.savepoint.path": checkpoints(tmp_path)[-1]}


def test_a_job_started_from_an_older_checkpoint_takes_back_what_was_published_since(tmp_path: Path) -> None:
    settings = cancelled_with_many_checkpoints(tmp_path)
    files = set((tmp_path / "out").glob("part-*"))
    board = new_board()
    settings["execution.checkpointing.allow-fallback"] = "withdraw"
    client = job(board, str(tmp_path / "out"), settings, source=Unconfirmed)
    board.set("end")
    client.get_job_execution_result().result(DEADLINE)

    assert published(tmp_path) == Counter(str(number) for number in range(40))
    assert files - set((tmp_path / "out").glob("part-*")), "something had to be taken back"


@pytest.mark.parametrize("policy", ["never", "withdraw"])
def test_what_cannot_be_listed_or_may_not_be_taken_back_stays_and_the_job_is_refused(
    tmp_path: Path, policy: str
) -> None:
    settings = cancelled_with_many_checkpoints(tmp_path)
    if policy == "withdraw":
        # Perhaps that one was a savepoint, whose files nobody here can list.
        shutil.rmtree(checkpoints(tmp_path)[-2])
    board = new_board()
    client = job(board, str(tmp_path / "out"), {**settings, "execution.checkpointing.allow-fallback": policy})

    error = failure(client)
    assert isinstance(error, FencedError)
    assert "withdraw" in str(error)
    assert published(tmp_path) == Counter(str(number) for number in range(40))


def test_two_jobs_from_one_savepoint_into_different_sinks_go_on(tmp_path: Path) -> None:
    settings = {"execution.savepoint.path": retained(tmp_path)}
    boards = [new_board(), new_board()]
    clients = [job(board, str(tmp_path / f"out-{at}"), settings) for at, board in enumerate(boards)]
    for board in boards:
        board.set("end")
    for client in clients:
        client.get_job_execution_result().result(DEADLINE)

    for at in range(2):
        lines = [
            line for path in (tmp_path / f"out-{at}").glob("part-*") for line in path.read_text().split()
        ]
        assert len(lines) == len(set(lines)) > 0


def test_unrelated_jobs_share_a_directory(tmp_path: Path) -> None:
    boards = [new_board(), new_board()]
    clients = [job(board, str(tmp_path / "out"), {}) for board in boards]
    for board in boards:
        board.set("end")
    for client in clients:
        client.get_job_execution_result().result(DEADLINE)

    assert published(tmp_path) == Counter({str(number): 2 for number in range(40)})
    assert not list((tmp_path / "out").glob(".tidemark*"))
