"""A snapshot's life as its job sees it: which effects, in which order. No engine, no sources, no sinks."""

from __future__ import annotations

import pytest

from tidemark.api.executor import JobSettings
from tidemark.checkpoint.completed import CompletedSnapshot, Origin
from tidemark.checkpoint.messages import (
    BarrierReached,
    JobEnd,
    JobEnded,
    JobRestarting,
    SlotAcknowledged,
    SlotDeclined,
    Tick,
)
from tidemark.checkpoint.metadata.registry import read_metadata
from tidemark.checkpoint.retention import QUARANTINE_FILE
from tidemark.checkpoint.storage.memory import MemoryStorage
from tidemark.clock import ManualClock
from tidemark.config import CheckpointSettings
from tidemark.errors import CheckpointError, FailureReason, FencedError, StorageError
from tidemark.paths import join
from tidemark.plan.job_plan import JobPlan
from tidemark.protocol.deployment import BackendChoice, StorageChoice
from tidemark.runtime.snapshots import DriverState, JobSnapshots
from tidemark.runtime.storage_plan import StoragePlan
from tidemark.runtime.worker import Worker

JOB = "f" * 32
STATE = DriverState({"numbers": b"7"}, {"files": b"staged"}, {"numbers": 5}, {}, 12, "first-job")


class Noted:
    """Effects that are only noted; the test says what a step answers."""

    def __init__(self):
        self.calls = []
        self.declined = None
        self.claim_lost = None
        self.commit_fails = None
        self.announcing_fails = None
        self.request = None

    def driver_state(self, checkpoint_id):
        self.calls.append(("driver_state", checkpoint_id))
        return STATE

    def cut(self, request):
        self.calls.append(("cut", request.checkpoint_id))
        self.request = request
        return self.declined

    def verify_claims(self):
        self.calls.append("verify_claims")
        if self.claim_lost is not None:
            raise self.claim_lost

    def announce(self, snapshot):
        self.announced = snapshot
        if self.announcing_fails is not None:
            raise self.announcing_fails

    def complete(self, checkpoint_id):
        self.calls.append(("complete", checkpoint_id))
        if self.commit_fails is not None:
            raise self.commit_fails

    def abort(self, checkpoint_id):
        self.calls.append(("abort", checkpoint_id))

    def reached(self, point):
        self.calls.append(point)


class Disk(MemoryStorage):
    """May be moved away under the job, or be out of reach, for those who look what is there."""

    moved = False
    away = False

    def is_file(self, path):
        if self.away:
            raise StorageError("the disk is away", path=path)
        return not self.moved and super().is_file(path)


class Job:
    """Snapshots of a job with one slot, at the first barrier with a checkpoint due."""

    def __init__(self, *, interval=10, incremental=False, asynchronous=True, savepoints=None, run=""):
        self.effects = Noted()
        self.storage = Disk()
        self.savepoints = savepoints or self.storage
        self.clock = ManualClock()
        self.snapshots = JobSnapshots(
            self.effects,
            Worker("test"),
            self.clock,
            JobPlan(JOB, "a job", {}, 1),
            JobSettings(checkpointing=CheckpointSettings(interval=interval, tolerable_failures=9)),
            StoragePlan(self.storage, self.savepoints, "/root", StorageChoice()),
            BackendChoice("heap", asynchronous, incremental),
            (),
            run,
        )
        self.snapshots.new_attempt(frozenset({0}), first=True)

    def barrier(self):
        self.clock.advance(10)
        self.snapshots.handle(BarrierReached())

    def acknowledge(self, checkpoint_id):
        self.snapshots.handle(SlotAcknowledged(checkpoint_id, 0, {}, 1, 1))

    def checkpoint(self, checkpoint_id):
        """One that completes."""
        self.barrier()
        self.acknowledge(checkpoint_id)

    def metadata_of(self, checkpoint_id):
        return self.snapshots.layout.checkpoint(checkpoint_id).metadata_path

    def completed(self):
        return [snapshot.checkpoint_id for snapshot in self.snapshots.coordinator.completed.checkpoints()]


