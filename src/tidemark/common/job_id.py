"""The id of a job."""

from __future__ import annotations

from tidemark.ids import JobID

__all__ = [
    "JobID",
]
