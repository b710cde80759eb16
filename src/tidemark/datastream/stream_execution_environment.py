"""Where a program starts."""

from __future__ import annotations

from tidemark.api.environment import StreamExecutionEnvironment

__all__ = [
    "StreamExecutionEnvironment",
]
