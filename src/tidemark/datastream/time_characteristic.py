"""The times of the 1.x line; deprecated."""

from __future__ import annotations

from tidemark.api.legacy import TimeCharacteristic

__all__ = [
    "TimeCharacteristic",
]
