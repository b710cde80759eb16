from __future__ import annotations

import pytest

from tidemark.checkpoint.completed import CompletedSnapshot, CompletedSnapshots, Origin
from tidemark.checkpoint.coordinator import CheckpointCoordinator
from tidemark.checkpoint.messages import (
    BarrierReached,
    Command,
    Discard,
    DiscardJob,
    FailJob,
    JobEnd,
    JobEnded,
    JobRestarting,
    MetadataWritten,
    NotifyAborted,
    NotifyComplete,
    Overdue,
    RejectSavepoint,
    SavepointRequest,
    SavepointRequested,
    SinksCommitted,
    SlotAcknowledged,
    SlotDeclined,
    Started,
    StorageFailed,
    Tick,
    TriggerBarrier,
    WriteMetadata,
)
from tidemark.checkpoint.metadata import FileHandle, NativeHandle, SubtaskState
from tidemark.checkpoint.statistics import CheckpointStatus
from tidemark.clock import ManualClock
from tidemark.config import CheckpointSettings
from tidemark.config.modes import ExternalizedCheckpointRetention as Keep
from tidemark.errors import FailureReason

SLOTS = frozenset({0, 1})
SAVEPOINT = SavepointRequest("r1", "/savepoints/savepoint-abcdef-1")


def started(**settings: object) -> CheckpointCoordinator:
    coordinator = CheckpointCoordinator(CheckpointSettings(**{"interval": 100, **settings}))
    assert coordinator.handle(Started(SLOTS), 0) == []
    return coordinator


def complete(coordinator: CheckpointCoordinator, checkpoint_id: int, now: int) -> list[Command]:
    for slot in sorted(SLOTS):
        coordinator.handle(SlotAcknowledged(checkpoint_id, slot), now)
    return written(coordinator, checkpoint_id, now)


def written(coordinator: CheckpointCoordinator, checkpoint_id: int, now: int) -> list[Command]:
    """The metadata is durable, and sinks commit."""
    commands = coordinator.handle(MetadataWritten(checkpoint_id, f"chk-{checkpoint_id}"), now)
    if any(isinstance(command, NotifyComplete) for command in commands):
        commands += coordinator.handle(SinksCommitted(checkpoint_id), now)
    return commands


def triggered(commands: list[Command]) -> list[int]:
    return [command.checkpoint_id for command in commands if isinstance(command, TriggerBarrier)]


def with_files(*names: str) -> SubtaskState:
    files = tuple(FileHandle(name, 1, b"", name, True) for name in names)
    return SubtaskState(0, (0, 1), native=NativeHandle("rocksdb", files, ()))


def test_the_first_checkpoint_comes_one_interval_after_the_start() -> None:
    coordinator = started()

    assert coordinator.handle(BarrierReached(), 99) == []
    assert coordinator.handle(BarrierReached(), 100) == [TriggerBarrier(1, 100)]


def test_only_a_barrier_triggers() -> None:
    assert started().handle(Tick(), 1000) == []


def test_without_an_interval_only_savepoints_are_taken() -> None:
    coordinator = started(interval=-1)

    assert coordinator.handle(BarrierReached(), 10_000) == []
    assert coordinator.next_wakeup(10_000) is None
    coordinator.handle(SavepointRequested(SAVEPOINT), 10_000)
    assert coordinator.next_wakeup(10_000) == 10_000
    assert coordinator.handle(BarrierReached(), 10_000) == [TriggerBarrier(1, 10_000, None, SAVEPOINT)]


@pytest.mark.parametrize("interval", [-1, 1000])
def test_a_checkpoint_can_be_asked_for_once(interval: int) -> None:
    coordinator = started(interval=interval, min_pause=500)

    coordinator.request_checkpoint(10)

    assert coordinator.next_wakeup(10) == 10
    assert coordinator.handle(BarrierReached(), 10) == [TriggerBarrier(1, 10)]
    complete(coordinator, 1, 11)
    assert coordinator.handle(BarrierReached(), 12) == []
    coordinator.request_checkpoint(12)
    assert triggered(coordinator.handle(BarrierReached(), 12)) == [2]


def test_a_job_that_does_not_run_takes_no_checkpoint_on_request() -> None:
    coordinator = CheckpointCoordinator(CheckpointSettings())

    coordinator.request_checkpoint(10)

    assert coordinator.handle(BarrierReached(), 10) == []


def test_it_is_complete_when_all_slots_and_the_metadata_are_there() -> None:
    coordinator = started()
    coordinator.handle(BarrierReached(), 100)
    states = [SubtaskState(0), SubtaskState(1)]

    assert coordinator.handle(SlotAcknowledged(1, 1, {"op": states[1]}), 110) == []
    assert coordinator.handle(SlotAcknowledged(1, 0, {"op": states[0]}), 120) == [
        WriteMetadata(1, 100, {"op": tuple(states)})
    ]
    assert coordinator.completed.latest() is None
    assert coordinator.handle(MetadataWritten(1, "chk-1"), 130) == [NotifyComplete(1, "chk-1")]
    assert coordinator.completed.latest() == CompletedSnapshot(1, "chk-1", Origin.CHECKPOINT, 100)


