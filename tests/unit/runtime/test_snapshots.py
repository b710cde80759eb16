"""A snapshot's life as its job sees it: which effects, in which order. No engine, no sources, no sinks."""

from __future__ import annotations

import pytest

from tidemark.api.executor import JobSettings
from tidemark.checkpoint.messages import BarrierReached, JobEnd, JobEnded, SlotAcknowledged, SlotDeclined
from tidemark.checkpoint.metadata.registry import read_metadata
from tidemark.checkpoint.storage.memory import MemoryStorage
from tidemark.clock import ManualClock
from tidemark.config import CheckpointSettings
from tidemark.errors import FailureReason, FencedError, StorageError
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

    def driver_state(self, checkpoint_id):
        self.calls.append(("driver_state", checkpoint_id))
        return STATE

    def cut(self, request):
        self.calls.append(("cut", request.checkpoint_id))
        return self.declined

    def verify_claims(self):
        self.calls.append("verify_claims")
        if self.claim_lost is not None:
            raise self.claim_lost

    def announce(self, snapshot):
        self.announced = snapshot.checkpoint_id

    def complete(self, checkpoint_id):
        self.calls.append(("complete", checkpoint_id))
        if self.commit_fails is not None:
            raise self.commit_fails

    def abort(self, checkpoint_id):
        self.calls.append(("abort", checkpoint_id))

    def reached(self, point):
        self.calls.append(point)


class Job:
    """Snapshots of a job with one slot, at the first barrier with a checkpoint due."""

    def __init__(self):
        self.effects = Noted()
        self.storage = MemoryStorage()
        self.clock = ManualClock()
        self.snapshots = JobSnapshots(
            self.effects,
            Worker("test"),
            self.clock,
            JobPlan(JOB, "a job", {}, 1),
            JobSettings(checkpointing=CheckpointSettings(interval=10, tolerable_failures=9)),
            StoragePlan(self.storage, self.storage, "/root", StorageChoice()),
            BackendChoice("heap", True),
            (),
        )
        self.snapshots.new_attempt(frozenset({0}), first=True)

    def barrier(self):
        self.clock.advance(10)
        self.snapshots.handle(BarrierReached())

    def acknowledge(self, checkpoint_id):
        self.snapshots.handle(SlotAcknowledged(checkpoint_id, 0, {}, 1, 1))

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
