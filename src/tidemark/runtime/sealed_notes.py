"""Short notes that the next driver goes by, behind a checksum: a flipped bit is damage, never another fact.

    <xxh3_128 of the JSON, in hex> <JSON>

A digit that changes leaves JSON that can be read. It would send a job back behind published output, or take a living
driver for a dead one.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
import xxhash

__all__ = ["DamagedNote", "seal", "unseal"]

T = TypeVar("T")

_WIDTH = 32
"""Hex digits of the checksum."""


class DamagedNote(ValueError):
    """What is there is not what was written."""


def seal(note: msgspec.Struct) -> bytes:
    """A note as it is stored."""
    text = msgspec.json.encode(note)
    return xxhash.xxh3_128_hexdigest(text).encode() + b" " + text


def unseal(data: bytes, kind: type[T]) -> T:
    """The note of that kind.

    Raises:
        DamagedNote: The bytes are not one.
    """
    text = data[_WIDTH + 1 :]
    if data[: _WIDTH + 1] != xxhash.xxh3_128_hexdigest(text).encode() + b" ":
        raise DamagedNote("its checksum does not fit")
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise DamagedNote(str(exc)) from exc
