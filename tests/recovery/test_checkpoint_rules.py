"""What checkpoints keep, refuse and survive, in the local executor: retention, knobs, damage, restore rules."""

from __future__ import annotations

import itertools
import os
import tempfile
import threading
from pathlib import Path

import pytest
from tests.recovery.local_jobs import DEADLINE, Count, Numbers, board, finals, local_env, new_board

from tidemark import (
    CheckpointedFunction,
    EmbeddedRocksDBStateBackend,
    ExternalizedCheckpointRetention,
    HashMapStateBackend,
    JobStatus,
    MapFunction,
    RestartStrategies,
    SourceFunction,
    Types,
)
from tidemark.checkpoint.statistics import CheckpointStatus
from tidemark.checkpoint.storage.filesystem import FileSystemStorage
from tidemark.clock import ManualClock
from tidemark.errors import (
    ConfigError,
    FailureReason,
    IllegalStateError,
    JobExecutionException,
    SavepointNotFoundError,
)
from tidemark.testing import CHECKPOINT, CRASH, CRASH_AT, END
from tidemark.testing.crash_job import build_crash_job, close_journal
from tidemark.testing.scripts import _Script
from tidemark.testing.strategies import random_schedule

ENDS = [JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.FAILED]
RETENTIONS = ExternalizedCheckpointRetention


class Steps(MapFunction):
    """Does at chosen numbers what the board says: nothing, or a call that may raise."""

    def __init__(self, board_name):
        self.board_name = board_name

    def map(self, value):
        action = board(self.board_name).values.pop(value, None)
        if action is not None:
            action()
        return value


class Job:
    """A job that counts the numbers of a source that waits for checkpoints, with files for its snapshots."""

    def __init__(
        self, tmp_path, *, blocks=2, bounded=False, settings=None, parallelism=1, backend=None, groups=None
    ):
        self.seen = new_board()
        self.directory = tmp_path / "checkpoints"
        self.env = local_env(
            {
                "state.checkpoints.dir": str(self.directory),
                "state.savepoints.dir": str(tmp_path / "savepoints"),
                "state.backend.fs.memory-threshold": "0",
                **(settings or {}),
            },
            parallelism,
            backend or HashMapStateBackend(),
        )
        if groups is not None:
            self.env.set_max_parallelism(groups)
        self.env.enable_checkpointing(10)
        self.env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 1))
        numbers = self.env.add_source(Numbers(self.seen.name, blocks, 5, bounded), type_info=Types.LONG())
        self.stream = numbers.uid("numbers").map(Steps(self.seen.name), Types.LONG())
        self.counted = self.stream.key_by(lambda n: n % 3, Types.LONG()).process(Count()).uid("count")

    def start(self):
        self.results = self.counted.execute_and_collect()
        self.client = self.results.get_job_client()
        return self

    def execution(self):
        return self.client.runner.execution

    def records(self):
        return self.execution().coordinator.statistics.records()

    def completed(self):
        """Directories of completed checkpoints of this job."""
        found = self.directory.glob(f"{self.client.get_job_id()}/chk-*/_metadata")
        return sorted((path.parent for path in found), key=lambda path: int(path.name[4:]))

    def finish(self):
        self.seen.set("end")
        return finals(self.results)


def counts(last):
    return {k: len(range(k, last, 3)) for k in range(3)}


def fail(text="on purpose"):
    raise ValueError(text)


@pytest.mark.parametrize("retention", RETENTIONS, ids=lambda value: value.name)
@pytest.mark.parametrize(
    "end", [JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.FAILED], ids=lambda value: value.name
)
def test_what_is_kept_when_a_job_ends(tmp_path, retention, end):
    job = Job(tmp_path)
    job.env.get_checkpoint_config().set_externalized_checkpoint_retention(retention)
    job.env.set_restart_strategy(RestartStrategies.no_restart())
    if end is JobStatus.FAILED:
        job.seen.set(7, fail)
    job.start()
    if end is not JobStatus.FAILED:
        job.seen.wait_set("emitted")
    if end is JobStatus.CANCELED:
        job.client.cancel().result(DEADLINE)
    job.seen.set("end")
    job.client.get_job_execution_result().exception(DEADLINE)
    assert job.client.get_job_status().result() is end
    kept = {
        RETENTIONS.NO_EXTERNALIZED_CHECKPOINTS: (),
        RETENTIONS.DELETE_ON_CANCELLATION: (JobStatus.FAILED,),
        RETENTIONS.RETAIN_ON_CANCELLATION: (JobStatus.FAILED, JobStatus.CANCELED),
    }[retention]
    assert len(job.completed()) == (end in kept)
    if end not in kept:
        assert not list(job.directory.rglob("*/chk-*"))


