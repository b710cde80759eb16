"""Asynchronous calls."""

from __future__ import annotations

from tidemark.api.async_stream import AsyncDataStream

__all__ = [
    "AsyncDataStream",
]