def test_a_slot_that_acknowledges_twice_counts_once() -> None:
    coordinator = started()
    coordinator.handle(BarrierReached(), 100)

    assert coordinator.handle(SlotAcknowledged(1, 0), 110) == []
    assert coordinator.handle(SlotAcknowledged(1, 0), 111) == []
    assert coordinator.handle(SlotAcknowledged(1, 7), 112) == []
    assert coordinator.pending() == [1]


def test_the_first_word_of_a_slot_counts_and_strangers_are_not_heard() -> None:
    coordinator = started()
    coordinator.handle(BarrierReached(), 100)
    coordinator.handle(SlotAcknowledged(1, 7, {"op": SubtaskState(7)}), 101)
    coordinator.handle(SlotAcknowledged(1, 0, {"op": SubtaskState(0)}), 102)
    coordinator.handle(SlotAcknowledged(1, 0, {"op": SubtaskState(5)}), 103)

    commands = coordinator.handle(SlotAcknowledged(1, 1, {"op": SubtaskState(1)}), 104)

    assert commands == [WriteMetadata(1, 100, {"op": (SubtaskState(0), SubtaskState(1))})]


def test_a_newer_checkpoint_pushes_the_older_out() -> None:
    coordinator = started()
    coordinator.handle(BarrierReached(), 100)
    complete(coordinator, 1, 110)

    assert coordinator.handle(BarrierReached(), 200) == [TriggerBarrier(2, 200, base=1)]
    assert complete(coordinator, 2, 210) == [NotifyComplete(2, "chk-2"), Discard(1)]


def test_as_many_as_wanted_are_retained() -> None:
    coordinator = started(num_retained=2)
    gone = []
    for n in range(1, 5):
        coordinator.handle(BarrierReached(), 100 * n)
        gone += [c.checkpoint_id for c in complete(coordinator, n, 100 * n + 1) if isinstance(c, Discard)]

    assert gone == [1, 2]
    assert [snapshot.checkpoint_id for snapshot in coordinator.completed.candidates()] == [4, 3]


def test_the_next_one_waits_while_one_is_running() -> None:
    coordinator = started()
    coordinator.handle(BarrierReached(), 100)

    assert coordinator.handle(BarrierReached(), 250) == []
    complete(coordinator, 1, 260)
    assert triggered(coordinator.handle(BarrierReached(), 260)) == [2]
    complete(coordinator, 2, 270)
    assert coordinator.handle(BarrierReached(), 359) == []
    assert triggered(coordinator.handle(BarrierReached(), 360)) == [3]


def test_the_interval_counts_from_the_last_trigger() -> None:
    coordinator = started()
    coordinator.handle(BarrierReached(), 130)
    complete(coordinator, 1, 131)

    assert coordinator.next_wakeup(131) == 230
    assert coordinator.handle(BarrierReached(), 229) == []
    assert triggered(coordinator.handle(BarrierReached(), 230)) == [2]


def test_several_may_run_at_once_if_allowed() -> None:
    coordinator = started(max_concurrent=2)

    assert triggered(coordinator.handle(BarrierReached(), 100)) == [1]
    assert triggered(coordinator.handle(BarrierReached(), 200)) == [2]
    assert coordinator.handle(BarrierReached(), 300) == []


def test_a_pause_allows_one_at_a_time_and_counts_from_the_end_of_the_last() -> None:
    coordinator = started(max_concurrent=5, min_pause=500)
    coordinator.handle(BarrierReached(), 100)

    assert coordinator.handle(BarrierReached(), 200) == []
    complete(coordinator, 1, 300)
    assert coordinator.next_wakeup(300) == 800
    assert coordinator.handle(BarrierReached(), 799) == []
    assert triggered(coordinator.handle(BarrierReached(), 800)) == [2]


def test_a_new_attempt_does_not_wait_for_the_pause_of_the_one_before() -> None:
    coordinator = started(interval=100, min_pause=1000)
    coordinator.handle(BarrierReached(), 100)
    complete(coordinator, 1, 110)
    coordinator.handle(JobRestarting(), 120)

    coordinator.handle(Started(SLOTS), 130)

    assert coordinator.next_wakeup(130) == 230
    assert triggered(coordinator.handle(BarrierReached(), 230)) == [2]


def test_savepoints_that_were_given_up_and_files_that_are_needed_are_known() -> None:
    coordinator = started()
    coordinator.handle(SavepointRequested(SAVEPOINT), 0)
    coordinator.handle(BarrierReached(), 0)
    coordinator.handle(SlotDeclined(1, 0, FailureReason.DECLINED, "no"), 1)
    coordinator.handle(BarrierReached(), 100)
    coordinator.handle(SlotAcknowledged(2, 0, {"op": with_files("a.sst")}), 110)
    assert not coordinator.needs_shared_file("a.sst")

    complete(coordinator, 2, 120)

    assert coordinator.aborted_savepoints() == [SAVEPOINT]
    assert coordinator.needs_shared_file("a.sst")
    assert not coordinator.needs_shared_file("b.sst")


