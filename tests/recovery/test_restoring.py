"""Restoring from storage that fails and from checkpoints that are damaged: nothing lost, twice or deleted."""

from __future__ import annotations

import dataclasses
import errno
import os
import threading
import time
from pathlib import Path
from typing import ClassVar

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from tests.recovery.local_jobs import DEADLINE, Count, Numbers, board, local_env, new_board

from tidemark import (
    BucketAssigner,
    CheckpointedFunction,
    CustomCheckpointStorage,
    EmbeddedRocksDBStateBackend,
    Encoder,
    ExternalizedCheckpointRetention,
    FileSink,
    HashMapStateBackend,
    JobStatus,
    ListStateDescriptor,
    MapFunction,
    RestartStrategies,
    SourceFunction,
    Types,
)
from tidemark.checkpoint.metadata import read_metadata
from tidemark.checkpoint.metadata.registry import write_metadata
from tidemark.checkpoint.retention import QUARANTINE_FILE
from tidemark.checkpoint.storage import FileSystemStorage
from tidemark.errors import FencedError, JobExecutionException, RestoreError, StorageError

RETAIN = ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION


class Blocks(SourceFunction, CheckpointedFunction):
    """Emits blocks of ten numbers, as many as the board has released; publishes nothing itself."""

    def __init__(self, board_name, blocks):
        self.board_name, self.blocks, self.running = board_name, blocks, True

    def initialize_state(self, context):
        store = context.get_operator_state_store()
        self.state = store.get_list_state(ListStateDescriptor("offset", Types.LONG()))
        self.offset = next(iter(self.state.get()), 0)

    def snapshot_state(self, context):
        self.state.update([self.offset])
        board(self.board_name).note(context.get_checkpoint_id(), self.offset)

    def run(self, ctx):
        while self.running and self.offset < 10 * self.blocks:
            if self.offset >= 10 * board(self.board_name).values.get("released", 0):
                time.sleep(0.002)
                continue
            # In one step: no checkpoint is taken amid a block.
            with ctx.get_checkpoint_lock():
                for _ in range(10):
                    ctx.collect(self.offset)
                    self.offset += 1

    def cancel(self):
        self.running = False


class FailsOnce(MapFunction):
    """Does what the board says at a number, once."""

    def __init__(self, board_name):
        self.board_name = board_name

    def map(self, value):
        action = board(self.board_name).values.pop(f"at {value}", None)
        if action is not None:
            action()
        return value


class Job:
    """Numbers, counted per key, into files; every block of ten is covered by a checkpoint before the next."""

    BLOCKS = 4

    def __init__(
        self, tmp_path, *, storage=None, scheme="", retained=1, settings=None, backend=None, restarts=1000
    ):
        self.seen = new_board()
        self.directory, self.output, self.scheme = tmp_path / "checkpoints", tmp_path / "output", scheme
        self.env = local_env(
            {
                "state.checkpoints.dir": f"{scheme}{self.directory}",
                "state.checkpoints.num-retained": str(retained),
                "state.backend.fs.memory-threshold": "0",
                **(settings or {}),
            },
            2,
            backend or HashMapStateBackend(),
        )
        self.env.enable_checkpointing(10)
        self.env.get_checkpoint_config().set_externalized_checkpoint_retention(RETAIN)
        if storage is not None:
            custom = CustomCheckpointStorage(storage, str(self.directory))
            self.env.get_checkpoint_config().set_checkpoint_storage(custom)
        self.env.set_restart_strategy(RestartStrategies.fixed_delay_restart(restarts, 1))
        self.source = Blocks(self.seen.name, self.BLOCKS)

    def start(self):
        numbers = self.env.add_source(self.source, type_info=Types.LONG()).uid("numbers").set_parallelism(1)
        counted = numbers.map(FailsOnce(self.seen.name), Types.LONG()).key_by(lambda n: n % 3, Types.LONG())
        lines = counted.process(Count()).uid("count").map(lambda pair: f"{pair[0]},{pair[1]}", Types.STRING())
        encoder = Encoder.simple_string_encoder()
        sink = FileSink.for_row_format(str(self.output), encoder)
        sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        lines.sink_to(sink.build()).name("files").uid("files")
        self.client = self.env.execute_async("restoring")
        return self

    @property
    def runner(self):
        return self.client.runner

    def release(self, block):
        """Let a block out and wait until completed checkpoints cover it, from its source to its output.

        A checkpoint that knows the source's offset may hold the block as emitted, but not yet counted.
        """
        self.seen.set("released", block)
        until(lambda: self.covering(10 * block) and len(self.lines()) >= 10 * block)

    def covering(self, offset):
        cuts = dict(event for event in self.seen.events if isinstance(event, tuple))
        done = [s.checkpoint_id for s in self.runner.execution.coordinator.completed.checkpoints()]
        return [n for n in done if cuts.get(n) == offset]

    def fail_at(self, number, first=lambda: None):
        def action():
            first()
            raise ValueError("on purpose")

        self.seen.set(f"at {number}", action)

    def newest(self):
        """The directory of the newest completed checkpoint."""
        return self.retained()[-1]

    def retained(self):
        """Directories of completed checkpoints, oldest first; none completes while functions run."""
        found = self.runner.execution.coordinator.completed.checkpoints()
        return [Path(snapshot.directory.removeprefix(self.scheme)) for snapshot in found]

    def checkpoints(self):
        return list((self.directory / str(self.client.get_job_id())).glob("chk-*"))

    def finish(self):
        self.seen.set("released", self.BLOCKS)
        return self.end()

    def end(self):
        error = self.client.get_job_execution_result().exception(DEADLINE)
        self.runner.join(DEADLINE)
        return error

    def lines(self):
        files = [path for path in self.output.rglob("*") if path.is_file() and path.name[0] != "."]
        return sorted(line for path in files for line in path.read_text().splitlines())


