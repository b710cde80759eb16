"""Positions of sources on their way into a snapshot and out of it again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import msgspec

from tidemark.errors import RestoreError
from tidemark.plan.vertex import Vertex

__all__ = ["pack", "start_source"]

_Begun = TypeVar("_Begun", covariant=True)


class _Startable(Protocol[_Begun]):
    @property
    def vertex(self) -> Vertex: ...

    def start(self, position: Any | None) -> _Begun: ...


def pack(position: Any) -> bytes:
    """What a snapshot stores of a position."""
    return msgspec.msgpack.encode(position)


def start_source(source: _Startable[_Begun], stored: bytes | None) -> _Begun:
    """Let a source, or an enumerator of one, begin, behind the position a snapshot holds of it if there is one.

    Raises:
        RestoreError: What the snapshot holds is no position of this source; it never will be one.
    """
    with _refusing(source.vertex):
        return source.start(msgspec.msgpack.decode(stored) if stored else None)


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
