"""The watermark of one vertex that assigns timestamps, from what the tasks of each epoch saw. Pure.

A record is late if it is older than the watermark; the watermark must therefore stay behind the slowest partition of
the input, and Spark's task numbers do not say which partition a task read. What is known depends on the source
(`Picture`): rows or splits that name their partition are followed one by one (`_Named`), partitions that nobody can
tell apart as a crowd (`_Crowd`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

import msgspec

from tidemark.errors import RestoreError
from tidemark.protocol.batch import MIN_WATERMARK

__all__ = ["Generator", "NamedMark", "Picture", "Seen", "instance_key", "pack_named", "unpack_named"]


class Picture(Enum):
    """What the tasks of one epoch tell about the partitions of their source."""

    PARTIAL = "instances that are left out have nothing new; they still hold the watermark back"
    WHOLE = "instances that are left out are gone"
    CLOSED = "every instance is over with its epoch: whatever comes later is another one"
    CROWD = "instances have no identity, only a number"


@dataclass(frozen=True, slots=True)
class Seen:
    """What the tasks of one source saw in one epoch."""

    source: int
    picture: Picture
    newest: list[tuple[Hashable, int | None]]
    """Instance and its newest timestamp, None without a record."""


NamedMark: TypeAlias = tuple[str, list[str | int | bool | None] | str, int]


class _StoredMarks(msgspec.Struct):
    """Marks of a generator in a checkpoint; sources by their uid."""

    named: list[NamedMark] = []
    crowds: dict[str, list[int]] = {}


@dataclass(slots=True)
class _Named:
    """An instance that is recognised when it reports again."""

    source: int
    newest: int
    active: int
    """When it last had a record."""
    heard: bool = False
    """Whether the watermark has followed that record; until it has, the instance is not idle."""


@dataclass(slots=True)
class _Crowd:
    """Partitions that nobody can tell apart: `marks` has one for each task of the largest epoch.

    Why no record of a partition that is in order is late: let L be the newest timestamps of the partitions, sorted,
    and M the marks, sorted; M is at or below L, place by place. In an epoch some k partitions report the stamps V,
    nobody knows which. L loses k elements and gains V or more (a partition never goes back). Of all sets that can
    be left of L, the smallest, place by place, is the one without the k largest, and M without its k largest is
    below it. So the k largest marks are replaced, the others stay, and the minimum moves once as many
    report as there are marks. A task without a record yet has a mark below everything.

    Under an idle timeout there is another bound: each partition that is not idle has reported within the timeout,
    and stands where it reported or later, so the minimum of what was reported within the timeout is below all
    of them. The larger bound counts.

    A task is taken to read one partition, or a piece of one. What cannot be known is a partition that has never
    had a task in one epoch with all the others.
    """

    marks: list[int] = field(default_factory=list)
    reported: deque[tuple[int, int]] = field(default_factory=deque)
    """(time, lowest stamp), both growing: the minima of what was reported since each time."""

    def report(self, newest: list[int], tasks: int, now: int) -> None:
        """Take the stamps of those of `tasks` tasks that had records."""
        size = max(len(self.marks), tasks)
        padded = [MIN_WATERMARK] * (size - len(self.marks)) + self.marks
        if newest:
            padded = sorted(padded[: size - len(newest)] + newest)
            self._remember(min(newest), now)
        self.marks = padded

    def _remember(self, lowest: int, now: int) -> None:
        while self.reported and self.reported[-1][1] >= lowest:
            self.reported.pop()
        self.reported.append((now, lowest))

    def restore(self, marks: list[int], now: int) -> None:
        """Continue with the marks of a checkpoint; every partition may report again within the timeout."""
        self.marks = sorted(marks)
        self._remember(self.lowest, now)

    @property
    def lowest(self) -> int:
        """Below every partition."""
        return self.marks[0] if self.marks else MIN_WATERMARK

    def lowest_active(self, now: int, timeout: int | None) -> int | None:
        """Below every partition that is not idle; None if all are."""
        if timeout is None:
            # Nobody asks how old a report is.
            self.reported.clear()
            return self.lowest
        while self.reported and now - self.reported[0][0] >= timeout:
            self.reported.popleft()
        return max(self.lowest, self.reported[0][1]) if self.reported else None


@dataclass(slots=True)
class Generator:
    """Follows the instances of one vertex."""

    strategy: Any
    watermark: int = MIN_WATERMARK
    idle: bool = False
    _began: bool = False
    """Whether there has been a record, or an instance that is waited for."""
    _named: dict[Hashable, _Named] = field(default_factory=dict)
    _crowds: dict[int, _Crowd] = field(default_factory=dict)

    def observe(self, epoch: Iterable[Seen], now: int) -> None:
        """Take what the tasks of an epoch saw, and let the watermark follow."""
        self.take(epoch, now)
        self.update(now)

    def expect_one(self, source: int, instance: Hashable, newest: int, now: int) -> None:
        """An instance will report: it holds the watermark back from now on, at `newest`."""
        self._named[instance] = _Named(source, newest, now)
        self._began = True

    def leave_out(self, instance: Hashable) -> None:
        """An instance ended: it holds nothing back any more."""
        self._named.pop(instance, None)

    def mark_of(self, instance: Hashable) -> int:
        """The watermark of one instance by itself."""
        known = self._named.get(instance)
        if known is None or known.newest == MIN_WATERMARK:
            return MIN_WATERMARK
        mark = self.strategy.watermark_after(known.newest)
        return MIN_WATERMARK if mark is None else int(mark)

    def take(self, epoch: Iterable[Seen], now: int) -> None:
        """Take what was seen; the watermark follows with the next `update`."""
        epoch = list(epoch)
        self._began |= any(newest is not None for seen in epoch for _instance, newest in seen.newest)
        for seen in epoch:
            if seen.picture is Picture.CROWD:
                stamps = [newest for _instance, newest in seen.newest if newest is not None]
                self._crowds.setdefault(seen.source, _Crowd()).report(stamps, len(seen.newest), now)
                continue
            if seen.picture is Picture.CLOSED and any(newest is not None for _i, newest in seen.newest):
                self._drop({seen.source}, set())
            for instance, newest in seen.newest:
                if newest is not None:
                    known = self._named.get(instance)
                    newest = newest if known is None else max(newest, known.newest)
                    self._named[instance] = _Named(seen.source, newest, now)
        whole = {seen.source for seen in epoch if seen.picture is Picture.WHOLE}
        self._drop(whole, {instance for seen in epoch for instance, _newest in seen.newest})

    def _drop(self, sources: set[int], but: set[Hashable]) -> None:
        gone = [key for key, mark in self._named.items() if mark.source in sources and key not in but]
        for key in gone:
            del self._named[key]

    def expect(self, source: int, instances: set[Hashable], now: int) -> None:
        """These are the instances of a source: one without a record yet holds the watermark back at its beginning."""
        self.retain(source, instances)
        for instance in instances - self._named.keys():
            self._named[instance] = _Named(source, MIN_WATERMARK, now)
            self._began = True

    def retain(self, source: int, instances: set[Hashable]) -> None:
        """All other instances of a source are gone."""
        self._drop({source}, instances)

    def forget(self, source: int) -> None:
        """A source ended: its instances hold nothing back any more."""
        self._drop({source}, set())
        self._crowds.pop(source, None)

    def update(self, now: int) -> None:
        """Let the watermark follow the slowest instance that is not idle."""
        timeout = self.strategy.idle_timeout_ms
        live = []
        for known in self._named.values():
            if timeout is None or not known.heard or now - known.active < timeout:
                live.append(known.newest)
            known.heard = True
        for crowd in self._crowds.values():
            lowest = crowd.lowest_active(now, timeout)
            if lowest is not None:
                live.append(lowest)
        self.idle = timeout is not None and self._began and not live
        if live and (slowest := min(live)) > MIN_WATERMARK:
            mark = self.strategy.watermark_after(slowest)
            if mark is not None:
                self.watermark = max(self.watermark, mark)

    def stored(self, uids: dict[int, str]) -> bytes | None:
        """The marks that mean the same after a restore, whatever the parallelism; None without any.

        Subtasks and tasks, which only have a number, are left out.

        Args:
            uids: Of the sources.
        """
        named = self.named_marks(uids)
        crowds = {uids[source]: crowd.marks for source, crowd in self._crowds.items()}
        return msgspec.msgpack.encode(_StoredMarks(named, crowds)) if named or crowds else None

    def named_marks(self, uids: dict[int, str]) -> list[NamedMark]:
        """(uid of the source, instance, newest timestamp) of the instances that a restore will recognise."""
        return [
            (uids[mark.source], key[1], mark.newest)
            for key, mark in self._named.items()
            if isinstance(key, tuple) and not isinstance(key[1], int)
        ]

    def restore(self, watermark: int, stored: bytes | None, sources: dict[str, int], now: int) -> None:
        """Stand where a checkpoint was taken; without stored marks partitions count from their next record on.

        Args:
            watermark: Of the generator.
            stored: What `stored` gave.
            sources: Uid -> source that feeds it now; marks of others are dropped.
            now: Idle timeouts begin again.

        Raises:
            RestoreError: The marks are damaged.
        """
        self.watermark = watermark
        if stored is None:
            return
        marks = _decoded(stored)
        for uid, instance, newest in marks.named:
            if uid in sources:
                self._named[instance_key(sources[uid], instance)] = _Named(sources[uid], newest, now)
        for uid, crowd in marks.crowds.items():
            if uid in sources:
                self._crowds.setdefault(sources[uid], _Crowd()).restore(crowd, now)


def pack_named(named: list[NamedMark]) -> bytes | None:
    """What `Generator.stored` would give for these instances."""
    return msgspec.msgpack.encode(_StoredMarks(named)) if named else None


def unpack_named(stored: bytes) -> list[NamedMark]:
    """The instances in stored marks.

    Raises:
        RestoreError: The marks are damaged.
    """
    return _decoded(stored).named


def _decoded(stored: bytes) -> _StoredMarks:
    try:
        return msgspec.msgpack.decode(stored, type=_StoredMarks)
    except (msgspec.MsgspecError, RecursionError) as exc:
        raise RestoreError(f"The snapshot's watermarks of partitions are damaged: {exc}") from exc


def instance_key(source: int, instance: Any) -> Hashable:
    """What tells an instance of a source from those of others, before and after a restore."""
    return source, tuple(instance) if isinstance(instance, list | tuple) else instance
