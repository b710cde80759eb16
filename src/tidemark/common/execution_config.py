"""Execution settings."""

from __future__ import annotations

from tidemark.api.execution_config import ExecutionConfig

__all__ = [
    "ExecutionConfig",
]