def test_a_checkpoint_is_cut_then_claimed_then_written_then_completed():
    job = Job()
    job.barrier()
    assert job.effects.calls == [("cut", 1)]

    job.effects.calls.clear()
    job.acknowledge(1)

    assert job.effects.calls == [
        ("driver_state", 1),
        "before-metadata",
        "verify_claims",
        "after-metadata",
        ("complete", 1),
    ]
    assert job.completed() == [1]


def test_the_metadata_holds_what_the_driver_said_at_the_barrier():
    job = Job()
    job.barrier()
    job.acknowledge(1)

    metadata = read_metadata(job.storage, job.snapshots.layout.checkpoint(1).directory)

    assert (metadata.source_positions, metadata.sink_commits) == (STATE.positions, STATE.commits)
    assert (metadata.watermarks, metadata.lineage_id) == (STATE.watermarks, "first-job")
    assert metadata.properties["epoch"] == "12"


def test_a_slot_that_cannot_cut_aborts_the_checkpoint():
    job = Job()
    job.effects.declined = SlotDeclined(1, 0, FailureReason.DECLINED, "no")

    job.barrier()

    assert job.effects.calls == [("cut", 1), ("abort", 1), "retention"]
    assert job.completed() == []


def test_a_place_that_cannot_be_reached_fails_the_checkpoint_and_a_lost_claim_the_attempt():
    job = Job()
    job.effects.claim_lost = StorageError("the disk is away")
    job.barrier()
    job.acknowledge(1)
    assert ("abort", 1) in job.effects.calls
    assert ("complete", 1) not in job.effects.calls

    job.effects.claim_lost = FencedError("somebody else")
    job.barrier()
    with pytest.raises(FencedError):
        job.acknowledge(2)
    assert not job.storage.exists(job.snapshots.layout.checkpoint(2).metadata_path)


def test_a_fenced_job_leaves_its_snapshots_alone():
    job = Job()
    job.barrier()
    job.acknowledge(1)
    job.snapshots.fenced = True

    job.snapshots.handle(JobEnded(JobEnd.FINISHED))
    job.snapshots.sweep()

    assert job.storage.exists(job.snapshots.layout.checkpoint(1).metadata_path)


@pytest.mark.parametrize("goes_on", [True, False])
def test_an_older_checkpoint_goes_only_when_the_sinks_have_committed_the_newer_one(goes_on):
    job = Job()
    job.barrier()
    job.acknowledge(1)
    job.barrier()
    job.effects.commit_fails = StorageError("a staged file is gone")
    with pytest.raises(StorageError):
        job.acknowledge(2)
    older = job.snapshots.layout.checkpoint(1).metadata_path
    assert job.completed() == [1, 2]

    if goes_on:
        job.snapshots.new_attempt(frozenset({0}), first=False)
        assert not job.storage.exists(older)
        return
    job.snapshots.handle(JobEnded(JobEnd.FAILED, unread=True))
    job.snapshots.sweep()
    assert job.storage.exists(older)


def test_what_all_slots_acknowledged_amid_an_epoch_completes_with_the_next_step():
    job = Job()
    job.barrier()

    job.snapshots.observe(SlotAcknowledged(1, 0, {}, 1, 1))
    assert not job.storage.exists(job.metadata_of(1)), "user code and output wait for the end of the epoch"
    job.snapshots.handle(Tick())

    assert job.completed() == [1]


def test_what_was_given_up_since_it_was_acknowledged_is_not_written():
    job = Job()
    job.barrier()
    job.snapshots.observe(SlotAcknowledged(1, 0, {}, 1, 1))

    job.snapshots.observe(JobRestarting())
    job.snapshots.handle(Tick())

    assert ("driver_state", 1) not in job.effects.calls
    assert job.completed() == []


