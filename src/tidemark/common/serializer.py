"""Serializers of the user's."""

from __future__ import annotations

from tidemark.state.serializers import TypeSerializer

__all__ = [
    "TypeSerializer",
]
