"""Timers."""

from __future__ import annotations

from tidemark.api.context import TimerService

__all__ = [
    "TimerService",
]
