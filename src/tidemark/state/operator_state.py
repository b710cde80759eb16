"""Operator state: lists and broadcast maps that belong to one parallel instance, not to a key.

It always lives in worker memory. A snapshot serialises it at the cut; restored elements stay serialised
until the state is asked for, because only then is it known how its type evolves. State nobody asks for is
carried along unchanged. How it spreads over another number of instances is the business of
`tidemark.state.redistribution`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tidemark.errors import ConfigError, StateMigrationException
from tidemark.state.broadcast_state import HeapBroadcastState
from tidemark.state.decoding import decoding
from tidemark.state.descriptors import ListStateDescriptor, MapStateDescriptor, StateDescriptor
from tidemark.state.primitives import ListState
from tidemark.state.serializers.base import TypeSerializer
from tidemark.state.serializers.compatibility import dump_serializer_snapshot
from tidemark.state.serializers.registry import serializer_for
from tidemark.state.serializers.resolution import (
    Resolution,
    naming_state,
    resolve_compatibility,
    resolve_key_compatibility,
)
from tidemark.state.snapshot import OperatorStatePart, Redistribution
from tidemark.types.typeinfo import SerializedTypeInfo, TypeInformation

__all__ = ["RAW_KEYED_STATE", "RAW_OPERATOR_STATE", "OperatorListState", "OperatorStateStore", "RawState"]

RAW_OPERATOR_STATE = "_raw/operator"
RAW_KEYED_STATE = "_raw/keyed"
"""Names of what operators of the user's own write themselves."""


class OperatorListState(ListState[Any]):
    """A list of one parallel instance; it keeps its elements between checkpoints."""

    __slots__ = ("_elements", "_mode", "_name", "_normalize", "_serializer")

    def __init__(self, name: str, mode: Redistribution, serializer: TypeSerializer[Any]) -> None:
        """Start empty."""
        self._name = name
        self._mode = mode
        self._serializer = serializer
        self._normalize = serializer.normalizer()
        self._elements: list[Any] = []

    def get(self) -> list[Any]:
        """The elements in insertion order, in a list of the caller's own."""
        return list(self._elements)

    def add(self, value: Any) -> None:
        """Append one element; None is refused."""
        self._elements += self._checked([value])

    def add_all(self, values: Iterable[Any]) -> None:
        """Append all elements, or none of them if one is not acceptable."""
        self._elements += self._checked(values)

    def update(self, values: Iterable[Any]) -> None:
        """Replace the list."""
        self._elements = self._checked(values)

    def clear(self) -> None:
        """Drop all elements."""
        self._elements = []

    def _checked(self, values: Iterable[Any]) -> list[Any]:
        if values is None:
            raise ConfigError(f"List state '{self._name}' needs a list of values, not None.")
        elements = list(values)
        if any(element is None for element in elements):
            raise ConfigError(f"List state '{self._name}' does not take None as an element.")
        normalize = self._normalize
        return elements if normalize is None else [normalize(element) for element in elements]

    def num_entries(self) -> int:
        """How many elements there are."""
        return len(self._elements)

    def part(self) -> OperatorStatePart:
        """The content, serialised now."""
        to_bytes = self._serializer.to_bytes
        elements = tuple([to_bytes(element) for element in self._elements])
        return OperatorStatePart(self._name, self._mode, elements, dump_serializer_snapshot(self._serializer))

    def load(self, values: list[Any]) -> None:
        """Take over restored elements."""
        self._elements = values


class RawState:
    """Blobs that an operator of the user's own keeps per instance."""

    __slots__ = ("_mode", "_name", "elements", "restored")

    def __init__(self, name: str, mode: Redistribution, restored: Sequence[bytes] = ()) -> None:
        """Start without elements; `restored` holds what came with a restore."""
        self._name = name
        self._mode = mode
        self.restored: tuple[bytes, ...] = tuple(restored)
        self.elements: tuple[bytes, ...] | None = None

    def num_entries(self) -> int:
        """How many blobs there are."""
        return len(self.restored if self.elements is None else self.elements)

    def part(self) -> OperatorStatePart:
        """The elements set last; until some are set, what was restored."""
        elements = self.restored if self.elements is None else self.elements
        return OperatorStatePart(self._name, self._mode, elements)


_Registered = OperatorListState | HeapBroadcastState | RawState


