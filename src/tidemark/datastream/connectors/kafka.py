"""Kafka as source and sink."""

from __future__ import annotations

__all__: list[str] = []
