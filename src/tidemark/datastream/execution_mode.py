"""Streaming, batch or automatic."""

from __future__ import annotations

from tidemark.config import RuntimeExecutionMode

__all__ = [
    "RuntimeExecutionMode",
]
