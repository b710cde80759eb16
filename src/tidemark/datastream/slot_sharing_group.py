"""Resources of operators."""

from __future__ import annotations

from tidemark.api.slot_sharing import SlotSharingGroup
from tidemark.config import MemorySize

__all__ = [
    "MemorySize",
    "SlotSharingGroup",
]
