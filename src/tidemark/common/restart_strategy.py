"""Restart strategies."""

from __future__ import annotations

from tidemark.config import (
    RestartStrategies,
    RestartStrategyConfiguration,
)

__all__ = [
    "RestartStrategies",
    "RestartStrategyConfiguration",
]
