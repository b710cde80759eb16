"""The load that the driver carries for its slots: a simulation with messages instead of processes.

`make bench-coordinator`. For 1,000 and 10,000 slots, two keyed operators with three states each:
- a checkpoint: every slot's acknowledgement arrives as bytes and is decoded, the coordinator takes it, the metadata is
  encoded and written, its files are looked for, the sinks' commit is told;
- a restart: what every slot is told, with its share of the snapshot, as bytes; with the same parallelism and with
  twice as much.
CPU seconds of the driver, and by how much they grow with ten times the slots: 10 is linear.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from measure import Table, median

from tidemark.checkpoint.coordinator import CheckpointCoordinator
from tidemark.checkpoint.layout import JobLayout
from tidemark.checkpoint.messages import (
    BarrierReached,
    MetadataWritten,
    SinksCommitted,
    SlotAcknowledged,
    Started,
    TriggerBarrier,
    WriteMetadata,
)
from tidemark.checkpoint.metadata.model import (
    CheckpointMetadata,
    OperatorState,
    RowGroup,
    SubtaskState,
    TableHandle,
)
from tidemark.checkpoint.metadata.registry import write_metadata
from tidemark.checkpoint.presence import missing_files
from tidemark.checkpoint.rescale import plan_restore
from tidemark.checkpoint.storage.filesystem import FileSystemStorage
from tidemark.config import CheckpointSettings
from tidemark.slot.control import SLOT_CONTROL
from tidemark.state.descriptors import StateKind
from tidemark.state.key_groups import compute_key_group_range_for_operator_index
from tidemark.state.snapshot import StateMeta

GROUPS = 32768
UIDS = ("first", "second")
JOB = "ab" * 16


def acknowledgement(slot: int, slots: int, checkpoint_id: int) -> SlotAcknowledged:
    groups = compute_key_group_range_for_operator_index(GROUPS, slots, slot)
    tables = tuple(
        TableHandle(
            StateMeta(name, StateKind.VALUE, key=b"k" * 60, value=b"v" * 60),
            rows=1000,
            state_size=16_000,
            file_size=9_000,
            path=f"{name}/part-{slot:05d}.parquet",
            row_groups=(RowGroup(*groups, 1000, 9_000, b"c" * 16),),
            footer_checksum=b"f" * 16,
        )
        for name in ("count", "last", "total")
    )
    states = {uid: SubtaskState(slot, groups, tables, state_size=48_000, written_size=48_000) for uid in UIDS}
    return SlotAcknowledged(checkpoint_id, slot, states)


class Listed(FileSystemStorage):
    """Says that every table is there, as a listing of its directory would."""

    def __init__(self, slots: int) -> None:
        super().__init__()
        self._names = [f"part-{slot:05d}.parquet" for slot in range(slots)]

    def list(self, path: str) -> list[str]:
        return list(self._names)


class Simulation:
    """One job with so many slots."""

    def __init__(self, slots: int, folder: Path) -> None:
        self.slots = slots
        self.coordinator = CheckpointCoordinator(CheckpointSettings(interval=1))
        self.coordinator.handle(Started(frozenset(range(slots))), 0)
        self.layout = JobLayout(str(folder), JOB)
        self.storage = Listed(slots)
        self.now = 0
        self.metadata: CheckpointMetadata | None = None

    def checkpoint(self) -> float:
        """Seconds of the driver for one checkpoint."""
        self.now += 10
        (trigger,) = [
            c for c in self.coordinator.handle(BarrierReached(), self.now) if isinstance(c, TriggerBarrier)
        ]
        checkpoint_id = trigger.checkpoint_id
        messages = [
            SLOT_CONTROL.encode(acknowledgement(slot, self.slots, checkpoint_id))
            for slot in range(self.slots)
        ]
        began = time.process_time()
        for message in messages:
            commands = self.coordinator.handle(SLOT_CONTROL.decode(message), self.now)
        (write,) = [c for c in commands if isinstance(c, WriteMetadata)]
        operators = tuple(
            OperatorState(uid, uid, self.slots, GROUPS, states) for uid, states in write.states.items()
        )
        self.metadata = CheckpointMetadata(
            checkpoint_id, self.now, JOB, "simulated", False, operators=operators
        )
        directory = self.layout.checkpoint(checkpoint_id).directory
        write_metadata(self.storage, directory, self.metadata)
        subtasks = [subtask for operator in operators for subtask in operator.subtasks]
        assert not missing_files(self.storage, self.layout.checkpoint(checkpoint_id), subtasks)
        self.coordinator.handle(MetadataWritten(checkpoint_id, directory, b"d"), self.now)
        self.coordinator.handle(SinksCommitted(checkpoint_id), self.now)
        return time.process_time() - began

    def restart(self, parallelism: int) -> float:
        """Seconds of the driver to say to every slot what it restores."""
        assert self.metadata is not None
        location = self.layout.checkpoint(self.metadata.checkpoint_id)
        began = time.process_time()
        for operator in self.metadata.operators:
            for share in plan_restore(operator, self.metadata, location, parallelism):
                SLOT_CONTROL.encode(share)
        return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--slots", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--repetitions", type=int, default=3)
    arguments = parser.parse_args()
    table = Table()
    before: dict[str, float] = {}
    for slots in arguments.slots:
        with tempfile.TemporaryDirectory() as folder:
            job = Simulation(slots, Path(folder))
            job.checkpoint()
            parts: dict[str, Callable[[], float]] = {
                "checkpoint": job.checkpoint,
                "restart": lambda job=job: job.restart(job.slots),
                "restart with twice the slots": lambda job=job: job.restart(2 * job.slots),
            }
            for name, part in parts.items():
                seconds = median([part() for _ in range(arguments.repetitions)])
                growth = f"{seconds / before[name]:.1f} x" if name in before else ""
                table.row(f"{name}, {slots:,} slots", f"{seconds:.3f} s", growth)
                before[name] = seconds


if __name__ == "__main__":
    main()
