"""Which windows of a key are really one: the bookkeeping behind session windows.

When windows merge, content is not moved into a new place each time. Every merged window points at the
*state window*, the window under whose name its content has been kept from the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from tidemark.api.windows.contexts import MergeCallback
from tidemark.state.descriptors import ListStateDescriptor
from tidemark.types.typeinfo import Types

if TYPE_CHECKING:
    from tidemark.api.windows.assigners import MergingWindowAssigner
    from tidemark.api.windows.window import Window
    from tidemark.state.primitives import ListState

__all__ = ["MERGING_WINDOWS", "MergingWindowSet", "SessionRun", "session_runs"]

MERGING_WINDOWS = ListStateDescriptor("merging-window-set", Types.LIST(Types.LONG()))
"""Per key: one list of integers per window, the window's namespace followed by its state window's."""

SessionRun = tuple[int, int, list[Any]]
"""Start, end and elements of sessions that have become one."""

OnMerge = Callable[["Window", list["Window"], "Window", list["Window"]], None]
"""Called with the resulting window, the windows that became it, its state window and the others'."""


class _Collected(MergeCallback):
    """Remembers the merges an assigner reports."""

    def __init__(self) -> None:
        self.merges: list[tuple[Any, list[Any]]] = []

    def merge(self, to_be_merged: Iterable[Any], merge_result: Any) -> None:
        """`to_be_merged` become `merge_result`."""
        self.merges.append((merge_result, list(to_be_merged)))


class MergingWindowSet:
    """The windows of the current key; `load` before use, `persist` after."""

    def __init__(self, assigner: MergingWindowAssigner[Any, Any], state: ListState[list[int]]) -> None:
        self._assigner = assigner
        self._state = state
        self._windows: dict[Window, Window] = {}
        self._changed = False

    def load(self) -> None:
        """Read the windows of the key that is current now."""
        from_namespace = self._assigner.window_from_namespace
        self._windows = {}
        for numbers in self._state.get():
            half = len(numbers) // 2
            window = from_namespace(tuple(numbers[:half]))
            self._windows[window] = from_namespace(tuple(numbers[half:]))
        self._changed = False

    def persist(self) -> None:
        """Write the windows back if they changed."""
        if self._changed:
            self._state.update(
                [
                    [*window.to_namespace(), *state_window.to_namespace()]
                    for window, state_window in self._windows.items()
                ]
            )
            self._changed = False

    def state_window(self, window: Window) -> Window | None:
        """Where the window's content lies; None if there is no such window (any more)."""
        return self._windows.get(window)

    def retire(self, window: Window) -> None:
        """Forget a window."""
        if self._windows.pop(window, None) is not None:
            self._changed = True

    def add(self, window: Window, on_merge: OnMerge) -> Window:
        """Add a window, merging what must be merged; return the window that now stands for it."""
        windows = self._windows
        if window in windows:
            return window
        collected = _Collected()
        self._assigner.merge_windows([*windows, window], collected)
        result, absorbed = window, False
        self._changed = True
        for merge_result, group in collected.merges:
            if window in group:
                result, absorbed = merge_result, True
            merged = [old for old in group if old != window]
            if not merged:
                continue
            state_windows = [windows.pop(old) for old in merged]
            windows[merge_result] = state_windows[0]
            # A window that swallows the new one without growing has nothing to tell anybody.
            if merged != [merge_result]:
                on_merge(merge_result, merged, state_windows[0], state_windows[1:])
        if not absorbed:
            windows[window] = window
        return result


def session_runs(elements: Iterable[tuple[Any, int, int]]) -> list[SessionRun]:
    """The sessions of one key's elements `(value, start, end)`: what overlaps or touches is one run.

    The order of the elements does not matter for the runs; within a run they keep it unless runs meet later.
    """
    runs: list[SessionRun] = []
    for value, start, end in elements:
        if runs:
            first, last, values = runs[-1]
            if first <= start <= last:
                values.append(value)
                if end > last:
                    runs[-1] = (first, end, values)
                    if len(runs) > 1:
                        runs = _joined(runs)
                continue
        runs.append((start, end, [value]))
        if len(runs) > 1:
            runs = _joined(runs)
    return runs


def _joined(runs: list[SessionRun]) -> list[SessionRun]:
    """Runs of which the last may touch others; the result of joining them is the last again."""
    start, end, values = runs.pop()
    apart = []
    for run in runs:
        if run[0] <= end and start <= run[1]:
            start, end, values = min(start, run[0]), max(end, run[1]), run[2] + values
        else:
            apart.append(run)
    return [*apart, (start, end, values)]