class OperatorStateStore:
    """The operator state of one parallel instance, by name."""

    def __init__(self, restored: Iterable[OperatorStatePart] = ()) -> None:
        """Begin with what a restore brought, if anything."""
        self._restored = {part.name: part for part in restored}
        self._states: dict[str, _Registered] = {}
        self._modes: dict[str, Redistribution] = {}
        self._types: dict[str, tuple[TypeInformation, ...]] = {}

    def get_list_state(self, descriptor: ListStateDescriptor) -> ListState[Any]:
        """List state with even-split redistribution."""
        return self._list_state(descriptor, Redistribution.SPLIT)

    def get_union_list_state(self, descriptor: ListStateDescriptor) -> ListState[Any]:
        """List state with union redistribution."""
        return self._list_state(descriptor, Redistribution.UNION)

    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> HeapBroadcastState:
        """Broadcast state; `read_only()` of it is what the other side may see.

        Raises:
            ConfigError: The descriptor has a time-to-live, or its name is taken.
            StateMigrationException: Restored state cannot be read as asked.
        """
        if not isinstance(descriptor, MapStateDescriptor):
            raise ConfigError(f"Broadcast state needs a MapStateDescriptor, not {descriptor!r}.")
        types = (descriptor.type_info, descriptor.key_type_info)
        known = self._known(descriptor, Redistribution.BROADCAST, types)
        if known is not None:
            assert isinstance(known, HeapBroadcastState)
            return known
        key, value = serializer_for(descriptor.key_type_info), serializer_for(descriptor.type_info)
        pairs: list[tuple[Any, Any]] = []
        part = self._restored_part(descriptor.name, Redistribution.BROADCAST)
        if part is not None:
            with naming_state("Operator state", descriptor.name):
                keys = resolve_key_compatibility(part.map_key_serializer, key)
            keys.require_compatible(descriptor.name, role="map key")
            values = self._resolve(descriptor, part, value)
            key, value = keys.serializer, values.serializer
            read_key, read_value = keys.reader.from_bytes, values.reader.from_bytes
            data = part.elements
            with decoding(f"Operator state '{descriptor.name}'"):
                pairs = [(read_key(data[at]), read_value(data[at + 1])) for at in range(0, len(data), 2)]
        state = HeapBroadcastState(descriptor.name, key, value)
        state.load(pairs)
        self._add(descriptor.name, Redistribution.BROADCAST, types, state)
        return state

    def get_raw_state(self, name: str, mode: Redistribution = Redistribution.RAW) -> RawState:
        """Blobs without a type, for operators of the user's own."""
        known = self._states.get(name)
        if known is not None:
            self._check_mode(name, mode)
            assert isinstance(known, RawState)
            return known
        part = self._restored_part(name, mode)
        state = RawState(name, mode, part.elements if part is not None else ())
        self._add(name, mode, (), state)
        return state

    def get_registered_state_names(self) -> set[str]:
        """Names of the list states asked for so far."""
        return {name for name, state in self._states.items() if isinstance(state, OperatorListState)}

    def get_registered_broadcast_state_names(self) -> set[str]:
        """Names of the broadcast states asked for so far."""
        return {name for name, mode in self._modes.items() if mode is Redistribution.BROADCAST}

    def described(self) -> list[tuple[str, Redistribution, tuple[TypeInformation, ...], int]]:
        """Name, redistribution, types (of a map its values' first) and number of entries of what was asked for."""
        return [
            (name, self._modes[name], self._types[name], state.num_entries())
            for name, state in self._states.items()
        ]

    def cut(self) -> list[OperatorStatePart]:
        """Everything as it is now, serialised; restored state nobody asked for included."""
        parts = [state.part() for state in self._states.values()]
        return [*parts, *self._restored.values()]

    def _list_state(self, descriptor: ListStateDescriptor, mode: Redistribution) -> ListState[Any]:
        if not isinstance(descriptor, ListStateDescriptor):
            raise ConfigError(f"Operator list state needs a ListStateDescriptor, not {descriptor!r}.")
        known = self._known(descriptor, mode, (descriptor.type_info,))
        if known is not None:
            assert isinstance(known, OperatorListState)
            return known
        serializer = serializer_for(descriptor.type_info)
        elements: list[Any] = []
        part = self._restored_part(descriptor.name, mode)
        if part is not None:
            resolution = self._resolve(descriptor, part, serializer)
            serializer = resolution.serializer
            read = resolution.reader.from_bytes
            with decoding(f"Operator state '{descriptor.name}'"):
                elements = [read(element) for element in part.elements]
        state = OperatorListState(descriptor.name, mode, serializer)
        state.load(elements)
        self._add(descriptor.name, mode, (descriptor.type_info,), state)
        return state

    def _known(
        self, descriptor: StateDescriptor, mode: Redistribution, types: tuple[TypeInformation, ...]
    ) -> _Registered | None:
        name = descriptor.name
        if descriptor.ttl_config is not None:
            raise ConfigError(
                f"Operator state '{name}' cannot have a time-to-live; only keyed state can. "
                "Remove enable_time_to_live from its descriptor."
            )
        if name not in self._states:
            return None
        self._check_mode(name, mode)
        if not all(_same_type(old, new) for old, new in zip(self._types[name], types, strict=True)):
            raise ConfigError(
                f"Operator state '{name}' is already registered with type {self._types[name][0]} and is "
                f"asked for with type {types[0]}. Give one of the two another name."
            )
        return self._states[name]

    def _check_mode(self, name: str, mode: Redistribution) -> None:
        if self._modes[name] is not mode:
            raise ConfigError(
                f"Operator state '{name}' is already registered with {self._modes[name].value} "
                f"redistribution and is asked for with {mode.value}. Give one of the two another name."
            )

    def _restored_part(self, name: str, mode: Redistribution) -> OperatorStatePart | None:
        part = self._restored.get(name)
        if part is not None and part.mode is not mode:
            raise StateMigrationException(
                f"Operator state '{name}' was written with {part.mode.value} redistribution but is read with "
                f"{mode.value}. Go back to the old accessor or use another name.",
                state_name=name,
            )
        return part

    def _resolve(
        self, descriptor: StateDescriptor, part: OperatorStatePart, new: TypeSerializer[Any]
    ) -> Resolution:
        with naming_state("Operator state", descriptor.name):
            resolution = resolve_compatibility(part.serializer, new, descriptor.migrations)
        resolution.require_compatible(descriptor.name)
        return resolution

    def _add(
        self, name: str, mode: Redistribution, types: tuple[TypeInformation, ...], state: _Registered
    ) -> None:
        self._restored.pop(name, None)
        self._modes[name] = mode
        self._types[name] = types
        self._states[name] = state


def _same_type(left: TypeInformation, right: TypeInformation) -> bool:
    if isinstance(left, SerializedTypeInfo) and isinstance(right, SerializedTypeInfo):
        return type(left.serializer) is type(right.serializer)
    return left == right