def expected(numbers=40):
    return sorted(f"{n % 3},{n // 3 + 1}" for n in range(numbers))


def until(condition):
    deadline = time.monotonic() + DEADLINE
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)
    return found


class Faulty(FileSystemStorage):
    """A user's storage whose reads fail as often as it is told, with plain errors."""

    def __init__(self, *errors):
        super().__init__(sync=False)
        self.errors, self.armed, self.raised = list(errors), threading.Event(), 0

    def read(self, path):
        if self.armed.is_set() and self.errors:
            self.raised += 1
            raise self.errors.pop(0)
        return super().read(path)


class LosesOutput(FileSystemStorage):
    """A user's storage during whose commit point, once it is armed, all that file sinks have staged is lost."""

    def __init__(self, output):
        super().__init__(sync=False)
        self.output, self.armed = output, threading.Event()

    def write(self, path, data):
        super().write(path, data)
        if self.armed.is_set() and path.endswith("_metadata"):
            for staged in self.output.rglob("*.inprogress"):
                staged.unlink()


class ShakyDisk(LocalFileSystem):
    """This machine's disk, which gives an I/O error for the files it is told."""

    protocol = "shaky"
    broken: ClassVar[set[str]] = set()
    refused: ClassVar[list[str]] = []

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.removeprefix("shaky://"))

    def _open(self, path, mode="rb", block_size=None, **options):
        if "r" in mode and path in self.broken:
            self.refused.append(path)
            raise EIO
        return super()._open(path, mode, block_size, **options)


@pytest.fixture
def shaky():
    fsspec.register_implementation("shaky", ShakyDisk, clobber=True)
    ShakyDisk.broken.clear()
    ShakyDisk.refused.clear()
    yield ShakyDisk
    ShakyDisk.broken.clear()


BACKENDS = {"heap": HashMapStateBackend(), "rocksdb": EmbeddedRocksDBStateBackend(True)}
EIO = OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("retained", [1, 2])
@pytest.mark.parametrize(
    "errors",
    [[EIO], [TimeoutError("too slow"), ConnectionResetError("peer"), PermissionError("not now")]],
    ids=["one-eio", "several"],
)
def test_a_storage_that_fails_for_a_while_during_restore_costs_attempts_and_nothing_else(
    tmp_path, retained, errors
):
    storage = Faulty(*errors)
    job = Job(tmp_path, storage=storage, retained=retained).start()
    job.release(1)
    job.release(2)
    job.fail_at(25, storage.armed.set)

    assert job.finish() is None
    assert job.lines() == expected()
    assert storage.raised == len(errors)
    assert job.runner.execution.attempt == 1 + len(errors)


