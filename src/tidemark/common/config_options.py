"""Typed keys."""

from __future__ import annotations

from tidemark.config import (
    ConfigOption,
    ConfigOptions,
)

__all__ = [
    "ConfigOption",
    "ConfigOptions",
]
