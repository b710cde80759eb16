"""State handles over tables: the meaning of the six kinds of keyed state, the same for every backend.

A handle knows the rules of its kind (what None does, what an empty list does, when a map iteration is
broken) and nothing of how a store keeps things. Every value passes the normalizer of its serializer on
its way in, so that a store that keeps objects and one that keeps bytes hold the same values. The handles
with time-to-live are in `tidemark.backends.ttl`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tidemark.backends.table import ABSENT, Address, ListTable, MapTable, Table, ValueTable
from tidemark.errors import ConfigError, IllegalStateError
from tidemark.state.key_tokens import KeyTokens
from tidemark.state.namespace import VOID, Namespace, NamespaceKind
from tidemark.state.primitives import (
    AggregatingState,
    FoldingState,
    ListState,
    MapState,
    ReducingState,
    State,
    ValueState,
)

if TYPE_CHECKING:
    from tidemark.backends.registration import StateSpec
    from tidemark.state.backend import AccessContext

__all__ = [
    "Handle",
    "MapView",
    "TableAggregatingState",
    "TableFoldingState",
    "TableListState",
    "TableMapState",
    "TableReducingState",
    "TableValueState",
    "copier",
    "pairs_of",
]

Normalizer = Callable[[Any], Any]


def copier(value: Any, immutable: bool) -> Callable[[], Any]:
    """A function that hands out `value`, a fresh copy each time unless it cannot be changed anyway."""
    if immutable or value is None:
        return lambda: value
    return lambda: copy.deepcopy(value)


class Handle(State):
    """What all handles share: where the current key's units lie in the table."""

    __slots__ = ("_context", "_name", "_namespace", "_normalize", "_table")

    _table: Any
    """Every kind narrows this to the table it needs."""

    def __init__(self, spec: StateSpec, context: AccessContext, table: Table) -> None:
        """Bind a handle.

        Args:
            spec: The registered state.
            context: Supplies the current key and time.
            table: Keeps the units of the state.
        """
        self._context = context
        self._table = table
        self._name = spec.name
        self._normalize: Normalizer | None = spec.value.normalizer()
        self._namespace: Namespace | None = None if spec.namespace is NamespaceKind.VOID else VOID

    def set_namespace(self, namespace: Namespace) -> None:
        """Choose the window whose content the next calls see."""
        if self._namespace is None:
            raise IllegalStateError(f"State '{self._name}' was registered without a namespace.")
        self._namespace = namespace

    def _at(self) -> Address:
        namespace = self._namespace
        return self._context.token if namespace is None else (self._context.token, namespace)

    def _addresses(self, namespaces: Iterable[Namespace]) -> list[Address]:
        token = self._context.token
        return [(token, namespace) for namespace in namespaces]

    def clear(self) -> None:
        """Remove what the current key (and window) holds."""
        self._table.remove(self._at())


class TableValueState(Handle, ValueState[Any]):
    """Value state."""

    __slots__ = ("_default",)

    _table: ValueTable

    def __init__(self, spec: StateSpec, context: AccessContext, table: ValueTable) -> None:
        """See `Handle`."""
        super().__init__(spec, context, table)
        self._default = copier(getattr(spec.descriptor, "default_value", None), spec.value.immutable)

    def value(self) -> Any:
        """The stored value, else a copy of the default."""
        unit = self._table.get(self._at())
        return self._default() if unit is ABSENT else unit

    def update(self, value: Any) -> None:
        """Overwrite; None clears."""
        if value is None:
            self._table.remove(self._at())
            return
        normalize = self._normalize
        self._table.put(self._at(), value if normalize is None else normalize(value))


class _FoldedState(Handle):
    """Shared by the three kinds that keep one combined value: how a value is added, read and merged."""

    __slots__ = ()

    _table: ValueTable

    def _first(self, value: Any) -> Any:
        """The accumulator after the first value."""
        raise AssertionError("Every kind defines how it starts.")

    def _next(self, accumulator: Any, value: Any) -> Any:
        """The accumulator after one more value."""
        raise AssertionError("Every kind defines how it goes on.")

    def _result(self, accumulator: Any) -> Any:
        return accumulator

    def _stored(self, accumulator: Any) -> Any:
        normalize = self._normalize
        return accumulator if normalize is None else normalize(accumulator)

    def get(self) -> Any:
        """The combined value, or None when nothing was added."""
        unit = self._table.get(self._at())
        return None if unit is ABSENT else self._result(unit)

    def add(self, value: Any) -> None:
        """Combine one more value; None clears."""
        at = self._at()
        if value is None:
            self._table.remove(at)
            return
        unit = self._table.get(at)
        changed = self._first(value) if unit is ABSENT else self._next(unit, value)
        self._table.put(at, self._stored(changed))

    def add_all(self, values: Iterable[Any]) -> None:
        """Do what `add` would do for each value in turn, reading and writing the table once."""
        at = self._at()
        unit = self._table.get(at)
        normalize, go_on = self._normalize, self._next
        for value in values:
            if value is None:
                unit = ABSENT
                continue
            unit = self._first(value) if unit is ABSENT else go_on(unit, value)
            if normalize is not None:
                unit = normalize(unit)
        if unit is ABSENT:
            self._table.remove(at)
        else:
            self._table.put(at, unit)


