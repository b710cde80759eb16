"""Where a job is in its life."""

from __future__ import annotations

from tidemark.api.job import JobStatus

__all__ = [
    "JobStatus",
]
