"""What sources and sinks are."""

from __future__ import annotations

from tidemark.api.connectors.base import (
    DeliveryGuarantee,
    Sink,
    Source,
)

__all__ = [
    "DeliveryGuarantee",
    "Sink",
    "Source",
]