class _MergingFoldedState(_FoldedState):
    """A combined value of several windows can become one."""

    __slots__ = ()

    def _merge(self, left: Any, right: Any) -> Any:
        raise AssertionError("Every merging kind defines how two accumulators become one.")

    def merge_namespaces(self, target: Namespace, sources: Sequence[Namespace]) -> None:
        """Move what the current key holds in `sources` into `target`."""
        into, *others = self._addresses([target, *sources])
        merged = self._table.get(into)
        found = False
        for at in others:
            unit = self._table.get(at)
            if unit is ABSENT:
                continue
            found = True
            self._table.remove(at)
            merged = unit if merged is ABSENT else self._merge(merged, unit)
        if found:
            self._table.put(into, self._stored(merged))


class TableReducingState(_MergingFoldedState, ReducingState[Any]):
    """Reducing state."""

    __slots__ = ("_reduce",)

    def __init__(self, spec: StateSpec, context: AccessContext, table: ValueTable) -> None:
        """See `Handle`."""
        super().__init__(spec, context, table)
        self._reduce = spec.descriptor.reduce_function  # type: ignore[attr-defined]

    def _first(self, value: Any) -> Any:
        return value

    def _next(self, accumulator: Any, value: Any) -> Any:
        return self._reduce(accumulator, value)

    def _merge(self, left: Any, right: Any) -> Any:
        return self._reduce(left, right)


class TableAggregatingState(_MergingFoldedState, AggregatingState[Any, Any]):
    """Aggregating state."""

    __slots__ = ("_function",)

    def __init__(self, spec: StateSpec, context: AccessContext, table: ValueTable) -> None:
        """See `Handle`."""
        super().__init__(spec, context, table)
        self._function = spec.descriptor.agg_function  # type: ignore[attr-defined]

    def _first(self, value: Any) -> Any:
        return self._function.add(value, self._function.create_accumulator())

    def _next(self, accumulator: Any, value: Any) -> Any:
        return self._function.add(value, accumulator)

    def _merge(self, left: Any, right: Any) -> Any:
        return self._function.merge(left, right)

    def _result(self, accumulator: Any) -> Any:
        return self._function.get_result(accumulator)


class TableFoldingState(_FoldedState, FoldingState[Any, Any]):
    """Folding state."""

    __slots__ = ("_fold", "_initial")

    def __init__(self, spec: StateSpec, context: AccessContext, table: ValueTable) -> None:
        """See `Handle`."""
        super().__init__(spec, context, table)
        self._initial = copier(spec.descriptor.initial_value, spec.value.immutable)  # type: ignore[attr-defined]
        self._fold = spec.descriptor.fold_function  # type: ignore[attr-defined]

    def _first(self, value: Any) -> Any:
        return self._fold(self._initial(), value)

    def _next(self, accumulator: Any, value: Any) -> Any:
        return self._fold(accumulator, value)


class TableListState(Handle, ListState[Any]):
    """List state."""

    __slots__ = ()

    _table: ListTable

    def _one(self, value: Any) -> Any:
        if value is None:
            raise ConfigError(f"List state '{self._name}' does not take None.")
        normalize = self._normalize
        return value if normalize is None else normalize(value)

    def _many(self, values: Iterable[Any]) -> list[Any]:
        if values is None:
            raise ConfigError(f"List state '{self._name}' needs a list of values, not None.")
        units = list(values)
        if any(value is None for value in units):
            raise ConfigError(f"List state '{self._name}' does not take None as an element.")
        normalize = self._normalize
        return units if normalize is None else [normalize(value) for value in units]

    def get(self) -> list[Any]:
        """The elements in insertion order, in a list of the caller's own."""
        return list(self._table.get(self._at()))

    def add(self, value: Any) -> None:
        """Append one element."""
        self._table.append(self._at(), [self._one(value)])

    def add_all(self, values: Iterable[Any]) -> None:
        """Append all elements, or none of them if one is not acceptable."""
        units = self._many(values)
        if units:
            self._table.append(self._at(), units)

    def update(self, values: Iterable[Any]) -> None:
        """Replace the list; an empty one clears it."""
        self._table.replace(self._at(), self._many(values))

    def merge_namespaces(self, target: Namespace, sources: Sequence[Namespace]) -> None:
        """Append what the current key holds in `sources`, in that order, to `target`."""
        into, *others = self._addresses([target, *sources])
        for at in others:
            units = self._table.get(at)
            if units:
                # The table may go on using the list it handed out, so the target gets its own.
                self._table.append(into, list(units))
                self._table.remove(at)


