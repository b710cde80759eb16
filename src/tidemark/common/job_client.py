"""The handle of a job."""

from __future__ import annotations

from tidemark.api.job import JobClient

__all__ = [
    "JobClient",
]
