"""Lengths and points of time."""

from __future__ import annotations

from tidemark.types.time import (
    Duration,
    Instant,
    Time,
)

__all__ = [
    "Duration",
    "Instant",
    "Time",
]