def test_a_snapshot_that_nobody_would_find_does_not_complete():
    job = Job()
    job.effects.announcing_fails = StorageError("the pointer cannot be written")

    job.checkpoint(1)

    assert ("complete", 1) not in job.effects.calls
    assert not job.storage.exists(job.metadata_of(1))


def test_a_snapshot_is_announced_as_it_can_be_found():
    job = Job()
    job.checkpoint(1)
    [checkpoint] = job.snapshots.coordinator.completed.checkpoints()
    assert job.effects.announced == checkpoint
    assert checkpoint.digest

    job.snapshots.request_savepoint("/savepoints")
    job.checkpoint(2)
    assert job.effects.announced.origin is Origin.SAVEPOINT


def test_metadata_that_is_gone_as_soon_as_it_was_written_completes_nothing_and_is_forgiven():
    job = Job()
    job.storage.moved = True
    job.checkpoint(1)
    assert ("abort", 1) in job.effects.calls
    assert job.completed() == []

    job.storage.moved = False
    job.snapshots.handle(BarrierReached())
    job.acknowledge(2)

    assert job.completed() == [2], "due at once"


def test_a_slot_that_fails_over_a_vanished_checkpoint_is_forgiven():
    """Its directory was moved away under it: that is the cause, and the next checkpoint is written in full."""
    job = Job(incremental=True)
    job.checkpoint(1)
    job.barrier()
    job.storage.delete(job.metadata_of(1))

    job.snapshots.handle(SlotDeclined(2, 0, FailureReason.DECLINED, "no such directory"))
    job.snapshots.handle(BarrierReached())

    assert job.effects.request.checkpoint_id == 3, "due at once"
    assert job.effects.request.base is None


def test_slots_refer_to_the_newest_checkpoint_as_long_as_it_is_not_known_to_be_gone():
    job = Job(incremental=True)
    job.checkpoint(1)

    job.storage.away = True
    job.barrier()
    assert job.effects.request.base == 1, "nobody knows"

    job.storage.away = False
    job.acknowledge(2)
    job.storage.delete(job.metadata_of(2))
    job.barrier()
    assert job.effects.request.base is None


def test_checkpoints_are_incremental_and_savepoints_never_are():
    job = Job(incremental=True)
    job.barrier()
    assert (job.effects.request.incremental, job.effects.request.savepoint) == (True, False)
    job.acknowledge(1)

    job.snapshots.request_savepoint("/savepoints")
    job.barrier()

    assert (job.effects.request.incremental, job.effects.request.savepoint) == (False, True)
    assert job.effects.request.location.directory.startswith("/savepoints/")


def test_checkpoints_in_the_memory_of_the_driver_are_written_in_full():
    """Shared files need a place that slots reach."""
    job = Job(incremental=True, savepoints=MemoryStorage())

    job.barrier()

    assert not job.effects.request.incremental


@pytest.mark.parametrize("asynchronous", [True, False])
def test_slots_write_while_the_stream_goes_on_unless_they_are_told_not_to(asynchronous):
    job = Job(asynchronous=asynchronous)

    job.barrier()

    assert job.effects.request.synchronous is not asynchronous


def test_what_is_asked_for_in_canonical_form_is_written_in_full_until_the_job_is_rescaled():
    job = Job(incremental=True)
    job.barrier()
    job.snapshots.request_checkpoint(canonical=True)
    job.acknowledge(1)

    for checkpoint_id in (2, 3):
        job.checkpoint(checkpoint_id)
        assert not job.effects.request.incremental
    job.snapshots.rescaled(JobPlan(JOB, "a job", {}, 2))
    job.checkpoint(4)

    assert job.effects.request.incremental


def test_who_asks_for_a_checkpoint_gets_the_id_of_one_that_began_behind_the_question():
    job = Job()
    job.barrier()
    future = job.snapshots.request_checkpoint()

    job.acknowledge(1)
    assert not future.done(), "it had begun before"
    job.snapshots.handle(BarrierReached())
    job.acknowledge(2)

    assert future.result(0) == "2"


