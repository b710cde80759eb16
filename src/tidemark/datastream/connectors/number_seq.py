"""Consecutive numbers."""

from __future__ import annotations

from tidemark.api.connectors.number_seq import NumberSequenceSource

__all__ = [
    "NumberSequenceSource",
]
