"""Execution settings."""

from __future__ import annotations

from tidemark.config import ExecutionConfig

__all__ = [
    "ExecutionConfig",
]
