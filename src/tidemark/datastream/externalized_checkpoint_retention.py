"""Which checkpoints outlive a job."""

from __future__ import annotations

from tidemark.config import ExternalizedCheckpointRetention

__all__ = [
    "ExternalizedCheckpointRetention",
]
