"""Positions of sources on their way into a snapshot and out of it again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from tidemark.errors import RestoreError
from tidemark.plan.vertex import Vertex
from tidemark.runtime.sources.driver import DriverSource
from tidemark.runtime.sources.enumeration import AssignedSplit, Enumerator

__all__ = ["pack", "start_enumerator", "start_source"]


def pack(position: Any) -> bytes:
    """What a snapshot stores of a position."""
    return msgspec.msgpack.encode(position)


def start_source(source: DriverSource, stored: bytes | None) -> None:
    """Let a source begin, behind the position a snapshot holds of it if there is one.

    Raises:
        RestoreError: What the snapshot holds is no position of this source; it never will be one.
    """
    with _refusing(source.vertex):
        source.start(_unpack(stored))


def start_enumerator(enumerator: Enumerator, stored: bytes | None) -> list[AssignedSplit]:
    """The same for continuous execution: the splits to begin with.

    Raises:
        RestoreError: As with `start_source`.
    """
    with _refusing(enumerator.vertex):
        return enumerator.start(_unpack(stored))


def _unpack(stored: bytes | None) -> Any | None:
    return msgspec.msgpack.decode(stored) if stored else None


@contextmanager
def _refusing(vertex: Vertex) -> Iterator[None]:
    try:
        yield
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise RestoreError(
            f"The snapshot's position of source '{vertex.uid}' cannot be read: {exc}. It was not written by this "
            "source, or has been changed; start from another snapshot.",
            operator_uid=vertex.uid,
        ) from exc
