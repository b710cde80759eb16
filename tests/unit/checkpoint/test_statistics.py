"""What is remembered of snapshots is bounded by the history, whatever they had to say."""

from __future__ import annotations

from tidemark.checkpoint.messages import SlotAcknowledged
from tidemark.checkpoint.metadata.model import SubtaskState
from tidemark.checkpoint.pending import PendingSnapshot
from tidemark.checkpoint.statistics import CheckpointStatistics


def test_subtasks_are_forgotten_with_their_snapshot() -> None:
    statistics = CheckpointStatistics(history=3)

    for checkpoint_id in range(1, 11):
        pending = PendingSnapshot(checkpoint_id, 0, frozenset({0}))
        statistics.started(pending)
        event = SlotAcknowledged(checkpoint_id, 0, {"op": SubtaskState(0)})
        pending.acknowledge(event)
        statistics.progressed(pending, event, 1)

    assert [record.checkpoint_id for record in statistics.records()] == [10, 9, 8]
    assert [n for n in range(1, 11) if statistics.subtasks(n)] == [8, 9, 10]
