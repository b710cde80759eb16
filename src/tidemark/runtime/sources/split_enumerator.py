"""The splits of a user's `SplitSource`: which are known, which have ended, what a snapshot stores of them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import cloudpickle
import msgspec

from tidemark.api.split_source import Split, SplitSource
from tidemark.clock import Clock, has_passed
from tidemark.plan.vertex import Vertex
from tidemark.runtime.sources.enumeration import AssignedSplit, ChecksPositions, Enumerator, naming
from tidemark.runtime.sources.plain_data import plain
from tidemark.runtime.sources.split_sources import split_source_of

__all__ = ["SplitEnumerator"]

_log = logging.getLogger(__name__)

_MOST_ANNOUNCED = 64
"""Checkpoints may fail again and again, and nobody says which will never complete."""


class _StoredSplit(msgspec.Struct):
    data: Any = None
    position: Any = None
    ended: bool = False


class _Stored(msgspec.Struct):
    splits: dict[str, _StoredSplit]


@dataclass(frozen=True, slots=True)
class _Known:
    """A split as the attempt found it."""

    split: Split
    position: Any | None = None
    ended: bool = False


class SplitEnumerator(Enumerator):
    """Asks a copy of the user's source, a fresh one for every attempt."""

    def __init__(self, vertex: Vertex, clock: Clock) -> None:
        super().__init__(vertex)
        self._clock = clock
        source = split_source_of(vertex.spec)
        self._interval: int | None = source.discovery_interval_ms
        self.bounded = self._interval is None
        self._source: SplitSource[Any] | None = None
        self._known: dict[str, _Known] = {}
        self._stored_as_ended: set[str] = set()
        """Splits that ended before the newest barrier, and so before every one to come."""
        self._announced: dict[int, dict[str, Any]] = {}
        """Checkpoint -> positions, of those that are not complete yet."""
        self._discovered_at: int | None = None

    def start(self, position: Any | None) -> list[AssignedSplit]:
        """The user's splits, or those a snapshot knows and those that are new since."""
        self.stop()
        self._stored_as_ended, self._announced = set(), {}
        self._discovered_at = None
        stored = None if position is None else msgspec.convert(position, _Stored)
        with naming(self.vertex):
            self._source = cloudpickle.loads(cloudpickle.dumps(split_source_of(self.vertex.spec)))
            if stored is None:
                self._known = {split.id: _Known(split) for split in self._checked(self._source.enumerate())}
                self._discovered_at = self._clock.now()
            else:
                self._known = {
                    key: _Known(Split(key, of.data), of.position, of.ended)
                    for key, of in stored.splits.items()
                }
                self._let_restore(self._source)
        # Before anything is discovered: it hands out its own.
        assigned = [_assigned(known) for known in self._known.values() if not known.ended]
        return assigned + self.discover(self._clock.now())

    def _let_restore(self, source: SplitSource[Any]) -> None:
        live = [(known.split, known.position) for known in self._known.values() if not known.ended]
        given = source.restore(live)
        positions = {split.id: position for split, position in given}
        for split in self._checked([split for split, _ in given]):
            position = plain(positions[split.id], f"The position of split '{split.id}'")
            self._known[split.id] = replace(self._known[split.id], split=split, position=position)

    def is_due(self, now_ms: int) -> bool:
        """Whether `discover` would ask the user's source."""
        if self._interval is None:
            return False
        return self._discovered_at is None or has_passed(self._interval, self._discovered_at, now_ms)

    def discover(self, now_ms: int) -> list[AssignedSplit]:
        """Splits of the user's `discover` that are not known; ended ones that it leaves out are forgotten."""
        if self._source is None or not self.is_due(now_ms):
            return []
        self._discovered_at = now_ms
        with naming(self.vertex):
            found = {split.id: _Known(split) for split in self._checked(self._source.discover())}
        for key, known in list(self._known.items()):
            if (known.ended or key in self._stored_as_ended) and key not in found:
                del self._known[key]
        new = {key: known for key, known in found.items() if key not in self._known}
        self._known |= new
        return [_assigned(known) for known in new.values()]

    def _checked(self, splits: Sequence[Split]) -> list[Split]:
        """Splits as they will come out of a snapshot."""
        checked: dict[str, Split] = {}
        for split in splits:
            if not isinstance(split, Split) or not isinstance(split.id, str):
                raise TypeError(f"A SplitSource gives Splits whose ids are text, not {split!r}.")
            if split.id in checked:
                raise ValueError(f"Two splits have the id '{split.id}'. Positions are stored by id.")
            checked[split.id] = replace(split, data=plain(split.data, f"The data of split '{split.id}'"))
        return list(checked.values())

    def position(
        self, positions: dict[str, Any], ended: set[str], checkpoint_id: int | None = None
    ) -> Any | None:
        """Every known split with its data, its position and whether it has ended."""
        splits = {
            key: {
                "data": known.split.data,
                "position": positions.get(key, known.position),
                "ended": known.ended or key in ended,
            }
            for key, known in self._known.items()
        }
        self._stored_as_ended = {key for key, stored in splits.items() if stored["ended"]}
        if checkpoint_id is not None:
            if isinstance(self._source, ChecksPositions):
                with naming(self.vertex):
                    self._source.check_positions(positions)
            self._announced[checkpoint_id] = {key: stored["position"] for key, stored in splits.items()}
            while len(self._announced) > _MOST_ANNOUNCED:
                del self._announced[min(self._announced)]
        return {"splits": splits}

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Tell the user's source."""
        positions = self._announced.get(checkpoint_id)
        self._announced = {key: told for key, told in self._announced.items() if key > checkpoint_id}
        if self._source is not None and positions is not None:
            with naming(self.vertex):
                self._source.notify_checkpoint_complete(checkpoint_id, positions)

    def stop(self) -> None:
        """Let the user's source release what it holds; if that fails, only the log says so."""
        source, self._source = self._source, None
        if source is None:
            return
        try:
            source.close()
        except Exception:
            _log.warning("close() of source '%s' failed", self.vertex.name, exc_info=True)


def _assigned(known: _Known) -> AssignedSplit:
    return AssignedSplit(known.split.id, known.split, known.position)
