"""What a slot says by itself, and what its driver finds out about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tidemark.checkpoint.messages import SlotAcknowledged, SlotDeclined

__all__ = ["SlotEvent", "SlotLost", "SlotMemoryUse", "SlotReady"]


@dataclass(frozen=True, slots=True)
class SlotReady:
    """A source function in the slot has something new."""

    slot: int


@dataclass(frozen=True, slots=True)
class SlotLost:
    """The slot's process is gone, or was given up."""

    slot: int
    why: str


@dataclass(frozen=True, slots=True)
class SlotMemoryUse:
    """The slot is near the end of its memory, or beyond it."""

    slot: int
    used: int
    """Bytes."""
    budget: int

    def __str__(self) -> str:
        over = "more than" if self.used > self.budget else f"{100 * self.used / self.budget:.0f} % of"
        return f"it used {self.used >> 20} MiB, {over} the {self.budget >> 20} MiB of taskmanager.memory.process.size"


SlotEvent: TypeAlias = SlotAcknowledged | SlotDeclined | SlotReady | SlotLost | SlotMemoryUse
"""A part of a snapshot that was written or refused goes to the checkpoint coordinator as it is."""