def test_a_pause_follows_a_failed_one_too() -> None:
    coordinator = started(min_pause=500, tolerable_failures=9)
    coordinator.handle(BarrierReached(), 100)
    coordinator.handle(SlotDeclined(1, 0, FailureReason.DECLINED, "no"), 150)

    assert coordinator.handle(BarrierReached(), 649) == []
    assert triggered(coordinator.handle(BarrierReached(), 650)) == [2]


def test_one_older_than_the_timeout_expires() -> None:
    coordinator = started(timeout=50, tolerable_failures=1)
    coordinator.handle(BarrierReached(), 100)
    coordinator.handle(SlotAcknowledged(1, 0), 110)

    assert coordinator.next_wakeup(110) == 150
    assert coordinator.handle(Tick(), 149) == []
    aborted, discard = coordinator.handle(Tick(), 150)
    assert isinstance(aborted, NotifyAborted)
    assert aborted.reason is FailureReason.EXPIRED
    assert "missing slots: 1" in aborted.message
    assert discard == Discard(1)
    assert coordinator.pending() == []


def test_an_acknowledgement_after_the_deadline_expires_the_checkpoint() -> None:
    coordinator = started(timeout=50, tolerable_failures=1)
    coordinator.handle(BarrierReached(), 100)
    coordinator.handle(SlotAcknowledged(1, 0), 110)

    aborted, discard = coordinator.handle(SlotAcknowledged(1, 1), 150)

    assert isinstance(aborted, NotifyAborted)
    assert aborted.reason is FailureReason.EXPIRED
    assert discard == Discard(1)
    assert coordinator.pending() == []


def test_one_whose_barrier_user_code_keeps_from_coming_expires_and_counts() -> None:
    coordinator = started(timeout=50, tolerable_failures=0)
    assert not coordinator.is_overdue(149)
    assert coordinator.handle(Overdue(50), 149) == []
    assert coordinator.is_overdue(150)

    aborted, _discard, fail = coordinator.handle(Overdue(50), 150)

    assert isinstance(aborted, NotifyAborted)
    assert (aborted.checkpoint_id, aborted.reason) == (1, FailureReason.EXPIRED)
    assert isinstance(fail, FailJob)
    assert "user code has not returned for 50 ms" in str(fail.error)
    (record,) = coordinator.statistics.records()
    assert (record.status, record.reason) == (CheckpointStatus.FAILED, FailureReason.EXPIRED)


def test_one_that_waits_for_a_long_epoch_expires_without_failing_the_job() -> None:
    coordinator = started(timeout=50, tolerable_failures=0)

    aborted, _discard = coordinator.handle(Overdue(49), 150)

    assert isinstance(aborted, NotifyAborted)
    assert "the epoch before it takes longer" in aborted.message
    assert not coordinator.is_overdue(150), "the next one is due an interval later"
    assert triggered(coordinator.handle(BarrierReached(), 250)) == [2]


def test_one_that_waits_for_another_is_not_overdue() -> None:
    coordinator = started(timeout=5000)
    coordinator.handle(BarrierReached(), 100)

    assert not coordinator.is_overdue(10_000)
    assert coordinator.handle(Overdue(10_000), 10_000) == []


def test_an_acknowledged_one_that_waits_for_user_code_expires_and_counts() -> None:
    coordinator = started(timeout=50, tolerable_failures=0)
    coordinator.handle(BarrierReached(), 100)
    for slot in SLOTS:
        coordinator.handle(SlotAcknowledged(1, slot), 110)
    held = frozenset({1})
    assert not coordinator.is_overdue(149, held)
    assert coordinator.handle(Overdue(50, held), 149) == []
    assert coordinator.is_overdue(150, held)
    assert not coordinator.is_overdue(150), "nor if its metadata is being written"

    aborted, discard, fail = coordinator.handle(Overdue(50, held), 150)

    assert isinstance(aborted, NotifyAborted)
    assert (aborted.checkpoint_id, aborted.reason) == (1, FailureReason.EXPIRED)
    assert "user code has not returned for 50 ms" in aborted.message
    assert discard == Discard(1)
    assert isinstance(fail, FailJob)
    assert coordinator.pending() == []


def test_an_acknowledged_one_outlasts_an_epoch_that_is_only_long() -> None:
    coordinator = started(timeout=50, tolerable_failures=0)
    coordinator.handle(BarrierReached(), 100)
    for slot in SLOTS:
        coordinator.handle(SlotAcknowledged(1, slot), 110)
    held = frozenset({1})

    assert coordinator.handle(Overdue(30, held), 150) == []

    assert not coordinator.is_overdue(169, held)
    assert coordinator.is_overdue(170, held), "what has blocked for 30 ms has by then blocked for 50"
    assert coordinator.handle(Overdue(0, held), 170) == []
    assert not coordinator.is_overdue(219, held)
    assert coordinator.pending() == [1]


def test_one_whose_metadata_is_being_written_does_not_expire() -> None:
    coordinator = started(timeout=50)
    coordinator.handle(BarrierReached(), 100)
    for slot in SLOTS:
        coordinator.handle(SlotAcknowledged(1, slot), 110)

    assert coordinator.handle(Tick(), 1000) == []
    assert coordinator.handle(MetadataWritten(1, "chk-1"), 1001) == [NotifyComplete(1, "chk-1")]