def test_who_asks_for_a_checkpoint_learns_why_there_is_none():
    job = Job()
    failed = job.snapshots.request_checkpoint()
    job.effects.declined = SlotDeclined(1, 0, FailureReason.DECLINED, "the disk is full")
    job.barrier()
    with pytest.raises(CheckpointError, match="the disk is full") as caught:
        failed.result(0)
    assert (caught.value.reason, caught.value.checkpoint_id) == (FailureReason.DECLINED, 1)

    restarted = job.snapshots.request_checkpoint()
    job.snapshots.new_attempt(frozenset({0}), first=False)
    with pytest.raises(CheckpointError, match="restarted before the checkpoint began"):
        restarted.result(0)

    ended = job.snapshots.request_checkpoint()
    job.snapshots.sweep()
    with pytest.raises(CheckpointError, match="has ended"):
        ended.result(0)


def test_a_failed_savepoint_is_no_answer_to_who_asked_for_a_checkpoint():
    job = Job()
    checkpoint = job.snapshots.request_checkpoint()
    savepoint = job.snapshots.request_savepoint("/savepoints")
    job.barrier()

    job.snapshots.handle(SlotDeclined(1, 0, FailureReason.DECLINED, "no"))

    with pytest.raises(CheckpointError, match=r"The savepoint to '/savepoints/.*failed: no"):
        savepoint.result(0)
    assert not checkpoint.done()
    assert not job.snapshots.took_savepoint


@pytest.mark.parametrize("commits", [True, False])
def test_a_savepoint_is_there_once_its_metadata_is_whatever_the_sinks_do(commits):
    job = Job(savepoints=MemoryStorage())
    future = job.snapshots.request_savepoint("/savepoints")
    job.effects.commit_fails = None if commits else RuntimeError("a sink")
    job.barrier()

    if commits:
        job.acknowledge(1)
    else:
        with pytest.raises(RuntimeError, match="a sink"):
            job.acknowledge(1)

    assert read_metadata(job.savepoints, future.result(0)).is_savepoint
    assert job.snapshots.took_savepoint
    assert job.storage.list("/") == []


def test_an_aborted_savepoint_leaves_nothing_though_a_slot_still_wrote_for_it():
    job = Job(savepoints=MemoryStorage())
    job.snapshots.request_savepoint("/savepoints")
    job.barrier()
    directory = job.effects.request.location.directory
    job.savepoints.write(join(directory, "part"), b"x")
    job.snapshots.handle(SlotDeclined(1, 0, FailureReason.DECLINED, "no"))
    assert job.savepoints.list("/savepoints") == []

    job.savepoints.write(join(directory, "late"), b"x")
    job.snapshots.sweep()

    assert job.savepoints.list("/savepoints") == []


def test_a_new_attempt_sweeps_what_the_one_before_left_and_the_first_one_nothing():
    job = Job()
    job.checkpoint(1)
    job.barrier()
    leftover = join(job.snapshots.layout.checkpoint(2).directory, "part")
    job.snapshots.handle(JobRestarting())
    job.storage.write(leftover, b"written late")

    job.snapshots.new_attempt(frozenset({0}), first=True)
    assert job.storage.exists(leftover)
    job.snapshots.new_attempt(frozenset({0}), first=False)

    assert not job.storage.exists(leftover)
    assert job.completed() == [1]


def test_nothing_is_swept_while_the_newest_checkpoint_is_not_there():
    """The directory may be a mount point without its disk; what is there now is not what the job knows of."""
    job = Job()
    job.checkpoint(1)
    job.barrier()
    leftover = join(job.snapshots.layout.checkpoint(2).directory, "part")
    job.snapshots.handle(JobRestarting())
    job.storage.write(leftover, b"x")
    job.storage.delete(job.metadata_of(1))

    job.snapshots.new_attempt(frozenset({0}), first=False)

    assert job.storage.exists(leftover)