def retained(tmp_path, **options):
    """A retained checkpoint after ten numbers, and the directory it is in."""
    job = Job(tmp_path, **options)
    job.env.get_checkpoint_config().set_externalized_checkpoint_retention(RETENTIONS.RETAIN_ON_CANCELLATION)
    job.start()
    job.seen.wait_set("emitted")
    # The first checkpoint from here may still hold numbers the source has emitted and nobody has counted.
    enough = completions(job.seen) + 2
    job.seen.wait(lambda seen: completions(seen) >= enough)
    job.client.cancel().result(DEADLINE)
    return job, str(job.completed()[-1])


def completions(seen):
    return sum(event[0] == "complete" for event in seen.events)


@pytest.mark.parametrize(
    "backend", [HashMapStateBackend(), EmbeddedRocksDBStateBackend(True)], ids=["heap", "rocksdb"]
)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_new_job_goes_on_from_a_retained_checkpoint(tmp_path, backend, parallelism):
    old, path = retained(tmp_path, backend=backend, parallelism=2)
    settings = {"execution.savepoint.path": path}
    new = Job(tmp_path, blocks=3, bounded=True, settings=settings, backend=backend, parallelism=parallelism)
    new.start()
    assert new.finish() == counts(15)
    assert new.seen.events[0] == ("source starts", 10)
    assert min(record.checkpoint_id for record in new.records()) == int(path.rpartition("-")[2]) + 1
    assert old.completed(), "the checkpoint of another job is not ours to delete"


BACKENDS = {"heap": HashMapStateBackend(), "rocksdb": EmbeddedRocksDBStateBackend(True)}


@pytest.mark.parametrize(("before", "after"), [("heap", "rocksdb"), ("rocksdb", "heap")])
def test_a_savepoint_fits_every_backend(tmp_path, before, after):
    old = Job(tmp_path, backend=BACKENDS[before], parallelism=2).start()
    old.seen.wait_set("emitted")
    path = old.client.stop_with_savepoint(False).result(DEADLINE)
    settings = {"execution.savepoint.path": path}
    new = Job(tmp_path, blocks=3, bounded=True, settings=settings, backend=BACKENDS[after], parallelism=3)
    assert new.start().finish() == counts(15)


def test_state_without_an_owner_is_refused_unless_allowed(tmp_path):
    _, path = retained(tmp_path)
    settings = {"execution.savepoint.path": path}
    new = Job(tmp_path, blocks=3, bounded=True, settings=settings)
    with pytest.raises(IllegalStateError, match=r"'count'.*-n"):
        new.stream.key_by(lambda n: n % 3, Types.LONG()).process(Count()).uid("other").execute_and_collect()
    settings["execution.savepoint.ignore-unclaimed-state"] = "true"
    new = Job(tmp_path, blocks=3, bounded=True, settings=settings)
    other = new.stream.key_by(lambda n: n % 3, Types.LONG()).process(Count()).uid("other")
    assert finals(other.execute_and_collect()) == {0: 1, 1: 2, 2: 2}


def test_the_number_of_key_groups_is_adopted_and_cannot_be_changed(tmp_path):
    _, path = retained(tmp_path, groups=16)
    settings = {"execution.savepoint.path": path}
    new = Job(tmp_path, blocks=3, bounded=True, settings=settings, parallelism=2).start()
    groups = {v.uid: v.max_parallelism for v in new.execution().plan.vertices.values()}
    assert groups["count"] == 16
    assert new.finish() == counts(15)
    with pytest.raises(IllegalStateError, match="16 key groups"):
        Job(tmp_path, settings=settings, groups=32).start()
    with pytest.raises(ConfigError, match="Parallelism 17 exceeds the maximum parallelism 16"):
        Job(tmp_path, settings=settings, parallelism=17).start()


def test_a_path_without_a_snapshot_is_refused(tmp_path):
    with pytest.raises(SavepointNotFoundError, match="does not exist"):
        Job(tmp_path, settings={"execution.savepoint.path": str(tmp_path / "nothing")}).start()


def damage_metadata(directory: Path):
    (directory / "_metadata").write_bytes(b"TDMK" + bytes(100))


def truncate_data(directory: Path):
    data = [path for path in directory.rglob("*") if path.is_file() and path.name != "_metadata"]
    assert data
    for path in data:
        path.write_bytes(path.read_bytes()[:-3])


def remove_data(directory: Path):
    for path in list(directory.rglob("*")):
        if path.is_file() and path.name != "_metadata":
            path.unlink()


