"""Positions of sources on their way into a snapshot and out of it again."""

from __future__ import annotations

from typing import Any

import msgspec

from tidemark.errors import RestoreError
from tidemark.runtime.sources.driver import DriverSource

__all__ = ["pack", "start_source"]


def pack(position: Any) -> bytes:
    """What a snapshot stores of a position."""
    return msgspec.msgpack.encode(position)


def start_source(source: DriverSource, stored: bytes | None) -> None:
    """Let a source begin, behind the position a snapshot holds of it if there is one.

    Raises:
        RestoreError: What the snapshot holds is no position of this source; it never will be one.
    """
    if not stored:
        source.start(None)
        return
    try:
        source.start(msgspec.msgpack.decode(stored))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        uid = source.vertex.uid
        raise RestoreError(
            f"The snapshot's position of source '{uid}' cannot be read: {exc}. It was not written by this source, "
            "or has been changed; start from another snapshot.",
            operator_uid=uid,
        ) from exc