def test_no_failure_is_tolerated_by_default() -> None:
    coordinator = started()
    coordinator.handle(BarrierReached(), 100)

    commands = coordinator.handle(SlotDeclined(1, 0, FailureReason.DECLINED, "snapshot_state raised."), 110)

    assert commands[:2] == [
        NotifyAborted(1, FailureReason.DECLINED, "snapshot_state raised."),
        Discard(1),
    ]
    assert isinstance(commands[2], FailJob)
    assert commands[2].error.reason is FailureReason.DECLINED
    assert commands[2].error.checkpoint_id == 1


def test_only_failures_in_a_row_count() -> None:
    coordinator = started(tolerable_failures=1)

    def fail(n: int) -> bool:
        coordinator.handle(BarrierReached(), 100 * n)
        return any(
            isinstance(c, FailJob) for c in coordinator.handle(StorageFailed(n, "disk full"), 100 * n + 1)
        )

    assert not fail(1)
    coordinator.handle(BarrierReached(), 200)
    complete(coordinator, 2, 201)
    assert not fail(3)
    assert fail(4)


def test_a_restart_clears_the_row_of_failures() -> None:
    coordinator = started(tolerable_failures=1)
    coordinator.handle(BarrierReached(), 100)
    coordinator.handle(StorageFailed(1, "disk full"), 101)
    coordinator.handle(JobRestarting(), 102)
    coordinator.handle(Started(SLOTS), 110)
    coordinator.handle(BarrierReached(), 210)

    assert not any(isinstance(c, FailJob) for c in coordinator.handle(StorageFailed(2, "disk full"), 211))


def test_ids_grow_by_one_per_attempt_failed_ones_and_savepoints_included() -> None:
    coordinator = started(tolerable_failures=9)
    coordinator.handle(BarrierReached(), 100)
    coordinator.handle(SlotDeclined(1, 0, FailureReason.DECLINED, ""), 101)
    coordinator.handle(SavepointRequested(SAVEPOINT), 102)

    assert triggered(coordinator.handle(BarrierReached(), 103)) == [2]
    complete(coordinator, 2, 104)
    assert triggered(coordinator.handle(BarrierReached(), 200)) == [3]
    coordinator.handle(JobRestarting(), 201)
    coordinator.handle(Started(SLOTS), 300)
    assert triggered(coordinator.handle(BarrierReached(), 400)) == [4]


def test_ids_continue_after_the_snapshot_the_job_was_started_from() -> None:
    origin = CompletedSnapshot(41, "/elsewhere/chk-41", Origin.EXTERNAL)
    coordinator = CheckpointCoordinator(CheckpointSettings(interval=100), restored_from=[origin])
    coordinator.handle(Started(SLOTS), 0)

    assert coordinator.completed.latest() == origin
    assert coordinator.handle(BarrierReached(), 100) == [TriggerBarrier(42, 100)]
    assert complete(coordinator, 42, 110) == [NotifyComplete(42, "chk-42")]
    assert [s.checkpoint_id for s in coordinator.completed.candidates()] == [42]


def test_a_savepoint_needs_no_interval_pause_or_free_place() -> None:
    coordinator = started(min_pause=1000)
    coordinator.handle(BarrierReached(), 100)
    coordinator.handle(SavepointRequested(SAVEPOINT), 101)

    assert coordinator.handle(BarrierReached(), 102) == [TriggerBarrier(2, 102, None, SAVEPOINT)]


def test_no_checkpoint_starts_while_a_savepoint_is_pending() -> None:
    coordinator = started(max_concurrent=5)
    coordinator.handle(SavepointRequested(SAVEPOINT), 10)
    coordinator.handle(BarrierReached(), 10)

    assert coordinator.handle(BarrierReached(), 100) == []
    assert complete(coordinator, 1, 110) == [NotifyComplete(1, "chk-1", SAVEPOINT)]
    assert triggered(coordinator.handle(BarrierReached(), 110)) == [2]


def test_a_savepoint_can_be_recovered_from_but_pushes_nothing_out_and_is_never_deleted() -> None:
    coordinator = started()
    coordinator.handle(BarrierReached(), 100)
    complete(coordinator, 1, 101)
    coordinator.handle(SavepointRequested(SAVEPOINT), 102)
    coordinator.handle(BarrierReached(), 102)

    assert complete(coordinator, 2, 103) == [NotifyComplete(2, "chk-2", SAVEPOINT)]
    assert [s.checkpoint_id for s in coordinator.completed.candidates()] == [2, 1]
    coordinator.handle(BarrierReached(), 200)
    assert complete(coordinator, 3, 201) == [NotifyComplete(3, "chk-3"), Discard(1)]
    assert [s.checkpoint_id for s in coordinator.completed.candidates()] == [3]


def test_a_failed_savepoint_leaves_the_job_running_and_is_removed() -> None:
    coordinator = started()
    coordinator.handle(SavepointRequested(SAVEPOINT), 10)
    coordinator.handle(BarrierReached(), 10)

    assert coordinator.handle(SlotDeclined(1, 0, FailureReason.STORAGE, "full"), 20) == [
        NotifyAborted(1, FailureReason.STORAGE, "full", SAVEPOINT),
        Discard(1, (), SAVEPOINT),
    ]
    assert triggered(coordinator.handle(BarrierReached(), 100)) == [2]


