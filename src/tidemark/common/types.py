"""Rows."""

from __future__ import annotations

from tidemark.types.row import (
    Row,
    RowKind,
)

__all__ = [
    "Row",
    "RowKind",
]
