"""Random schedules for the crash test: a seed becomes elements, time, snapshots, rescales and crashes.

Processing time does not go back when a job does, so an element that is played again after a crash would see
a later clock than the first time, and nothing could be compared. A schedule therefore takes a checkpoint,
one that certainly completes, in front of every step of the clock.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from tidemark.runtime.execution import CRASH_POINTS
from tidemark.testing.crash_job import PARTS
from tidemark.testing.scripts import (
    ADVANCE,
    AT,
    BARRIER,
    CHECKPOINT,
    CRASH,
    CRASH_AT,
    END,
    RESCALE,
    SAVEPOINT,
    WATERMARK,
)

__all__ = ["Schedule", "random_schedule"]

_BEFORE_COMPLETION = {"barrier", "task-barrier", "before-metadata"}
"""Crash points at which the checkpoint under way is lost."""
_KEYS = "abcdefg"


@dataclass(frozen=True, slots=True)
class Schedule:
    """A script for the crash job, and what the job is made of."""

    seed: int
    events: tuple[Any, ...]
    parallelism: int
    parts: tuple[str, ...]

    def peaceful(self) -> Schedule:
        """The same input and time in one subtask, with no crash and nothing to recover from."""
        events = [e for e in self.events if e is END or isinstance(e, (AT, WATERMARK, ADVANCE))]
        return Schedule(self.seed, tuple(events), 1, self.parts)

    def data(self) -> list[tuple[int, str, int]]:
        """(timestamp, key, number) of every data element, in order."""
        return [
            (e.timestamp, *e.value[1:]) for e in self.events if isinstance(e, AT) and e.value[0] == "data"
        ]


def random_schedule(seed: int, length: int | None = None) -> Schedule:
    """The schedule of a seed; the same for ever on one release.

    Args:
        seed: Any number.
        length: Number of steps; by default the seed decides.
    """
    return _Generator(random.Random(seed)).schedule(seed, length)


class _Generator:
    """Draws one schedule."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._events: list[Any] = []
        self._number = 0
        self._time = 0
        self._endangered = 0
        """Checkpoints that will be lost to crashes that were ordered."""

    def schedule(self, seed: int, length: int | None) -> Schedule:
        """Draw until it is long enough."""
        rng = self._rng
        parts = PARTS if rng.random() < 0.3 else tuple(rng.sample(PARTS, rng.randint(1, 2)))
        parallelism = rng.choice([1, 2, 2, 3, 4])
        keys = _KEYS[: rng.randint(1, len(_KEYS))]
        steps = {
            self._data: 10,
            self._rule: 2 if "ledger" in parts else 0,
            self._watermark: 3,
            self._checkpoint: 2,
            self._barrier: 2,
            self._advance: 1,
            self._savepoint: 0.5,
            self._rescale: 0.7,
            self._crash: 1.5,
            self._crash_at: 4,
        }
        for step in rng.choices(list(steps), list(steps.values()), k=length or rng.randint(6, 32)):
            step(keys)
        self._events.append(END)
        return Schedule(seed, tuple(self._events), parallelism, parts)

    def _data(self, keys: str) -> None:
        for _ in range(self._rng.choice([1, 1, 2, 3])):
            self._number += 1
            stamp = max(0, self._time + self._rng.randint(-12, 15))
            self._events.append(AT(stamp, ("data", self._rng.choice(keys), self._number)))

    def _rule(self, _keys: str) -> None:
        self._number += 1
        self._events.append(AT(self._time, ("rule", self._rng.choice("xyz"), self._number)))

    def _watermark(self, _keys: str) -> None:
        self._time += self._rng.randint(0, 25)
        self._events.append(WATERMARK(self._time))

    def _checkpoint(self, _keys: str) -> None:
        self._events.append(CHECKPOINT)
        self._endangered = max(0, self._endangered - 1)

    def _barrier(self, keys: str) -> None:
        self._events.append(BARRIER)
        self._endangered = max(0, self._endangered - 1)
        self._data(keys)

    def _advance(self, _keys: str) -> None:
        self._events += [CHECKPOINT] * (self._endangered + 1)
        self._endangered = 0
        self._events.append(ADVANCE(self._rng.randint(1, 60)))

    def _savepoint(self, _keys: str) -> None:
        self._events.append(SAVEPOINT)
        self._endangered = max(0, self._endangered - 1)

    def _rescale(self, _keys: str) -> None:
        self._events.append(RESCALE(self._rng.randint(1, 4)))
        self._endangered = 0

    def _crash(self, _keys: str) -> None:
        self._events.append(CRASH)

    def _crash_at(self, _keys: str) -> None:
        point = self._rng.choice(CRASH_POINTS)
        self._events.append(CRASH_AT(point))
        self._endangered += point in _BEFORE_COMPLETION