def test_former_drivers_are_cleared_away_by_the_first_checkpoint_of_this_one_and_by_no_savepoint():
    job = Job(run="2")
    former = join(job.snapshots.layout.of_all_runs, "1", "chk-7", "_metadata")
    job.storage.write(former, b"x")

    job.snapshots.request_savepoint("/savepoints")
    job.checkpoint(1)
    assert job.storage.exists(former), "somebody may have to go back to it"
    job.checkpoint(2)
    assert not job.storage.exists(former)

    later = join(job.snapshots.layout.of_all_runs, "3", "chk-1", "_metadata")
    job.storage.write(later, b"x")
    job.checkpoint(3)
    assert job.storage.exists(later), "once is enough: whoever comes behind this driver is no former one"


@pytest.mark.parametrize(
    ("origin", "is_marked"), [(Origin.CHECKPOINT, True), (Origin.SAVEPOINT, False), (Origin.EXTERNAL, False)]
)
def test_damaged_checkpoints_get_a_note_and_what_is_the_users_none(origin, is_marked):
    job = Job()
    snapshot = CompletedSnapshot(1, "/root/somewhere/chk-1", origin)
    job.snapshots.coordinator.completed.add(snapshot)

    job.snapshots.quarantine(snapshot, "a flipped bit")

    assert job.storage.exists(join(snapshot.directory, QUARANTINE_FILE)) is is_marked
    left = job.snapshots.coordinator.completed.candidates()
    assert left == ([snapshot] if origin is Origin.EXTERNAL else [])


def test_a_damaged_checkpoint_of_a_former_driver_gets_a_note():
    job = Job(run="2")
    directory = join(job.snapshots.layout.of_all_runs, "1", "chk-1")
    snapshot = CompletedSnapshot(1, directory, Origin.EXTERNAL)
    job.snapshots.coordinator.completed.add(snapshot)

    job.snapshots.quarantine(snapshot, "a flipped bit")

    assert job.storage.exists(join(directory, QUARANTINE_FILE))


def test_a_job_that_ends_tells_whether_something_is_left_to_start_from():
    finished = JobEnded(JobEnd.FINISHED)
    assert Job().snapshots.end(finished) is False, "never a snapshot"

    job = Job()
    job.checkpoint(1)
    assert job.snapshots.end(finished) is False
    assert not job.storage.exists("/root")

    job = Job()
    job.checkpoint(1)
    assert job.snapshots.end(JobEnded(JobEnd.SUSPENDED)) is True

    job = Job()
    job.checkpoint(1)
    job.storage.delete(job.metadata_of(1))
    assert job.snapshots.end(finished) is True, "what is away may come back"

    job = Job()
    job.checkpoint(1)
    job.storage.away = True
    assert job.snapshots.end(JobEnded(JobEnd.SUSPENDED)) is True, "nobody can tell"


@pytest.mark.parametrize("interval", [10, -1])
def test_what_a_slot_writes_behind_the_end_of_the_job_goes_with_the_rest(interval):
    job = Job(interval=interval)
    for checkpoint_id in (1, 2):
        job.snapshots.request_checkpoint()
        job.checkpoint(checkpoint_id)
    job.snapshots.end(JobEnded(JobEnd.FINISHED))
    assert not job.storage.exists("/root")
    job.storage.write(join(job.snapshots.layout.checkpoint(2).directory, "late"), b"x")

    job.snapshots.sweep()

    assert not job.storage.exists("/root")


def test_one_failure_more_than_is_tolerated_fails_the_job():
    job = Job()
    for checkpoint_id in range(1, 10):
        job.barrier()
        job.snapshots.handle(SlotDeclined(checkpoint_id, 0, FailureReason.DECLINED, "no"))
    job.barrier()

    with pytest.raises(CheckpointError, match="no"):
        job.snapshots.observe(SlotDeclined(10, 0, FailureReason.DECLINED, "no"))