class MapView:
    """What `items()`, `keys()` and `values()` return: iterable any number of times, reading afresh."""

    __slots__ = ("_handle", "_part")

    def __init__(self, handle: Any, part: int | None) -> None:
        """View a map.

        Args:
            handle: Has `_entries()`, an iterator over (key, value), and counts `_changes`.
            part: 0 for keys, 1 for values, None for pairs.
        """
        self._handle = handle
        self._part = part

    def __iter__(self) -> Iterator[Any]:
        handle, part = self._handle, self._part
        entries = handle._entries()
        seen = handle._changes
        for entry in entries:
            yield entry if part is None else entry[part]
            if handle._changes != seen:
                raise RuntimeError(f"The map state '{handle._name}' was changed while it was iterated over.")

    def __repr__(self) -> str:
        return f"{('keys', 'values', 'items')[2 if self._part is None else self._part]}({list(self)!r})"


class TableMapState(Handle, MapState[Any, Any]):
    """Map state."""

    __slots__ = ("_changes", "_key_of", "_token_of")

    _table: MapTable

    def __init__(self, spec: StateSpec, context: AccessContext, table: MapTable) -> None:
        """See `Handle`."""
        super().__init__(spec, context, table)
        assert spec.map_key is not None
        tokens = KeyTokens(spec.map_key)
        self._token_of, self._key_of = tokens.of_key, tokens.to_key
        self._changes = 0

    def _token(self, key: Any) -> Hashable:
        token_of = self._token_of
        token: Hashable = key if token_of is None else token_of(key)
        return token

    def get(self, key: Any) -> Any:
        """The value, or None."""
        unit = self._table.get(self._at(), self._token(key))
        return None if unit is ABSENT else unit

    def contains(self, key: Any) -> bool:
        """Whether the key is present, also with a stored None."""
        return self._table.get(self._at(), self._token(key)) is not ABSENT

    def put(self, key: Any, value: Any) -> None:
        """Set one entry."""
        normalize = self._normalize
        unit = value if normalize is None else normalize(value)
        self._changes += 1
        self._table.put(self._at(), self._token(key), unit)

    def put_all(self, dict_value: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
        """Set many entries, or none of them if one is not acceptable."""
        normalize = self._normalize
        token = self._token
        entries = [
            (token(key), value if normalize is None else normalize(value))
            for key, value in pairs_of(dict_value, self._name)
        ]
        self._changes += 1
        at = self._at()
        for map_key, unit in entries:
            self._table.put(at, map_key, unit)

    def remove(self, key: Any) -> None:
        """Drop one entry, if it is there."""
        self._changes += 1
        self._table.remove(self._at(), self._token(key))

    def clear(self) -> None:
        """Drop all entries."""
        self._changes += 1
        self._table.clear(self._at())

    def is_empty(self) -> bool:
        """Whether there is no entry."""
        return self._table.is_empty(self._at())

    def items(self) -> Iterable[tuple[Any, Any]]:
        """All entries."""
        return MapView(self, None)

    def keys(self) -> Iterable[Any]:
        """All keys."""
        return MapView(self, 0)

    def values(self) -> Iterable[Any]:
        """All values."""
        return MapView(self, 1)

    def _entries(self) -> Iterator[tuple[Any, Any]]:
        key_of = self._key_of
        items = self._table.items(self._at())
        return iter(items) if key_of is None else ((key_of(token), unit) for token, unit in items)


def pairs_of(mapping: Any, state_name: str) -> Iterable[tuple[Any, Any]]:
    """The entries a user gave as a mapping or as an iterable of pairs."""
    if mapping is None:
        raise ConfigError(f"Map state '{state_name}': put_all needs a mapping or pairs, not None.")
    pairs: Iterable[tuple[Any, Any]] = mapping.items() if hasattr(mapping, "items") else mapping
    return pairs
