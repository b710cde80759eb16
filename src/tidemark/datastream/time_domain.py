"""The two clocks of timers."""

from __future__ import annotations

from tidemark.api.time_domain import TimeDomain

__all__ = [
    "TimeDomain",
]
