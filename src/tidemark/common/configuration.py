"""Settings by key."""

from __future__ import annotations

from tidemark.config import Configuration

__all__ = [
    "Configuration",
]
