"""Window values. Each maps to and from the namespace under which its state is kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import total_ordering
from typing import Any

from tidemark.state.namespace import Namespace

__all__ = ["MAX_TIMESTAMP", "CountWindow", "GlobalWindow", "TimeWindow", "Window"]

MAX_TIMESTAMP = 2**63 - 1


class Window(ABC):
    """A finite group of elements; hashable, ordered, comparable by value."""

    __slots__ = ()

    @abstractmethod
    def max_timestamp(self) -> int:
        """The largest timestamp that still belongs to this window."""

    @abstractmethod
    def to_namespace(self) -> Namespace:
        """The integers that identify the window in keyed state."""

    def __eq__(self, other: object) -> bool:
        return (
            type(self) is type(other)
            and isinstance(other, Window)
            and self.to_namespace() == other.to_namespace()
        )

    def __hash__(self) -> int:
        return hash(self.to_namespace())


@total_ordering
class TimeWindow(Window):
    """The interval from `start` (included) to `end` (excluded), in ms; ordered by (start, end)."""

    __slots__ = ("end", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end

    def max_timestamp(self) -> int:
        """`end - 1`."""
        return self.end - 1

    def to_namespace(self) -> Namespace:
        """`(start, end)`."""
        return (self.start, self.end)

    def intersects(self, other: TimeWindow) -> bool:
        """Whether the windows overlap or touch."""
        return self.start <= other.end and self.end >= other.start

    def cover(self, other: TimeWindow) -> TimeWindow:
        """The smallest window that covers both."""
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))

    @staticmethod
    def get_window_start_with_offset(timestamp: int, offset: int, window_size: int) -> int:
        """Start of the tumbling window of that size and offset that holds `timestamp`."""
        return timestamp - (timestamp - offset) % window_size

    @staticmethod
    def merge_windows(
        windows: Iterable[TimeWindow], callback: Callable[[list[TimeWindow], TimeWindow], None] | Any
    ) -> None:
        """Report every group of overlapping or touching windows to `callback.merge(group, cover)`.

        Groups of one window are not reported. A plain callable may stand for the callback.
        """
        report = getattr(callback, "merge", callback)
        group: list[TimeWindow] = []
        cover: TimeWindow | None = None
        for window in sorted(windows):
            if cover is not None and cover.intersects(window):
                cover = cover.cover(window)
                group.append(window)
                continue
            if cover is not None and len(group) > 1:
                report(group, cover)
            group, cover = [window], window
        if cover is not None and len(group) > 1:
            report(group, cover)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TimeWindow) and self.start == other.start and self.end == other.end

    def __hash__(self) -> int:
        return hash((self.start, self.end))

    def __lt__(self, other: TimeWindow) -> bool:
        return (self.start, self.end) < (other.start, other.end)

    def __repr__(self) -> str:
        return f"TimeWindow(start={self.start}, end={self.end})"


@total_ordering
class CountWindow(Window):
    """The window number `id` of a key, filled by count."""

    __slots__ = ("id",)

    def __init__(self, id: int) -> None:
        self.id = id

    def max_timestamp(self) -> int:
        """The end of time: counts have no time."""
        return MAX_TIMESTAMP

    def to_namespace(self) -> Namespace:
        """`(id,)`."""
        return (self.id,)

    def __lt__(self, other: CountWindow) -> bool:
        return self.id < other.id

    def __repr__(self) -> str:
        return f"CountWindow(id={self.id})"


@total_ordering
class GlobalWindow(Window):
    """The one window that holds everything."""

    __slots__ = ()

    @staticmethod
    def get() -> GlobalWindow:
        """The only instance there needs to be."""
        return _GLOBAL

    def max_timestamp(self) -> int:
        """The end of time."""
        return MAX_TIMESTAMP

    def to_namespace(self) -> Namespace:
        """`(0,)`."""
        return (0,)

    def __lt__(self, other: GlobalWindow) -> bool:
        return False

    def __repr__(self) -> str:
        return "GlobalWindow()"


_GLOBAL = GlobalWindow()
