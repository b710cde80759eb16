"""What is left of a finished job."""

from __future__ import annotations

from tidemark.api.job import JobExecutionResult

__all__ = [
    "JobExecutionResult",
]
