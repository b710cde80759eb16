"""Results that are not there yet."""

from __future__ import annotations

from tidemark.futures import CompletableFuture

__all__ = [
    "CompletableFuture",
]
