"""Random histories of events against the promises of the coordinator."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.campaign import examples

from tidemark.checkpoint.coordinator import CheckpointCoordinator
from tidemark.checkpoint.messages import (
    BarrierReached,
    Command,
    Discard,
    DiscardJob,
    Event,
    FailJob,
    JobEnd,
    JobEnded,
    JobRestarting,
    MetadataWritten,
    NotifyAborted,
    NotifyComplete,
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
from tidemark.config import CheckpointSettings
from tidemark.config.modes import ExternalizedCheckpointRetention
from tidemark.errors import FailureReason


class Job(RuleBasedStateMachine):
    """A job with slots that behave well or badly, and a model of the files on disk."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.files = 0
        self.requests = 0
        self.slots = frozenset({0})
        self.ids: list[int] = []
        self.triggered: dict[int, TriggerBarrier] = {}
        self.acked: dict[int, set[int]] = {}
        self.writing: set[int] = set()
        self.completed: set[int] = set()
        self.failed: set[int] = set()
        self.references: dict[int, set[str]] = {}
        self.on_disk: set[str] = set()
        self.directories: set[int] = set()
        self.last_end: int | None = None
        self.commits = True
        """Whether sinks can commit; while they cannot, an attempt ends with the next complete snapshot."""
        self.committed = 0
        self.over = False

    @initialize(
        slots=st.integers(1, 3),
        pause=st.sampled_from([0, 0, 30]),
        concurrent=st.sampled_from([1, 3, 3]),
        retained=st.sampled_from([1, 1, 2]),
        tolerable=st.sampled_from([0, 2, 99, 99]),
        retention=st.sampled_from(list(ExternalizedCheckpointRetention)),
    )
    def begin(self, slots, pause, concurrent, retained, tolerable, retention) -> None:
        self.slots = frozenset(range(slots))
        self.settings = CheckpointSettings(50, 1000, pause, concurrent, tolerable, retained, retention)
        self.coordinator = CheckpointCoordinator(self.settings)
        self.tell(Started(self.slots))

    def tell(self, event: Event) -> None:
        commands = self.coordinator.handle(event, self.now)
        for command in commands:
            self.carry_out(command)
        if any(isinstance(command, FailJob) for command in commands):
            self.restart()
        for command in commands:
            if isinstance(command, NotifyComplete):
                self.commit(command.checkpoint_id)

    def commit(self, n: int) -> None:
        if self.commits:
            self.committed = max(self.committed, n)
            self.tell(SinksCommitted(n))
        else:
            self.tell(JobRestarting())
            self.last_end = None

    def carry_out(self, command: Command) -> None:
        match command:
            case TriggerBarrier(checkpoint_id=n):
                assert n == (self.ids[-1] + 1 if self.ids else 1)
                if command.savepoint is None:
                    running = [
                        i
                        for i in self.coordinator.pending()
                        if self.triggered.get(i, command).savepoint is None
                    ]
                    assert len(running) <= self.settings.concurrency
                    if self.last_end is not None:
                        assert self.now >= self.last_end + self.settings.min_pause
                if command.base is not None:
                    assert command.base in self.completed
                self.ids.append(n)
                self.triggered[n] = command
                self.acked[n] = set()
                self.references[n] = set()
                self.directories.add(n)
            case WriteMetadata(checkpoint_id=n):
                assert self.acked[n] >= self.slots
                self.writing.add(n)
            case NotifyComplete(checkpoint_id=n):
                assert n not in self.completed | self.failed
                assert self.references[n] <= self.on_disk
                self.completed.add(n)
                self.settle(n)
            case NotifyAborted(checkpoint_id=n):
                assert n not in self.completed | self.failed
                self.failed.add(n)
                self.writing.discard(n)
                self.settle(n)
            case Discard():
                if command.savepoint is not None:
                    assert command.checkpoint_id not in self.completed
                if command.checkpoint_id is not None:
                    assert command.checkpoint_id not in {
                        s.checkpoint_id for s in self.coordinator.completed.candidates()
                    }
                    if command.checkpoint_id in self.completed and not self.over:
                        assert command.checkpoint_id < self.committed, "its successor has not been committed"
                    self.directories.discard(command.checkpoint_id)
                self.on_disk -= set(command.shared)
            case DiscardJob():
                assert not self.coordinator.completed.checkpoints()
            case _:
                pass

    def settle(self, n: int) -> None:
        if self.triggered[n].savepoint is None:
            self.last_end = self.now

    def restart(self) -> None:
        self.tell(JobRestarting())
        assert self.coordinator.pending() == []
        self.last_end = None
        # Sinks are restored to the newest snapshot before slots are told to go on.
        self.committed = max(self.completed, default=0)
        self.commits = True
        self.tell(Started(self.slots))

    @rule()
    def sinks_cannot_commit(self) -> None:
        self.commits = False

    @rule(ms=st.integers(0, 400))
    def time_passes(self, ms: int) -> None:
        self.now += ms
        self.tell(Tick())

    @rule(lengths=st.lists(st.sampled_from([1, 50, 60]), min_size=1, max_size=4))
    def epochs_end(self, lengths: list[int]) -> None:
        for ms in lengths:
            self.now += ms
            self.tell(BarrierReached())

    @rule()
    def a_savepoint_is_wanted(self) -> None:
        self.requests += 1
        self.tell(SavepointRequested(SavepointRequest(str(self.requests), f"/savepoints/{self.requests}")))

    @precondition(lambda self: self.ids)
    @rule(data=st.data())
    def a_slot_acknowledges(self, data) -> None:
        """Also one of an attempt long over."""
        n = data.draw(st.sampled_from(self.ids))
        slot = data.draw(st.sampled_from(sorted(self.slots)))
        self.acknowledge(data, n, slot)

    @precondition(lambda self: self.ids and self.coordinator.pending())
    @rule(data=st.data())
    def all_goes_well(self, data) -> None:
        n = data.draw(st.sampled_from(self.coordinator.pending()))
        for slot in self.slots:
            self.acknowledge(data, n, slot)
        self.writing.discard(n)
        self.tell(MetadataWritten(n, f"chk-{n}"))

    def acknowledge(self, data, n: int, slot: int) -> None:
        """A slot writes incrementally: it refers to files of the base and to new ones."""
        if slot in self.acked[n]:
            return
        base = self.triggered[n].base
        names: set[str] = set()
        if self.triggered[n].savepoint is None:
            if base is not None and n in self.coordinator.pending():
                reusable = sorted(f for f in self.references[base] if f.startswith(f"{slot}-"))
                names |= {name for name in reusable if data.draw(st.booleans())}
                assert names <= self.on_disk
            for _ in range(data.draw(st.integers(0, 2))):
                self.files += 1
                names.add(f"{slot}-{self.files}")
        self.on_disk |= names
        self.references[n] |= names
        self.acked[n].add(slot)
        handles = tuple(FileHandle(name, 1, b"", name, True) for name in sorted(names))
        state = SubtaskState(slot, native=NativeHandle("rocksdb", handles, ()))
        self.tell(SlotAcknowledged(n, slot, {"op": state}))

    @precondition(lambda self: self.ids)
    @rule(data=st.data(), reason=st.sampled_from([FailureReason.DECLINED, FailureReason.STORAGE]))
    def a_slot_declines(self, data, reason) -> None:
        self.tell(SlotDeclined(data.draw(st.sampled_from(self.ids)), 0, reason, "no"))

    @precondition(lambda self: self.writing)
    @rule(data=st.data(), works=st.booleans())
    def the_metadata_is_written_or_not(self, data, works: bool) -> None:
        n = data.draw(st.sampled_from(sorted(self.writing)))
        self.writing.discard(n)
        self.tell(MetadataWritten(n, f"chk-{n}") if works else StorageFailed(n, "disk full"))

    @precondition(lambda self: self.ids)
    @rule(data=st.data())
    def a_stray_metadata_event_arrives(self, data) -> None:
        n = data.draw(st.sampled_from(self.ids))
        if n not in self.writing:
            self.tell(MetadataWritten(n, f"chk-{n}"))

    @precondition(lambda self: self.now % 5 == 0)
    @rule()
    def the_attempt_fails(self) -> None:
        self.restart()

    @invariant()
    def recovery_uses_only_completed_snapshots(self) -> None:
        if not self.ids:
            return
        candidates = {snapshot.checkpoint_id for snapshot in self.coordinator.completed.candidates()}
        assert candidates <= self.completed
        assert not candidates & self.failed
        if self.completed:
            assert max(candidates) == max(self.completed)

    @invariant()
    def what_is_retained_has_all_its_files(self) -> None:
        if not self.ids:
            return
        for snapshot in self.coordinator.completed.checkpoints():
            assert snapshot.checkpoint_id in self.directories
            assert snapshot.shared_files <= self.on_disk
            assert snapshot.shared_files == self.references[snapshot.checkpoint_id]

    @invariant()
    def no_more_checkpoints_than_wanted_are_retained(self) -> None:
        if self.ids:
            committed = [
                s for s in self.coordinator.completed.checkpoints() if s.checkpoint_id <= self.committed
            ]
            assert len(committed) <= self.settings.num_retained

    @invariant()
    def nothing_is_left_behind_when_all_is_quiet(self) -> None:
        if not self.ids or self.coordinator.pending():
            return
        wanted = {f for s in self.coordinator.completed.checkpoints() for f in s.shared_files}
        assert self.on_disk == wanted
        savepoints = {n for n in self.completed if self.triggered[n].savepoint is not None}
        kept = {s.checkpoint_id for s in self.coordinator.completed.checkpoints()}
        assert self.directories == kept | savepoints

    def teardown(self) -> None:
        if self.ids:
            self.over = True
            self.tell(JobEnded(JobEnd.FINISHED))
            assert self.on_disk == set()


TestCoordinator = Job.TestCase
TestCoordinator.settings = settings(max_examples=examples(150), stateful_step_count=60)