def test_a_storage_that_never_answers_again_ends_the_job_but_not_its_checkpoint(tmp_path):
    storage = Faulty(*[EIO] * 50)
    # Even without retention: nothing is deleted because it could not be read.
    job = Job(tmp_path, storage=storage, restarts=3)
    config = job.env.get_checkpoint_config()
    config.set_externalized_checkpoint_retention(ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS)
    job.start()
    job.release(1)
    job.fail_at(15, storage.armed.set)

    error = job.finish()

    assert isinstance(error.__cause__, StorageError)
    assert "Input/output error" in str(error)
    assert job.runner.execution.attempt == 3
    assert (job.newest() / "_metadata").is_file()
    storage.armed.clear()
    resumed = Job(tmp_path, settings={"execution.savepoint.path": str(job.newest())}).start()
    assert resumed.finish() is None
    assert resumed.lines() == expected()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("what", ["metadata", "state"])
def test_a_file_that_cannot_be_read_for_a_while_is_read_by_a_later_attempt(tmp_path, shaky, backend, what):
    job = Job(tmp_path, scheme="shaky://", retained=2, backend=BACKENDS[backend]).start()
    job.release(1)
    job.release(2)

    def break_newest():
        shaky.broken.add(str((metadata_file if what == "metadata" else state_file)(job.newest())))

    job.fail_at(25, break_newest)
    job.seen.set("released", job.BLOCKS)
    until(lambda: len(shaky.refused) > 3)
    shaky.broken.clear()

    assert job.finish() is None
    assert job.lines() == expected()
    assert not list(job.directory.rglob(QUARANTINE_FILE))


def test_when_output_is_lost_before_its_commit_the_older_checkpoint_is_still_there_to_start_from(tmp_path):
    storage = LosesOutput(tmp_path / "output")
    job = Job(tmp_path, storage=storage, retained=1).start()
    job.release(1)
    storage.armed.set()

    error = job.finish()

    assert isinstance(error.__cause__, RestoreError)
    assert "start the job from an older snapshot" in str(error)
    storage.armed.clear()
    older, _newer = sorted(job.checkpoints(), key=lambda path: int(path.name[4:]))
    resumed = Job(tmp_path, settings={"execution.savepoint.path": str(older)}).start()
    assert resumed.finish() is None
    assert resumed.lines() == expected()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_link_inside_a_snapshot_that_a_job_is_started_from_fails_it_at_once(tmp_path, backend):
    first = Job(tmp_path, backend=BACKENDS[backend]).start()
    first.release(1)
    first.client.cancel().result(DEADLINE)
    [snapshot] = first.checkpoints()
    link = state_file(snapshot)
    link.rename(tmp_path / "elsewhere")
    link.symlink_to(tmp_path / "elsewhere")

    settings = {"execution.savepoint.path": str(snapshot)}
    second = Job(tmp_path, backend=BACKENDS[backend], settings=settings).start()

    error = second.end()
    assert isinstance(error.__cause__, StorageError)
    assert f"{link} is a symbolic link" in str(error)
    assert "remove it" in str(error)
    assert second.runner.status is JobStatus.FAILED
    assert second.runner.execution.attempt == 0, "a link goes away only if somebody removes it"
    assert link.is_symlink(), "nothing is deleted because it could not be read"


def metadata_file(checkpoint: Path) -> Path:
    return checkpoint / "_metadata"


def state_file(checkpoint: Path) -> Path:
    """A file of keyed state that the checkpoint needs."""
    own = [path for path in checkpoint.rglob("count/**/*") if path.is_file()]
    names = read_metadata(FileSystemStorage(), str(checkpoint)).shared_files()
    shared = [checkpoint.parent / "shared" / name for name in names if name.endswith(".sst")]
    return max([*own, *shared], key=lambda path: path.stat().st_size)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGES = {
    "metadata flipped": (metadata_file, flip),
    "metadata truncated": (metadata_file, lambda path: os.truncate(path, 40)),
    "metadata missing": (metadata_file, Path.unlink),
    "state flipped": (state_file, flip),
    "state missing": (state_file, Path.unlink),
}
MANY = 1000
"""Checkpoints retained, so that one without the second block is there however many were taken after it."""


