"""The two clocks a timer can follow."""

from __future__ import annotations

from enum import Enum

__all__ = ["TimeDomain"]


class TimeDomain(Enum):
    """Whether a timer follows watermarks or the wall clock."""

    EVENT_TIME = 0
    PROCESSING_TIME = 1