def test_a_savepoint_that_had_not_begun_is_rejected_once_and_not_taken_by_the_next_attempt() -> None:
    coordinator = started(interval=-1)
    coordinator.handle(SavepointRequested(SAVEPOINT), 10)

    rejected = coordinator.handle(JobRestarting(), 20)

    assert [type(command) for command in rejected] == [RejectSavepoint]
    assert coordinator.handle(Started(SLOTS), 30) == []
    assert coordinator.handle(BarrierReached(), 40) == []


def test_a_savepoint_that_finds_no_barrier_within_the_timeout_is_rejected() -> None:
    coordinator = started(timeout=50)
    coordinator.handle(SavepointRequested(SAVEPOINT), 10)

    assert coordinator.handle(Tick(), 59) == []
    (command,) = coordinator.handle(Tick(), 60)

    assert isinstance(command, RejectSavepoint)
    assert command.reason is FailureReason.EXPIRED
    assert coordinator.handle(BarrierReached(), 61) == []


def test_a_savepoint_of_a_job_that_does_not_run_is_rejected() -> None:
    coordinator = CheckpointCoordinator(CheckpointSettings())

    (command,) = coordinator.handle(SavepointRequested(SAVEPOINT), 0)

    assert isinstance(command, RejectSavepoint)
    assert command.reason is FailureReason.NOT_RUNNING


@pytest.mark.parametrize(
    ("event", "reason"),
    [(JobEnded(JobEnd.FAILED), FailureReason.JOB_STOPPING), (JobRestarting(), FailureReason.JOB_RESTARTING)],
)
def test_what_is_pending_when_the_attempt_ends_is_aborted_without_counting(
    event: JobEnded | JobRestarting, reason: FailureReason
) -> None:
    coordinator = started()
    coordinator.handle(BarrierReached(), 100)
    coordinator.handle(SavepointRequested(SAVEPOINT), 101)

    commands = coordinator.handle(event, 110)

    assert [type(c) for c in commands[:3]] == [NotifyAborted, Discard, RejectSavepoint]
    assert commands[0].reason is reason
    assert coordinator.handle(BarrierReached(), 1000) == []
    assert coordinator.next_wakeup(1000) is None


def test_files_of_a_slot_that_answers_too_late_are_removed() -> None:
    coordinator = started(tolerable_failures=9)
    coordinator.handle(BarrierReached(), 100)
    coordinator.handle(SlotDeclined(1, 0, FailureReason.DECLINED, ""), 101)

    late = SlotAcknowledged(1, 1, {"op": with_files("late.sst")})
    assert coordinator.handle(late, 200) == [Discard(1, ("late.sst",))]


def test_metadata_that_arrives_after_the_abort_is_removed() -> None:
    coordinator = started()
    coordinator.handle(BarrierReached(), 100)
    for slot in SLOTS:
        coordinator.handle(SlotAcknowledged(1, slot), 110)
    coordinator.handle(JobRestarting(), 120)

    assert coordinator.handle(MetadataWritten(1, "chk-1"), 130) == [Discard(1)]
    assert coordinator.completed.latest() is None


def test_events_of_unknown_checkpoints_are_ignored() -> None:
    coordinator = started()
    coordinator.handle(BarrierReached(), 100)
    complete(coordinator, 1, 101)

    assert coordinator.handle(SlotAcknowledged(1, 0), 102) == []
    assert coordinator.handle(MetadataWritten(1, "chk-1"), 102) == []
    assert coordinator.handle(SlotDeclined(1, 0, FailureReason.DECLINED, ""), 102) == []
    assert coordinator.handle(SlotAcknowledged(99, 0), 102) == []


def test_metadata_before_all_slots_is_no_completion() -> None:
    coordinator = started()
    coordinator.handle(BarrierReached(), 100)

    assert coordinator.handle(MetadataWritten(1, "chk-1"), 101) == []
    assert coordinator.completed.latest() is None


def test_shared_files_go_with_the_last_checkpoint_that_needs_them() -> None:
    coordinator = started()

    def run(n: int, *files: str) -> list[Command]:
        coordinator.handle(BarrierReached(), 100 * n)
        coordinator.handle(SlotAcknowledged(n, 0, {"op": with_files(*files)}), 100 * n)
        coordinator.handle(SlotAcknowledged(n, 1), 100 * n)
        return written(coordinator, n, 100 * n)

    run(1, "a", "b")
    assert run(2, "b", "c") == [NotifyComplete(2, "chk-2"), Discard(1, ("a",))]
    assert run(3, "d") == [NotifyComplete(3, "chk-3"), Discard(2, ("b", "c"))]


