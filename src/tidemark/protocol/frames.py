"""What a slot is asked: frames of records, and barriers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tidemark.checkpoint.layout import SnapshotLocation

__all__ = ["EMPTY", "BatchHeader", "CutRequest", "EraseRequest"]

EMPTY = -1
"""Flags of a frame without records: it only lets what is due fire (and drains a source)."""


class BatchHeader(NamedTuple):
    """Header of a data frame; see `SlotHost` for what is checked."""

    vertex: int
    edge: int
    source: int
    partition: int
    sequence: int
    attempt: int
    epoch: int
    watermark: int
    flags: int


@dataclass(frozen=True, slots=True)
class CutRequest:
    """Barrier of a checkpoint or savepoint."""

    checkpoint_id: int
    timestamp: int
    location: SnapshotLocation
    incremental: bool = False
    base: int | None = None
    """Completed checkpoint whose shared files may be referred to."""
    savepoint: bool = False
    synchronous: bool = False
    """Write before the stream goes on (`state.backend.async: false`)."""


@dataclass(frozen=True, slots=True)
class EraseRequest:
    """Forget a key."""

    attempt: int
    keys: dict[str, bytes]
    """Operator uid -> canonical bytes of the key in the type of its keys."""
