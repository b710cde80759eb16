"""What a slot says by itself, and what its driver finds out about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tidemark.checkpoint.messages import SlotAcknowledged, SlotDeclined

__all__ = ["SlotEvent", "SlotLost", "SlotReady"]


@dataclass(frozen=True, slots=True)
class SlotReady:
    """A source function in the slot has something new."""

    slot: int


@dataclass(frozen=True, slots=True)
class SlotLost:
    """The slot's process is gone, or was given up."""

    slot: int
    why: str


SlotEvent: TypeAlias = SlotAcknowledged | SlotDeclined | SlotReady | SlotLost
"""A part of a snapshot that was written or refused goes to the checkpoint coordinator as it is."""