def test_shared_files_a_pending_checkpoint_may_refer_to_wait_for_it() -> None:
    coordinator = started(max_concurrent=2)
    coordinator.handle(BarrierReached(), 100)
    coordinator.handle(SlotAcknowledged(1, 0, {"op": with_files("a")}), 101)
    coordinator.handle(SlotAcknowledged(1, 1), 101)
    written(coordinator, 1, 101)
    coordinator.handle(BarrierReached(), 200)
    coordinator.handle(BarrierReached(), 300)

    coordinator.handle(SlotAcknowledged(2, 0, {"op": with_files("b")}), 301)
    coordinator.handle(SlotAcknowledged(2, 1), 301)
    assert written(coordinator, 2, 301) == [NotifyComplete(2, "chk-2"), Discard(1)]

    coordinator.handle(SlotAcknowledged(3, 0, {"op": with_files("a")}), 302)
    coordinator.handle(SlotAcknowledged(3, 1), 302)
    assert written(coordinator, 3, 302) == [
        NotifyComplete(3, "chk-3"),
        Discard(2, ("b",)),
    ]


@pytest.mark.parametrize("ends", ["completes", "is given up"])
def test_shared_files_go_when_the_checkpoint_that_might_have_needed_them_ends_without(ends: str) -> None:
    coordinator = started(max_concurrent=2, tolerable_failures=9)
    coordinator.handle(BarrierReached(), 100)
    coordinator.handle(SlotAcknowledged(1, 0, {"op": with_files("a")}), 101)
    complete(coordinator, 1, 101)
    coordinator.handle(BarrierReached(), 200)
    coordinator.handle(BarrierReached(), 300)
    assert complete(coordinator, 2, 301) == [NotifyComplete(2, "chk-2"), Discard(1)]

    if ends == "completes":
        assert complete(coordinator, 3, 302) == [
            NotifyComplete(3, "chk-3"),
            Discard(None, ("a",)),
            Discard(2),
        ]
    else:
        commands = coordinator.handle(SlotDeclined(3, 0, FailureReason.DECLINED, "no"), 302)
        assert Discard(3, ("a",)) in commands


@pytest.mark.parametrize(
    ("keep", "how", "kept"),
    [
        (Keep.NO_EXTERNALIZED_CHECKPOINTS, JobEnd.FINISHED, False),
        (Keep.NO_EXTERNALIZED_CHECKPOINTS, JobEnd.CANCELED, False),
        (Keep.NO_EXTERNALIZED_CHECKPOINTS, JobEnd.FAILED, False),
        (Keep.DELETE_ON_CANCELLATION, JobEnd.FINISHED, False),
        (Keep.DELETE_ON_CANCELLATION, JobEnd.CANCELED, False),
        (Keep.DELETE_ON_CANCELLATION, JobEnd.FAILED, True),
        (Keep.RETAIN_ON_CANCELLATION, JobEnd.FINISHED, False),
        (Keep.RETAIN_ON_CANCELLATION, JobEnd.CANCELED, True),
        (Keep.RETAIN_ON_CANCELLATION, JobEnd.FAILED, True),
    ],
)
def test_what_stays_when_the_job_ends(keep: Keep, how: JobEnd, kept: bool) -> None:
    coordinator = started(retention=keep)
    coordinator.handle(BarrierReached(), 100)
    complete(coordinator, 1, 101)

    assert coordinator.handle(JobEnded(how), 200) == ([] if kept else [Discard(1), DiscardJob()])


def test_the_records_say_which_checkpoints_are_gone() -> None:
    coordinator = started()
    for n in (1, 2):
        coordinator.handle(BarrierReached(), 100 * n)
        complete(coordinator, n, 100 * n + 1)
    assert [record.discarded for record in coordinator.statistics.records()] == [False, True]

    coordinator.handle(JobEnded(JobEnd.FINISHED), 300)

    assert [record.discarded for record in coordinator.statistics.records()] == [True, True]


def test_a_job_without_a_complete_checkpoint_leaves_nothing() -> None:
    coordinator = started(retention=Keep.RETAIN_ON_CANCELLATION)
    coordinator.handle(BarrierReached(), 100)

    commands = coordinator.handle(JobEnded(JobEnd.FAILED), 200)

    assert [type(c) for c in commands] == [NotifyAborted, Discard, DiscardJob]


def test_a_job_that_never_took_a_snapshot_deletes_nothing() -> None:
    assert started().handle(JobEnded(JobEnd.FINISHED), 50) == []


def test_a_damaged_snapshot_is_no_candidate_any_more_and_stays_when_everything_else_goes() -> None:
    coordinator = started(num_retained=2)
    for n in (1, 2):
        coordinator.handle(BarrierReached(), 100 * n)
        complete(coordinator, n, 100 * n)

    coordinator.quarantine(2, "bits flipped")

    latest = coordinator.completed.latest()
    assert latest is not None
    assert latest.checkpoint_id == 1
    assert [s.checkpoint_id for s in coordinator.completed.left_behind(latest)] == [2]
    assert coordinator.handle(JobEnded(JobEnd.FINISHED), 300) == [Discard(1)]
    assert coordinator.is_spent(1)
    assert not coordinator.is_spent(2)
    [record] = [r for r in coordinator.statistics.records() if r.checkpoint_id == 2]
    assert (record.quarantined, record.message) == (True, "bits flipped")