def damaged(tmp_path, damage, policy=None, retained=MANY, backend=None):
    """A job that fails after all checkpoints from its second block on were damaged.

    Returns:
        The job, its error, the directories of those checkpoints, and all files that were retained.
    """
    settings = {} if policy is None else {"execution.checkpointing.allow-fallback": policy}
    job = Job(tmp_path, retained=retained, settings=settings, backend=backend).start()
    job.release(1)
    job.release(2)
    spoiled, kept = [], set()

    def spoil():
        find, act = DAMAGES[damage]
        first = min(job.covering(20))
        spoiled.extend(path for path in job.retained() if int(path.name[4:]) >= first)
        for path in {find(checkpoint) for checkpoint in spoiled}:
            act(path)
        shared = job.runner.execution.coordinator.completed.latest().shared_files
        kept.update(path for directory in job.retained() for path in directory.rglob("*") if path.is_file())
        kept.update(path for name in shared if (path := spoiled[0].parent / "shared" / name).exists())

    job.fail_at(25, spoil)
    error = job.finish()
    assert spoiled
    return job, error, spoiled, kept


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("retained", [1, MANY])
def test_a_job_with_a_damaged_checkpoint_fails_at_once_and_everything_it_retained_is_still_there(
    tmp_path, damage, retained
):
    job, error, spoiled, kept = damaged(tmp_path, damage, retained=retained)

    assert isinstance(error, JobExecutionException)
    assert isinstance(error.__cause__, RestoreError)
    assert str(spoiled[-1]) in str(error)
    assert job.runner.status is JobStatus.FAILED
    assert job.runner.execution.attempt == 1, "no restart can cure it"
    if retained == 1:
        assert "None of the job's snapshots can be restored" in str(error)
    else:
        assert "execution.checkpointing.allow-fallback" in str(error)
    assert all(path.is_file() for path in kept)
    # An older one is not even tried: whether the job may go back to it is asked first.
    assert (spoiled[-1] / QUARANTINE_FILE).is_file()
    assert job.lines() == expected(20), "what was published stays, once"


@pytest.mark.parametrize("damage", ["state flipped", "state missing"])
def test_what_was_published_after_the_older_checkpoint_is_withdrawn(tmp_path, damage, caplog):
    job, error, spoiled, _kept = damaged(tmp_path, damage, "withdraw")

    assert error is None
    assert job.lines() == expected()
    assert "taken back" in caplog.text
    assert sorted(job.checkpoints()) == sorted(spoiled), (
        "quarantined checkpoints outlive the job, others do not"
    )
    coordinator = job.runner.execution.coordinator
    assert [Path(snapshot.directory) for snapshot in coordinator.completed.quarantined()] == spoiled


def test_what_is_published_stays_noted_while_a_checkpoint_in_quarantine_outlives_the_job(tmp_path):
    job, error, spoiled, _kept = damaged(tmp_path, "state flipped", "withdraw")
    assert error is None
    for file in {state_file(checkpoint) for checkpoint in spoiled}:
        flip(file)  # somebody has mended it

    error = Job(tmp_path, settings={"execution.savepoint.path": str(spoiled[-1])}).start().finish()

    assert isinstance(error.__cause__, FencedError)
    assert "has taken back" in str(error)
    assert "start from that snapshot or a newer one" in str(error)
    assert job.lines() == expected()


def test_a_driver_that_dies_right_after_a_withdrawal_can_be_followed_from_the_older_checkpoint(tmp_path):
    job = Job(
        tmp_path, retained=MANY, settings={"execution.checkpointing.allow-fallback": "withdraw"}
    ).start()
    job.release(1)
    job.release(2)

    def spoil():
        for checkpoint in job.retained():
            if int(checkpoint.name[4:]) in set(job.covering(20)):
                flip(state_file(checkpoint))
        job.runner.execution.reached = die

    def die(point):
        if point == "restore":
            raise RestoreError("the driver is gone")

    job.fail_at(25, spoil)
    assert "the driver is gone" in str(job.finish())
    assert len(job.lines()) < 20, "output was taken back"
    older = job.newest()

    resumed = Job(tmp_path, settings={"execution.savepoint.path": str(older)}).start()

    assert resumed.finish() is None
    assert resumed.lines() == expected()


