"""A snapshot in the making: who has acknowledged, who has not."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemark.checkpoint.messages import SavepointRequest, SlotAcknowledged
from tidemark.checkpoint.metadata.model import SubtaskState

__all__ = ["PendingSnapshot"]


@dataclass(slots=True)
class PendingSnapshot:
    """One attempt between its barrier and its completion."""

    checkpoint_id: int
    started_at: int
    slots: frozenset[int]
    savepoint: SavepointRequest | None = None
    acknowledged: dict[int, SlotAcknowledged] = field(default_factory=dict)
    finalizing: bool = False
    """`WriteMetadata` was asked for; from here on only its outcome or the end of the attempt decides."""
    waiting_since: int = field(init=False)
    """Beginning of its timeout: `started_at`, less whatever the clock has been set back since."""

    def __post_init__(self) -> None:
        self.waiting_since = self.started_at

    @property
    def is_savepoint(self) -> bool:
        """Whether a user asked for it."""
        return self.savepoint is not None

    @property
    def missing(self) -> frozenset[int]:
        """Slots that have not acknowledged yet."""
        return self.slots - self.acknowledged.keys()

    def acknowledge(self, event: SlotAcknowledged) -> bool:
        """Take an acknowledgement (the first of a slot counts); tell whether it was the last missing one."""
        if event.slot not in self.slots or event.slot in self.acknowledged:
            return False
        self.acknowledged[event.slot] = event
        # Counted, not compared: with ten thousand slots the difference of sets would cost seconds per snapshot.
        return len(self.acknowledged) == len(self.slots)

    def states(self) -> dict[str, tuple[SubtaskState, ...]]:
        """Operator uid -> states of its subtasks, by index."""
        by_uid: dict[str, list[SubtaskState]] = {}
        for slot in sorted(self.acknowledged):
            for uid, state in self.acknowledged[slot].states.items():
                by_uid.setdefault(uid, []).append(state)
        return {
            uid: tuple(sorted(states, key=lambda state: state.index))
            for uid, states in sorted(by_uid.items())
        }

    def shared_files(self) -> frozenset[str]:
        """Shared files the acknowledgements so far refer to."""
        return frozenset(
            name
            for event in self.acknowledged.values()
            for state in event.states.values()
            for name in state.shared_files()
        )