def test_what_was_left_behind_is_asked_about_once() -> None:
    coordinator = started(num_retained=3)
    for n in (1, 2, 3):
        coordinator.handle(BarrierReached(), 100 * n)
        complete(coordinator, n, 100 * n)
    completed = coordinator.completed
    one, two, _three = reversed(completed.candidates())
    coordinator.quarantine(3, "damaged")

    completed.went_back(two)
    assert completed.left_behind(two) == []

    coordinator.quarantine(2, "damaged")
    assert completed.left_behind(one) == [two]


def test_checkpoints_that_could_not_be_read_outlive_the_job_that_failed_over_them() -> None:
    coordinator = started()
    coordinator.handle(BarrierReached(), 100)
    complete(coordinator, 1, 100)

    assert coordinator.handle(JobEnded(JobEnd.FAILED, unread=True), 200) == []


def test_only_what_this_job_began_and_gave_up_is_spent() -> None:
    origin = CompletedSnapshot(5, "/sp", Origin.EXTERNAL)
    coordinator = CheckpointCoordinator(CheckpointSettings(interval=100), restored_from=[origin])
    coordinator.handle(Started(frozenset({0})), 0)
    coordinator.handle(BarrierReached(), 100)

    assert [n for n in range(9) if coordinator.is_spent(n)] == []
    coordinator.handle(SlotDeclined(6, 0, FailureReason.DECLINED, "no"), 110)
    assert [n for n in range(9) if coordinator.is_spent(n)] == [6]


def test_the_statistics_tell_the_story() -> None:
    coordinator = started(tolerable_failures=9)
    coordinator.handle(BarrierReached(), 100)
    coordinator.handle(
        SlotAcknowledged(1, 0, {"op": SubtaskState(0, state_size=10, written_size=4)}, 1, 7), 105
    )
    coordinator.handle(
        SlotAcknowledged(1, 1, {"op": SubtaskState(1, state_size=5, written_size=5)}, 3, 2), 106
    )
    coordinator.handle(MetadataWritten(1, "chk-1"), 110)
    coordinator.handle(BarrierReached(), 200)
    coordinator.handle(SlotDeclined(2, 0, FailureReason.DECLINED, "no"), 205)
    coordinator.statistics.restored += 1

    second, first = coordinator.statistics.records()
    assert (first.status, first.duration_ms, first.state_size, first.written_size) == (
        CheckpointStatus.COMPLETED,
        10,
        15,
        9,
    )
    assert (first.sync_ms, first.async_ms, first.acknowledged, first.slots) == (3, 7, 2, 2)
    assert (second.status, second.reason, second.message) == (
        CheckpointStatus.FAILED,
        FailureReason.DECLINED,
        "no",
    )
    stats = coordinator.statistics
    assert (stats.triggered, stats.completed, stats.failed, stats.restored) == (2, 1, 1, 1)


def test_the_history_is_bounded() -> None:
    coordinator = CheckpointCoordinator(CheckpointSettings(interval=10), history=3)
    coordinator.handle(Started(SLOTS), 0)
    for n in range(1, 6):
        coordinator.handle(BarrierReached(), 10 * n)
        complete(coordinator, n, 10 * n)

    assert [record.checkpoint_id for record in coordinator.statistics.records()] == [5, 4, 3]


def acknowledged(coordinator: CheckpointCoordinator, checkpoint_id: int, now: int) -> None:
    for slot in sorted(SLOTS):
        coordinator.handle(SlotAcknowledged(checkpoint_id, slot), now)


def test_vanished_files_are_forgiven_once_and_the_next_checkpoint_is_due_at_once() -> None:
    coordinator = started(min_pause=50)
    coordinator.handle(BarrierReached(), 100)
    acknowledged(coordinator, 1, 101)

    commands = coordinator.handle(StorageFailed(1, "gone", vanished=True), 102)

    assert [type(command) for command in commands] == [NotifyAborted, Discard]
    assert triggered(coordinator.handle(BarrierReached(), 102)) == [2]
    acknowledged(coordinator, 2, 103)
    again = coordinator.handle(StorageFailed(2, "gone again", vanished=True), 104)
    assert any(isinstance(command, FailJob) for command in again)


def test_vanished_files_are_forgiven_again_after_a_checkpoint_completed() -> None:
    coordinator = started()
    coordinator.handle(BarrierReached(), 100)
    acknowledged(coordinator, 1, 101)
    coordinator.handle(StorageFailed(1, "gone", vanished=True), 102)
    coordinator.handle(BarrierReached(), 102)
    complete(coordinator, 2, 103)

    coordinator.handle(BarrierReached(), 300)
    acknowledged(coordinator, 3, 301)
    commands = coordinator.handle(StorageFailed(3, "gone", vanished=True), 302)

    assert not any(isinstance(command, FailJob) for command in commands)


def test_a_clock_that_is_set_back_delays_nothing() -> None:
    coordinator = started()
    assert triggered(coordinator.handle(BarrierReached(), 100)) == [1]
    complete(coordinator, 1, 120)

    coordinator.handle(Tick(), -1_000_000)

    assert triggered(coordinator.handle(BarrierReached(), -999_921)) == []
    assert triggered(coordinator.handle(BarrierReached(), -999_920)) == [2]


