"""Which checkpoints outlive a job, under its older name."""

from __future__ import annotations

from tidemark.config import ExternalizedCheckpointCleanup

__all__ = [
    "ExternalizedCheckpointCleanup",
]
