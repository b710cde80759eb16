"""Timestamps and watermarks."""

from __future__ import annotations

from tidemark.api.watermarks import (
    TimestampAssigner,
    WatermarkStrategy,
)

__all__ = [
    "TimestampAssigner",
    "WatermarkStrategy",
]
