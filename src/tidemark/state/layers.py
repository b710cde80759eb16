"""A dictionary that can be frozen in constant time: how heap state and timers survive a cut.

Without a cut pending, all content is in `live`, a plain dictionary, and callers may use it directly. A cut
pushes `live` down as a frozen layer that never changes while somebody reads it, and an empty `live` begins
on top of it::

    live     what was written since the last cut      } a lookup goes from top to bottom and stops
    layer n  ...                                      } at the first layer that has the address,
    layer 1  what was written between cut 1 and 2     } or that says it is dead
    layer 0  everything there was at cut 1

A cut sees the frozen layers below it. When no cut is pending any more the layers are folded into the
lowest one, which costs as much as was written meanwhile, not as much as there is.

The layers above a cut are also what has changed since. Whoever wants to know that (incremental checkpoints) numbers
the cuts and folds only the layers up to the oldest cut that may still be asked for; `live` and the layers between
then stay apart although nobody reads them, and writing costs no more than without.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from tidemark.errors import IllegalStateError

__all__ = ["ChangedView", "FrozenView", "KeyMark", "Layer", "LayeredDict", "visible_items"]

_MISSING: Any = object()
_MAX_LAYERS = 4
"""Above this many frozen layers the upper ones are folded into a new one, so that lookups stay short."""


@dataclass(slots=True)
class Layer:
    """One generation of writes. An address in both means: deleted, then written again."""

    entries: dict[Hashable, Any] = field(default_factory=dict)
    dead: set[Hashable] = field(default_factory=set)
    number: int = 0
    """Of the cut that froze it."""


class KeyMark(NamedTuple):
    """Says which addresses a view shows.

    Addresses keep their order when values change, and new ones come last: of two views of one dictionary with
    as many removals, the one with fewer entries shows the first addresses of the other.
    """

    removals: int
    entries: int


class FrozenView:
    """The content of a `LayeredDict` at a cut. Reading is safe from any thread until `release`.

    A view that nobody refers to any more counts as released.

    Attributes:
        mark: Says which addresses these are; None if they lie in several layers.
        released: Whether `release` was called.
    """

    __slots__ = ("__weakref__", "_layers", "mark", "released")

    def __init__(self, layers: tuple[Layer, ...], removals: int) -> None:
        """Look at `layers`, lowest first; `removals` is how often the dictionary has dropped an address."""
        self._layers = layers
        self.mark = KeyMark(removals, len(layers[0].entries)) if len(layers) == 1 else None
        self.released = False

    def pieces(self, size: int) -> Iterator[tuple[list[Any], list[Any]]]:
        """All addresses at the cut, in the order of their `mark` if there is one, and their values.

        Args:
            size: Entries per piece.

        Raises:
            IllegalStateError: The view was released.
        """
        layers = self._readable()
        if len(layers) == 1:
            entries = layers[0].entries
            addresses, values = iter(entries), iter(entries.values())
            while piece := list(islice(addresses, size)):
                yield piece, list(islice(values, size))
        else:
            items = visible_items(layers)
            while found := list(islice(items, size)):
                yield [item[0] for item in found], [item[1] for item in found]

    def values(self, size: int) -> Iterator[list[Any]]:
        """The values alone, in the same order; only for a view with a mark.

        Raises:
            IllegalStateError: The view was released.
        """
        [layer] = self._readable()
        values = iter(layer.entries.values())
        while piece := list(islice(values, size)):
            yield piece

    def addresses_from(self, start: int) -> list[Any]:
        """The addresses from number `start` on, in the same order; only for a view with a mark.

        Raises:
            IllegalStateError: The view was released.
        """
        [layer] = self._readable()
        # From the end: passing over an address costs as much as taking it.
        newest = list(islice(reversed(layer.entries), len(layer.entries) - start))
        newest.reverse()
        return newest

    def _readable(self) -> tuple[Layer, ...]:
        if not self._layers:
            raise IllegalStateError("This cut was released; its content may be gone.")
        return self._layers

    def release(self) -> None:
        """Say that nobody reads this view any more; the owner folds the layers at its next occasion."""
        self.released = True
        self._layers = ()


class ChangedView(FrozenView):
    """What a `LayeredDict` was told between two cuts; the lowest layer is not part of it."""

    __slots__ = ()

    def __init__(self, layers: tuple[Layer, ...]) -> None:
        """Look at `layers`, lowest first."""
        super().__init__(layers, 0)
        # A mark is about all addresses of a dictionary.
        self.mark = None

    def removed(self) -> list[Any]:
        """Addresses that are not there any more, among them some that never were.

        Raises:
            IllegalStateError: The view was released.
        """
        layers = self._readable()
        there = {at for at, _ in visible_items(layers)}
        return [at for at in set().union(*[layer.dead for layer in layers]) if at not in there]


class LayeredDict:
    """A dictionary with cheap cuts. One thread owns it; only `FrozenView`s go to others.

    Attributes:
        live: Entries written since the last pending cut, all of them if `frozen` is empty.
        dead: Addresses deleted since then (meaningless while `frozen` is empty).
        frozen: Layers below, newest first.
    """

    __slots__ = ("_removals", "_views", "dead", "frozen", "live")

    def __init__(self) -> None:
        """Start empty."""
        self.live: dict[Any, Any] = {}
        self.dead: set[Hashable] = set()
        self.frozen: tuple[Layer, ...] = ()
        self._views: list[weakref.ref[FrozenView]] = []
        self._removals = 0

    def find_frozen(self, at: Hashable, default: Any = None) -> Any:
        """What the frozen layers say about an address that is not in `live`."""
        if at in self.dead:
            return default
        for layer in self.frozen:
            entries = layer.entries
            if at in entries:
                return entries[at]
            if at in layer.dead:
                return default
        return default

    def get(self, at: Hashable, default: Any = None) -> Any:
        """The value at `at`, which the caller must not change in place."""
        value = self.live.get(at, _MISSING)
        if value is not _MISSING:
            return value
        return self.find_frozen(at, default) if self.frozen else default

    def get_own(self, at: Hashable, copy: Callable[[Any], Any]) -> Any:
        """The value at `at` for changing it in place, or None; a frozen one is copied first."""
        value = self.live.get(at)
        if value is not None or not self.frozen:
            return value
        value = self.find_frozen(at)
        if value is not None:
            value = self.live[at] = copy(value)
        return value

    def put(self, at: Hashable, value: Any) -> None:
        """Set the value at `at`."""
        self.live[at] = value

    def remove(self, at: Hashable) -> None:
        """Drop `at`, if it is there."""
        # Not pop(): an empty dictionary answers without hashing, and hashing NO_KEY is what must fail here.
        if at in self.live:
            del self.live[at]
            self._removals += 1
        if self.frozen:
            self.dead.add(at)
            self._removals += 1

    def items(self) -> Iterator[tuple[Any, Any]]:
        """All entries; the dictionary must not change meanwhile."""
        if not self.frozen:
            return iter(self.live.items())
        return visible_items((*reversed(self.frozen), Layer(self.live, self.dead)))

    def __len__(self) -> int:
        if not self.frozen:
            return len(self.live)
        # Counted from the lowest layer, which may be as large as the ones above are small.
        *uppers, base = self.frozen
        lowest = base.entries
        above = Layer()
        for layer in [*reversed(uppers), Layer(self.live, self.dead)]:
            _merge_into(above, layer)
        gone = sum([at in lowest and at not in above.entries for at in above.dead])
        return len(lowest) - gone + sum([at not in lowest for at in above.entries])

    def freeze(self, number: int = 0) -> FrozenView:
        """Cut: fix the content for a reader, in constant time."""
        self._seal(number)
        view = FrozenView(tuple(reversed(self.frozen)), self._removals)
        self._views.append(weakref.ref(view))
        return view

    def freeze_changes(self, number: int, since: int) -> ChangedView | None:
        """Cut: fix for a reader what changed since an earlier cut, or somewhat more; None if nothing did.

        `fold` must not have been told that nobody asks for that cut any more, nor the lowest layer be above it.
        """
        self._seal(number)
        changed = [layer for layer in self.frozen[:-1] if layer.number > since]
        return ChangedView(tuple(reversed(changed))) if changed else None

    def _seal(self, number: int) -> None:
        if self.live or self.dead or not self.frozen:
            self.frozen = (Layer(self.live, self.dead, number), *self.frozen)
            self.live, self.dead = {}, set()
            if len(self.frozen) > _MAX_LAYERS:
                self._shorten()

    @property
    def has_views(self) -> bool:
        """Whether some cut has not been folded back."""
        return bool(self._views)

    def fold(self, asked_for: int | None = None) -> None:
        """Take note of released views; when none is left, go back to a single plain dictionary.

        Args:
            asked_for: The oldest cut since which changes may be asked for: layers above it stay. None: there is none.
        """
        self._views = [ref for ref in self._views if (view := ref()) is not None and not view.released]
        if self._views or not self.frozen:
            return
        *uppers, base = self.frozen
        if asked_for is not None:
            # Readers of changes do not look at the lowest layer, which is the only one that is written to.
            done = [layer for layer in uppers if layer.number <= asked_for]
            for layer in reversed(done):
                _fold_into(base.entries, layer)
            self.frozen = (*uppers[: len(uppers) - len(done)], base)
            return
        entries = base.entries
        for layer in [*reversed(uppers), Layer(self.live, self.dead)]:
            _fold_into(entries, layer)
        self.live, self.dead, self.frozen = entries, set(), ()

    def _shorten(self) -> None:
        """Replace all layers but the lowest by one; views keep the old ones."""
        *uppers, base = self.frozen
        merged = Layer(number=uppers[0].number)
        for layer in reversed(uppers):
            _merge_into(merged, layer)
        self.frozen = (merged, base)


def _fold_into(entries: dict[Hashable, Any], upper: Layer) -> None:
    for at in upper.dead:
        entries.pop(at, None)
    entries.update(upper.entries)


def _merge_into(layer: Layer, upper: Layer) -> None:
    layer.dead |= upper.dead
    _fold_into(layer.entries, upper)


def visible_items(layers: tuple[Layer, ...]) -> Iterator[tuple[Any, Any]]:
    """Entries that a lookup through `layers` (lowest first) would find."""
    hidden: set[Hashable] = set()
    top = len(layers) - 1
    for depth in range(top, -1, -1):
        layer = layers[depth]
        if depth == top:
            yield from layer.entries.items()
        else:
            for at, value in layer.entries.items():
                if at not in hidden:
                    yield at, value
        if depth:
            hidden |= layer.entries.keys()
            hidden |= layer.dead