@pytest.mark.parametrize("damage", [damage_metadata, truncate_data, remove_data])
def test_a_damaged_checkpoint_is_passed_over_for_an_older_one(tmp_path, damage, caplog):
    settings = {
        "state.checkpoints.num-retained": "2",
        "execution.checkpointing.allow-fallback": "duplicate",
    }
    job = Job(tmp_path, blocks=3, bounded=True, settings=settings)

    def damage_newest_and_fail():
        job.seen.set("older", int(job.completed()[-2].name[4:]))
        damage(job.completed()[-1])
        fail()

    job.seen.set(12, damage_newest_and_fail)
    job.start()
    assert job.finish() == counts(15)
    assert job.execution().progress.restored_from == job.seen.values["older"]
    assert "cannot be used" in caplog.text


def test_a_job_whose_checkpoints_are_all_damaged_fails_instead_of_starting_from_nothing(tmp_path):
    job = Job(tmp_path, blocks=3, bounded=True)

    def damage_all_and_fail():
        for directory in job.completed():
            damage_metadata(directory)
        fail()

    job.seen.set(12, damage_all_and_fail)
    job.start()
    error = job.client.get_job_execution_result().exception(DEADLINE)
    assert isinstance(error, JobExecutionException)
    assert "None of the job's snapshots can be restored" in str(error)
    assert "chk-" in str(error)


def test_a_savepoint_with_a_damaged_file_is_a_clear_error_and_not_retried(tmp_path):
    _, path = retained(tmp_path)
    truncate_data(Path(path))
    job = Job(tmp_path, settings={"execution.savepoint.path": path}).start()
    error = job.client.get_job_execution_result().exception(DEADLINE)
    assert "truncated" in str(error)
    assert job.execution().attempt == 0


class Declines(MapFunction, CheckpointedFunction):
    """Declines the next checkpoints, as many as the board says."""

    def __init__(self, board_name):
        self.board_name = board_name

    def initialize_state(self, context):
        pass

    def snapshot_state(self, context):
        seen = board(self.board_name)
        left = seen.values.get("decline", 0)
        if left:
            seen.set("decline", left - 1)
            raise ArithmeticError("cannot be snapshot")

    def map(self, value):
        return value


def declining(tmp_path, declined, tolerated):
    job = Job(tmp_path, bounded=True)
    job.env.get_checkpoint_config().set_tolerable_checkpoint_failure_number(tolerated)
    job.counted = job.counted.map(Declines(job.seen.name)).uid("declines")
    job.seen.set("decline", declined)
    return job.start()


def test_declined_checkpoints_up_to_the_tolerated_number_do_no_harm(tmp_path):
    job = declining(tmp_path, 3, 3)
    assert job.finish() == counts(10)
    assert job.execution().attempt == 0
    failed = [record for record in job.records() if record.status is CheckpointStatus.FAILED]
    assert sorted(record.checkpoint_id for record in failed) == [1, 2, 3]
    assert {record.reason for record in failed} == {FailureReason.DECLINED}


def test_one_declined_checkpoint_too_many_restarts_the_job(tmp_path):
    job = declining(tmp_path, 2, 1)
    assert job.finish() == counts(10)
    assert job.execution().attempt == 1
    job = declining(tmp_path, 1, 0)
    assert job.finish() == counts(10)
    assert job.execution().attempt == 1


def test_a_job_that_always_declines_fails_with_the_cause(tmp_path):
    job = declining(tmp_path, 999, 0)
    error = job.client.get_job_execution_result().exception(DEADLINE)
    assert "ArithmeticError: cannot be snapshot" in str(error)
    assert job.execution().attempt == 3


@pytest.fixture
def slow_storage(monkeypatch):
    """Writing state waits until the test lets it; the returned event is the permission."""
    allowed = threading.Event()
    create = FileSystemStorage.create

    def slow(self, path):
        assert path.endswith("_metadata") or "/chk-" not in path or allowed.wait(DEADLINE)
        return create(self, path)

    monkeypatch.setattr(FileSystemStorage, "create", slow)
    yield allowed
    allowed.set()


def test_a_checkpoint_that_takes_too_long_expires_and_leaves_no_files(tmp_path, slow_storage):
    job = Job(tmp_path, bounded=True)
    config = job.env.get_checkpoint_config()
    config.set_checkpoint_timeout(30)
    config.set_tolerable_checkpoint_failure_number(1000)
    job.start()
    pause = threading.Event()
    while len([r for r in job.records() if r.status is CheckpointStatus.FAILED]) < 2:
        assert not pause.wait(0.01)
    failed = [r for r in job.records() if r.status is CheckpointStatus.FAILED]
    assert {record.reason for record in failed} == {FailureReason.EXPIRED}
    slow_storage.set()
    assert job.finish() == counts(10)
    assert not list(job.directory.rglob("*/chk-*"))