@pytest.mark.parametrize("policy", ["never", "withdraw"])
@pytest.mark.parametrize("damage", ["state flipped", "state missing"])
def test_shared_files_of_quarantined_checkpoints_stay_however_the_job_ends(tmp_path, damage, policy):
    backend = EmbeddedRocksDBStateBackend(True)
    _job, error, spoiled, kept = damaged(tmp_path, damage, policy, backend=backend)

    # Older checkpoints may share the damaged file and be damaged as well.
    assert error is None or isinstance(error.__cause__, RestoreError)
    mine = {path for path in kept if path.parent.name == "shared" or path.is_relative_to(spoiled[-1])}
    assert any(path.parent.name == "shared" for path in mine)
    assert all(path.is_file() for path in mine)


def test_output_that_cannot_be_listed_is_not_withdrawn(tmp_path):
    job, error, _spoiled, kept = damaged(tmp_path, "metadata flipped", "withdraw")

    assert isinstance(error.__cause__, RestoreError)
    assert "its metadata cannot be read" in str(error)
    assert job.lines() == expected(20)
    assert all(path.is_file() for path in kept)


def test_output_comes_twice_only_where_that_was_accepted(tmp_path, caplog):
    job, error, _spoiled, _kept = damaged(tmp_path, "state flipped", "duplicate")

    assert error is None
    assert set(job.lines()) == set(expected())
    assert len(job.lines()) > len(expected())
    assert "COMES A SECOND TIME" in caplog.text


@pytest.mark.parametrize("told", [True, False])
def test_a_user_who_starts_from_an_older_checkpoint_has_to_accept_duplicates(tmp_path, told):
    job = Job(tmp_path, retained=2).start()
    job.release(1)
    job.release(2)
    job.client.cancel().result(DEADLINE)
    older, _newer = sorted(job.checkpoints(), key=lambda path: int(path.name[4:]))

    settings = {"execution.savepoint.path": str(older)}
    if told:
        settings["execution.checkpointing.allow-fallback"] = "duplicate"

    resumed = Job(tmp_path, settings=settings).start()

    error = resumed.finish()
    if told:
        assert error is None
        assert set(resumed.lines()) == set(expected())
    else:
        assert "allow-fallback: duplicate" in str(error)


def test_a_checkpoint_directory_that_is_away_for_a_while_is_waited_for(tmp_path):
    job = Job(tmp_path, retained=2).start()
    job.release(1)
    job.release(2)
    away = tmp_path / "away"
    job.fail_at(25, lambda: job.newest().parent.rename(away))
    job.seen.set("released", 3)
    until(lambda: len(job.runner.failures) > 3)
    # A checkpoint that was being written may have made the directory anew, so the old ones are moved into it;
    # the newest first, which is the one to wait for.
    home = job.directory / str(job.client.get_job_id())
    home.mkdir(exist_ok=True)
    for path in sorted(away.glob("chk-*/_metadata"), key=lambda path: -int(path.parent.name[4:])):
        path.parent.rename(home / path.parent.name)

    assert job.finish() is None
    assert job.lines() == expected()


def test_a_function_that_acts_on_completed_checkpoints_counts_as_published_output(tmp_path):
    job = Job(tmp_path, retained=2, settings={"execution.checkpointing.allow-fallback": "withdraw"})
    job.source = Numbers(job.seen.name, job.BLOCKS, 10)

    job.fail_at(35, lambda: flip(state_file(job.newest())))
    job.start()

    error = job.end()
    assert "cannot take output back" in str(error)
    assert "function" in str(error)


def test_a_checkpoint_that_somebody_has_replaced_is_not_restored(tmp_path):
    """Its own checksums are right: it may hold anything, pickles among it."""
    job = Job(tmp_path).start()
    job.release(1)
    job.release(2)
    replaced = []

    def replace_newest():
        storage = FileSystemStorage(sync=False)
        replaced.append(str(job.newest()))
        metadata = read_metadata(storage, replaced[0])
        write_metadata(storage, replaced[0], dataclasses.replace(metadata, timestamp=metadata.timestamp + 1))

    job.fail_at(25, replace_newest)
    error = job.finish()

    assert "somebody has replaced it" in str(error)
    assert replaced[0] in str(error)
    assert job.runner.status is JobStatus.FAILED
