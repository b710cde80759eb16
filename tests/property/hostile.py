"""Bytes that nobody who means well would send or store, from a seed; and who notices that a pickle names something."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator

__all__ = ["mutated", "noise", "nothing_is_unpickled"]

_named: list[str] | None = None


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if event == "pickle.find_class" and _named is not None:
        _named.append(".".join(map(str, arguments)))


# Such a hook cannot be taken away again; it only looks while a test wants it to.
sys.addaudithook(_hook)


@contextlib.contextmanager
def nothing_is_unpickled() -> Iterator[None]:
    """Fails if the block unpickles anything that names a class or a function, wherever in this process."""
    global _named
    _named = named = []
    try:
        yield
    finally:
        _named = None
    assert named == []


def noise(rng: random.Random, most: int = 2000) -> bytes:
    """Random bytes, sometimes few, sometimes none, sometimes alike."""
    size = rng.choice([0, 1, 3, rng.randrange(64), rng.randrange(most)])
    return rng.choice([rng.randbytes(size), bytes(size), b"\xff" * size])


def mutated(rng: random.Random, data: bytes) -> bytes:
    """`data` with some of it changed, cut off, repeated or replaced."""
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 8])):
        at = rng.randrange(len(changed) + 1)
        match rng.randrange(6):
            case 0:
                del changed[at:]
            case 1:
                changed[at:at] = noise(rng, 200)
            case 2:
                del changed[at : at + rng.randrange(1, 40)]
            case 3:
                changed[at : at + 8] = rng.choice([b"\xff" * 8, bytes(8), b"\x7f" + b"\xff" * 7, b"../../.."])
            case 4:
                other = rng.randrange(len(changed) + 1)
                changed[at:at] = changed[other : other + rng.randrange(60)]
            case _:
                if at < len(changed):
                    changed[at] ^= 1 << rng.randrange(8)
    return bytes(changed)
