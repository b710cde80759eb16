"""From what user code returns to what an operator emits: `yield`, an iterable or None.

A 2-tuple whose first item is an `OutputTag` leaves through the side output of that tag. The loops of the
operators drain results straight into `Output.values` and settle the rest once per batch with
`finish_unstamped` or `stamps_of`; everything that is not a hot loop calls `emit_result`.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from operator import sub
from typing import Any

from tidemark.api.output_tag import OutputTag
from tidemark.operators.base import Output
from tidemark.operators.detach import detached

__all__ = [
    "emit_result",
    "finish_unstamped",
    "open_timestamps",
    "refuse_one_value",
    "route_tagged",
    "stamps_of",
]

_ONE_VALUE = (str, bytes, dict)


def emit_result(result: Iterable[Any] | None, timestamp: int | None, out: Output) -> None:
    """Emit copies of what one user call returned; every record gets `timestamp`."""
    if result is None:
        return
    values = out.values
    start = len(values)
    for value in result:
        values.append(detached(value))
    grown = len(values) - start
    if not grown:
        return
    stamps = out.timestamps
    if stamps is None and timestamp is not None:
        stamps = out.timestamps = [None] * start
    if stamps is not None:
        stamps += [timestamp] * grown
    refuse_one_value(result)
    route_tagged(out, start)


def refuse_one_value(result: Any) -> None:
    """Refuse what can be iterated, but was surely returned as one result: its parts were taken for results.

    Raises:
        TypeError: It is a str, bytes or a dict.
    """
    if type(result) in _ONE_VALUE:
        raise TypeError(
            f"The function returned {reprlib.repr(result)}, and each part of it would be a result. Yield it instead of "
            "returning it, or return a list"
        )


def open_timestamps(out: Output) -> list[int | None]:
    """The timestamp list of `out`, created if there was none; from now on it is parallel to the values."""
    stamps = out.timestamps
    if stamps is None:
        stamps = out.timestamps = [None] * len(out.values)
    return stamps


def finish_unstamped(out: Output) -> None:
    """Pad the timestamps after records without one were appended directly to `out.values`."""
    stamps = out.timestamps
    if stamps is not None:
        stamps += [None] * (len(out.values) - len(stamps))


def stamps_of(
    timestamps: Sequence[int | None], start: int, ends: Sequence[int]
) -> Sequence[int | None] | Iterator[int | None]:
    """Timestamps of emitted records, given how long the output was after each input record.

    Args:
        timestamps: Those of the input records.
        start: Length of the output before the first of them.
        ends: Length of the output after each of them.
    """
    if not ends or ends[-1] == start:
        return ()
    if (
        ends[0] == start + 1
        and ends[-1] == start + len(ends)
        and ends == list(range(start + 1, ends[-1] + 1))
    ):
        return timestamps
    counts = map(sub, ends, chain((start,), ends))
    return chain.from_iterable(map(repeat, timestamps, counts))


def route_tagged(out: Output, start: int) -> None:
    """Move the `(tag, value)` pairs among the records from position `start` on to their side outputs."""
    values = out.values
    for value in values[start:] if start else values:
        if type(value) is tuple and len(value) == 2 and type(value[0]) is OutputTag:
            break
    else:
        return
    stamps = out.timestamps
    tail = values[start:]
    tail_stamps: list[int | None] = [None] * len(tail) if stamps is None else stamps[start:]
    del values[start:]
    if stamps is not None:
        del stamps[start:]
    for value, stamp in zip(tail, tail_stamps, strict=True):
        if type(value) is tuple and len(value) == 2 and type(value[0]) is OutputTag:
            out.emit_side(value[0].tag_id, value[1], stamp)
        else:
            values.append(value)
            if stamps is not None:
                stamps.append(stamp)
