"""Checkpoint settings."""

from __future__ import annotations

from tidemark.api.checkpoint_config import CheckpointConfig
from tidemark.config import (
    CheckpointingMode,
    ExternalizedCheckpointCleanup,
    ExternalizedCheckpointRetention,
)

__all__ = [
    "CheckpointConfig",
    "CheckpointingMode",
    "ExternalizedCheckpointCleanup",
    "ExternalizedCheckpointRetention",
]