def test_the_stream_flows_while_a_checkpoint_is_written(tmp_path, slow_storage):
    job = Job(tmp_path)
    late = job.env.add_source(WhenTold(job.seen.name), type_info=Types.LONG()).uid("late")
    job.counted = late.key_by(lambda n: n % 3, Types.LONG()).process(Count())
    job.start()
    pause = threading.Event()
    while job.execution().progress.records < 1:
        assert not pause.wait(0.01)
    while not (pending := job.execution().coordinator.pending()):
        assert not pause.wait(0.01)
    job.seen.set("go")
    while job.execution().progress.records < 5:
        assert not pause.wait(0.01)
    assert job.execution().coordinator.pending() == pending
    slow_storage.set()
    assert job.finish() == counts(5)


@pytest.mark.parametrize("retention", RETENTIONS, ids=lambda value: value.name)
def test_a_job_cancelled_while_a_checkpoint_is_written_leaves_nothing_of_it(tmp_path, monkeypatch, retention):
    allowed = threading.Event()
    create = FileSystemStorage.create

    def slow(self, path):
        # The first checkpoints are quick, the one after the board says so waits for the end of the job.
        if not path.endswith("_metadata") and job.seen.values.get("slow"):
            job.seen.set("writing", path)
            assert allowed.wait(DEADLINE)
        return create(self, path)

    monkeypatch.setattr(FileSystemStorage, "create", slow)
    job = Job(tmp_path)
    job.env.get_checkpoint_config().set_externalized_checkpoint_retention(retention)
    job.start()
    job.seen.wait_set("emitted")
    job.seen.set("slow")
    savepoint = job.client.trigger_savepoint()
    job.seen.wait_set("writing")
    cancelled = job.client.cancel()
    allowed.set()
    cancelled.result(DEADLINE)
    kept = retention is RETENTIONS.RETAIN_ON_CANCELLATION
    assert len(list(job.directory.glob("*/chk-*"))) == len(job.completed()) == kept
    assert savepoint.exception(DEADLINE) is not None or (Path(savepoint.result()) / "_metadata").exists()
    assert all((path / "_metadata").exists() for path in (tmp_path / "savepoints").glob("*"))


class WhenTold(SourceFunction):
    """Emits a number, and four more when the board says "go"."""

    def __init__(self, board_name):
        self.board_name = board_name

    def run(self, ctx):
        ctx.collect(0)
        board(self.board_name).wait_set("go")
        for number in range(1, 5):
            ctx.collect(number)


def test_the_next_checkpoint_waits_for_the_pause_after_the_last_one(tmp_path):
    job = Job(tmp_path, blocks=3, bounded=True)
    job.env.get_checkpoint_config().set_min_pause_between_checkpoints(60)
    job.start()
    assert job.finish() == counts(15)
    # The last one is the job's own, at its end; it waits for nobody.
    records = sorted(job.records(), key=lambda record: record.checkpoint_id)[:-1]
    assert len(records) >= 3
    for earlier, later in itertools.pairwise(records):
        assert later.triggered_at - (earlier.triggered_at + earlier.duration_ms) >= 60


def test_an_idle_job_checkpoints_too(tmp_path):
    job = Job(tmp_path, blocks=0).start()
    job.seen.wait(lambda seen: sum(event[0] == "complete" for event in seen.events) >= 3)
    assert job.finish() == {}
    ids = [event[1] for event in job.seen.events if event[0] == "complete"]
    assert ids == sorted(set(ids))
    assert ids[0] == 1


@pytest.mark.modes("epochs", "continuous")
@pytest.mark.parametrize("incremental", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_no_checkpoint_file_is_left_that_nothing_refers_to(seed, incremental, monkeypatch):
    if os.access("/dev/shm", os.W_OK):
        monkeypatch.setattr(tempfile, "tempdir", "/dev/shm")
    schedule = random_schedule(seed, 15)
    backend = EmbeddedRocksDBStateBackend(True) if incremental else HashMapStateBackend()
    script = _Script(
        build_crash_job("orphans", ("ledger",)), schedule.events, 2, None, backend, ManualClock()
    )
    for event in (
        *schedule.events[:-1],
        CRASH_AT("retention"),
        CHECKPOINT,
        CRASH,
        CHECKPOINT,
        END,
        CHECKPOINT,
    ):
        script.play(event)
    job, storage = script._job, script._storage
    newest = job.coordinator.completed.latest_checkpoint()
    names = storage.list(job.snapshots.layout.directory)
    assert [name for name in names if name.startswith("chk-")] == [f"chk-{newest.checkpoint_id}"]
    assert set(storage.list(job.snapshots.layout.shared)) == set(newest.shared_files)
    script.finish()
    assert storage.list(job.snapshots.layout.directory) == []
    close_journal("orphans")
