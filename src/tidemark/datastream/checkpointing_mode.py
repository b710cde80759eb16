"""The guarantee of checkpoints."""

from __future__ import annotations

from tidemark.config import CheckpointingMode

__all__ = [
    "CheckpointingMode",
]
