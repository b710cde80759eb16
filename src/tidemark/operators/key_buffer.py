"""Batch mode's waiting room: records gathered by key until all inputs have ended."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import TYPE_CHECKING, Any

from tidemark.protocol.batch import Batch

if TYPE_CHECKING:
    from tidemark.clock import Clock

__all__ = ["KeyBuffer", "StillClock"]

_Run = tuple[int, list[Any], list[int | None]]


class StillClock:
    """A clock that stands still while one key is processed."""

    __slots__ = ("_clock", "_now")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._now = clock.now()

    def now(self) -> int:
        """The time at the last `catch_up`."""
        return self._now

    def catch_up(self) -> None:
        """Show the real time again."""
        self._now = self._clock.now()


class KeyBuffer:
    """Records by key, in arrival order within a key; keys in order of first arrival."""

    def __init__(self) -> None:
        self._runs: dict[Any, list[_Run]] = {}

    def add(self, input_index: int, batch: Batch) -> None:
        """Keep the records of a keyed batch."""
        assert batch.keys is not None
        runs = self._runs
        stamps = repeat(None) if batch.timestamps is None else batch.timestamps
        for token, value, stamp in zip(batch.keys, batch.values, stamps, strict=False):
            of_key = runs.get(token)
            if of_key is None:
                runs[token] = [(input_index, [value], [stamp])]
            elif of_key[-1][0] == input_index:
                of_key[-1][1].append(value)
                of_key[-1][2].append(stamp)
            else:
                of_key.append((input_index, [value], [stamp]))

    def drain(self) -> Iterator[tuple[Any, Iterator[tuple[int, Batch]]]]:
        """Take the keys one after the other, each with its batches."""
        runs, self._runs = self._runs, {}
        for token in list(runs):
            yield token, _batches(token, runs.pop(token))


def _batches(token: Any, runs: list[_Run]) -> Iterator[tuple[int, Batch]]:
    for input_index, values, stamps in runs:
        timestamps = None if stamps.count(None) == len(stamps) else stamps
        yield input_index, Batch(values, timestamps, [token] * len(values))
