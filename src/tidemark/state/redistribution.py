"""How operator state spreads over another number of parallel instances; bytes in, bytes out."""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.state.snapshot import OperatorStatePart, Redistribution

__all__ = ["redistribute"]


def redistribute(
    parts: Sequence[Sequence[OperatorStatePart]], parallelism: int
) -> list[list[OperatorStatePart]]:
    """Spread the operator state of the old instances, in order, over `parallelism` new ones."""
    shares: list[list[OperatorStatePart]] = [[] for _ in range(parallelism)]
    if not parts:
        return shares
    names = dict.fromkeys((part.name, part.mode) for instance in parts for part in instance)
    for name, mode in names:
        old = [_part_of(instance, name) for instance in parts]
        for share, part in zip(shares, _spread(old, mode, parallelism), strict=True):
            share.append(part)
    return shares


def _part_of(instance: Sequence[OperatorStatePart], name: str) -> OperatorStatePart | None:
    return next((part for part in instance if part.name == name), None)


def _spread(
    old: Sequence[OperatorStatePart | None], mode: Redistribution, parallelism: int
) -> list[OperatorStatePart]:
    present = [part for part in old if part is not None]
    model = present[0]
    lists = [part.elements if part is not None else () for part in old]
    if mode is Redistribution.BROADCAST:
        # Each instance had its own copy; one that never registered the state stands back for one that did.
        return [old[i % len(old)] or present[i % len(present)] for i in range(parallelism)]
    everything = tuple([element for elements in lists for element in elements])
    if mode is Redistribution.UNION:
        return [_with(model, everything) for _ in range(parallelism)]
    if parallelism == len(old):
        return [_with(model, elements) for elements in lists]
    if mode is Redistribution.RAW:
        return [_with(model, everything) for _ in range(parallelism)]
    return [_with(model, piece) for piece in _pieces(everything, parallelism)]


def _pieces(elements: tuple[bytes, ...], count: int) -> list[tuple[bytes, ...]]:
    """Contiguous pieces whose lengths differ by one at most, the longer ones first."""
    quotient, remainder = divmod(len(elements), count)
    pieces = []
    start = 0
    for i in range(count):
        end = start + quotient + (i < remainder)
        pieces.append(elements[start:end])
        start = end
    return pieces


def _with(model: OperatorStatePart, elements: tuple[bytes, ...]) -> OperatorStatePart:
    return OperatorStatePart(model.name, model.mode, elements, model.serializer, model.map_key_serializer)