def test_a_clock_that_is_set_back_neither_delays_nor_hastens_the_timeout_of_a_checkpoint() -> None:
    hour = 3_600_000
    clock = ManualClock(2 * hour)
    coordinator = CheckpointCoordinator(CheckpointSettings(interval=100, timeout=1000))
    coordinator.handle(Started(SLOTS), clock.now())
    clock.advance(100)
    assert triggered(coordinator.handle(BarrierReached(), clock.now())) == [1]
    clock.advance(400)
    assert coordinator.handle(Tick(), clock.now()) == []

    clock.set(clock.now() - hour)

    assert coordinator.next_wakeup(clock.now()) == clock.now() + 600
    assert coordinator.handle(Tick(), clock.now()) == []
    clock.advance(599)
    assert coordinator.handle(Tick(), clock.now()) == []
    clock.advance(1)
    expired = coordinator.handle(Tick(), clock.now())
    assert [command.reason for command in expired if isinstance(command, NotifyAborted)] == [
        FailureReason.EXPIRED
    ]


def test_a_checkpoint_is_stamped_with_the_time_it_was_told_whatever_the_clock_does_later() -> None:
    coordinator = started()
    coordinator.handle(BarrierReached(), 5000)
    coordinator.handle(SlotAcknowledged(1, 0), 2000)

    [command] = coordinator.handle(SlotAcknowledged(1, 1), 2001)

    assert isinstance(command, WriteMetadata)
    assert command.timestamp == 5000


def test_a_clock_that_is_set_back_neither_delays_nor_hastens_the_end_of_a_savepoint_nobody_begins() -> None:
    hour = 3_600_000
    clock = ManualClock(2 * hour)
    coordinator = CheckpointCoordinator(CheckpointSettings(timeout=1000))
    coordinator.handle(Started(SLOTS), clock.now())
    coordinator.handle(SavepointRequested(SAVEPOINT), clock.now())
    clock.advance(400)
    coordinator.handle(Tick(), clock.now())

    clock.set(clock.now() - hour)

    assert coordinator.handle(Tick(), clock.now()) == []
    clock.advance(599)
    assert coordinator.handle(Tick(), clock.now()) == []
    clock.advance(1)
    rejected = coordinator.handle(Tick(), clock.now())
    assert [command.reason for command in rejected if isinstance(command, RejectSavepoint)] == [
        FailureReason.EXPIRED
    ]


def test_older_checkpoints_stay_until_the_output_of_the_newer_one_is_out() -> None:
    coordinator = started()
    coordinator.handle(BarrierReached(), 100)
    complete(coordinator, 1, 110)
    coordinator.handle(BarrierReached(), 200)
    for slot in sorted(SLOTS):
        coordinator.handle(SlotAcknowledged(2, slot), 210)

    assert coordinator.handle(MetadataWritten(2, "chk-2"), 220) == [NotifyComplete(2, "chk-2")]

    assert [s.checkpoint_id for s in coordinator.completed.candidates()] == [2, 1]
    assert not coordinator.is_spent(1)
    assert coordinator.handle(SinksCommitted(2), 230) == [Discard(1)]
    assert coordinator.is_spent(1)


def test_a_new_attempt_has_committed_what_it_started_from() -> None:
    coordinator = started()
    coordinator.handle(BarrierReached(), 100)
    complete(coordinator, 1, 110)
    coordinator.handle(BarrierReached(), 200)
    for slot in sorted(SLOTS):
        coordinator.handle(SlotAcknowledged(2, slot), 210)
    coordinator.handle(MetadataWritten(2, "chk-2"), 220)

    assert coordinator.handle(JobRestarting(), 230) == []
    assert not coordinator.is_spent(1)
    assert coordinator.handle(Started(SLOTS), 240) == [Discard(1)]


def test_of_two_checkpoints_that_are_complete_only_the_committed_one_pushes_others_out() -> None:
    completed = CompletedSnapshots(1)
    for number in (1, 2, 3):
        completed.add(CompletedSnapshot(number, f"chk-{number}", Origin.CHECKPOINT))

    assert [s.checkpoint_id for s in completed.committed(2)] == [1]
    assert [s.checkpoint_id for s in completed.candidates()] == [3, 2]


def test_a_snapshot_completes_once() -> None:
    completed = CompletedSnapshots(1)
    completed.add(CompletedSnapshot(1, "chk-1", Origin.CHECKPOINT))

    with pytest.raises(ValueError, match="Snapshot 1 is complete already"):
        completed.add(CompletedSnapshot(1, "chk-1", Origin.SAVEPOINT))


def test_what_is_left_behind_is_told_newest_first_and_counts_as_committed_until_the_job_went_back() -> None:
    completed = CompletedSnapshots(3)
    assert completed.last_commit() is None
    one, two, three = (CompletedSnapshot(n, f"chk-{n}", Origin.CHECKPOINT) for n in (1, 2, 3))
    for snapshot in (one, two, three):
        completed.add(snapshot)
    for damaged in (2, 3):
        completed.quarantine(damaged)

    assert completed.left_behind(one) == [three, two]
    assert completed.last_commit() == 3
    completed.went_back(one)
    assert completed.left_behind(one) == []
    assert completed.last_commit() == 1
