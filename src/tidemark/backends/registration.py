"""Registering states: one name, one meaning, and what restored state has to say about it.

Both backends go through the same steps when a handle is asked for: look the name up (`RegisteredStates`),
derive serializers from the descriptor (`spec_of`), and, if a snapshot brought state of that name, decide
whether it can be read as asked (`resolve_restored`). Only then is a table filled and a handle made
(`create_handle`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tidemark.backends import handles, ttl
from tidemark.backends.table import Table
from tidemark.clock import Clock
from tidemark.errors import (
    ConfigError,
    StateMigrationException,
    UnknownStateError,
    UnsupportedOperationException,
)
from tidemark.state.backend import AccessContext, KeyContext
from tidemark.state.canonical import StateSerializers
from tidemark.state.descriptors import MapStateDescriptor, StateDescriptor, StateKind
from tidemark.state.expiry import Expiry, Living
from tidemark.state.namespace import NamespaceKind
from tidemark.state.primitives import State
from tidemark.state.serializers.base import TypeSerializer
from tidemark.state.serializers.compatibility import dump_serializer_snapshot, load_serializer_snapshot
from tidemark.state.serializers.registry import serializer_for
from tidemark.state.serializers.resolution import (
    naming_state,
    resolve_compatibility,
    resolve_key_compatibility,
)
from tidemark.state.snapshot import StateMeta
from tidemark.state.ttl import StateTtlConfig
from tidemark.types.typeinfo import SerializedTypeInfo, TypeInformation

__all__ = [
    "RegisteredStates",
    "StateMigration",
    "StateSpec",
    "check_columns",
    "check_restored",
    "create_handle",
    "lies_in_columns",
    "resolve_restored",
    "resolve_value",
    "spec_of",
]


@dataclass(frozen=True, slots=True)
class StateSpec:
    """A registered state: its descriptor and the serializers in use."""

    descriptor: StateDescriptor
    namespace: NamespaceKind
    key: TypeSerializer[Any]
    value: TypeSerializer[Any]
    map_key: TypeSerializer[Any] | None = None

    @property
    def name(self) -> str:
        """Name of the state."""
        return self.descriptor.name

    @property
    def kind(self) -> StateKind:
        """Kind of the state."""
        return self.descriptor.kind

    @property
    def ttl(self) -> StateTtlConfig | None:
        """Time-to-live settings, if it is on."""
        return self.descriptor.ttl_config

    @property
    def expiry(self) -> Expiry | None:
        """When its units expire, if they do."""
        return None if self.ttl is None else Expiry.of(self.ttl)

    def in_full_snapshot(self, context: KeyContext, clock: Clock) -> Living | None:
        """The units that a full snapshot taken now holds; None: all of them."""
        expiry = self.expiry
        return None if expiry is None else expiry.snapshot_at(context.time_of(expiry, clock))

    @property
    def serializers(self) -> StateSerializers:
        """The serializers by themselves, as the canonical form needs them."""
        return StateSerializers(self.key, self.value, self.map_key)

    def meta(self) -> StateMeta:
        """What a snapshot taken now says about this state.

        Raises:
            ValueError: A serializer's snapshot class could not be found again on restore.
        """
        return StateMeta(
            name=self.name,
            kind=self.kind,
            key=dump_serializer_snapshot(self.key),
            value=dump_serializer_snapshot(self.value),
            map_key=None if self.map_key is None else dump_serializer_snapshot(self.map_key),
            namespace=self.namespace,
            ttl=self.ttl is not None,
        )


def spec_of(
    descriptor: StateDescriptor,
    key_serializer: TypeSerializer[Any],
    namespace: NamespaceKind = NamespaceKind.VOID,
) -> StateSpec:
    """Derive the serializers a descriptor asks for."""
    map_key = serializer_for(descriptor.key_type_info) if isinstance(descriptor, MapStateDescriptor) else None
    return StateSpec(descriptor, namespace, key_serializer, serializer_for(descriptor.type_info), map_key)


def check_columns(descriptor: StateDescriptor) -> None:
    """Refuse what states of batch functions cannot do.

    Raises:
        UnsupportedOperationException: Time-to-live in event time or with a callback: both go record by record.
    """
    config = descriptor.ttl_config
    if config is not None and (Expiry.of(config).event_time or Expiry.of(config).reported):
        raise UnsupportedOperationException(
            f"State '{descriptor.name}' of a batch function lives by processing time and reports nothing: event time "
            "and on_expiry go record by record. Use a KeyedProcessFunction."
        )


def lies_in_columns(spec: StateSpec) -> bool:
    """Whether a state by column has one value per address, not a container or a function of the user's per value."""
    if spec.namespace is NamespaceKind.VOID:
        return spec.kind is StateKind.VALUE
    return spec.namespace is NamespaceKind.WINDOW and spec.kind is StateKind.AGGREGATING


class RegisteredStates:
    """The states of one backend by name, each with its handle."""

    def __init__(self) -> None:
        """Start with none."""
        self._states: dict[str, tuple[StateSpec, State]] = {}

    def find(self, descriptor: StateDescriptor, namespace: NamespaceKind) -> State | None:
        """The handle made earlier for the same state, or None.

        Raises:
            ConfigError: The name stands for another kind, type, time-to-live switch or namespace.
        """
        known = self._states.get(descriptor.name)
        if known is None:
            return None
        spec, handle = known
        difference = _difference(spec, descriptor, namespace)
        if difference is not None:
            raise ConfigError(
                f"State '{descriptor.name}' is already registered {difference[0]} and is asked for "
                f"{difference[1]}. Give one of the two another name."
            )
        return handle

    def add(self, spec: StateSpec, handle: State) -> None:
        """Remember a state."""
        self._states[spec.name] = (spec, handle)

    def spec(self, name: str) -> StateSpec:
        """The state called `name`.

        Raises:
            UnknownStateError: There is none.
        """
        if name not in self._states:
            known = ", ".join(sorted(self._states)) or "none"
            raise UnknownStateError(
                f"No keyed state '{name}' is registered here (registered: {known}).", state_name=name
            )
        return self._states[name][0]

    def __contains__(self, name: object) -> bool:
        return name in self._states

    def __iter__(self) -> Iterator[StateSpec]:
        return iter([spec for spec, _ in self._states.values()])


def _difference(
    spec: StateSpec, descriptor: StateDescriptor, namespace: NamespaceKind
) -> tuple[str, str] | None:
    """How a second request differs from the first, or None."""
    first = spec.descriptor
    if spec.kind is not descriptor.kind:
        return f"as {spec.kind.value} state", f"as {descriptor.kind.value} state"
    pairs = [(first.type_info, descriptor.type_info)]
    if isinstance(first, MapStateDescriptor) and isinstance(descriptor, MapStateDescriptor):
        pairs.append((first.key_type_info, descriptor.key_type_info))
    for old, new in pairs:
        if not _same_type(old, new):
            return f"with type {old}", f"with type {new}"
    if (spec.ttl is None) != (descriptor.ttl_config is None):
        on, off = "with time-to-live", "without time-to-live"
        return (off, on) if spec.ttl is None else (on, off)
    if spec.namespace is not namespace:
        return f"with namespace {spec.namespace.name}", f"with namespace {namespace.name}"
    return None


def _same_type(left: TypeInformation, right: TypeInformation) -> bool:
    if isinstance(left, SerializedTypeInfo) and isinstance(right, SerializedTypeInfo):
        # Custom serializers rarely define equality; one made anew for the same state is the same type.
        return type(left.serializer) is type(right.serializer)
    return left == right


@dataclass(frozen=True, slots=True)
class StateMigration:
    """How restored state meets the descriptor that asks for it.

    Attributes:
        spec: The state with the serializers to use from now on.
        old: Reads the values as they were written, giving values of the new shape where types evolve.
        convert: User migration to apply to each value read, if one was declared for the old type.
        rewrite: Whether bytes at rest must be read with `old` and written anew.
    """

    spec: StateSpec
    old: TypeSerializer[Any]
    convert: Callable[[Any], Any] | None = None
    rewrite: bool = False


def resolve_restored(restored: StateMeta, spec: StateSpec) -> StateMigration:
    """Decide whether the restored state can be read as the new descriptor asks (`docs/guides/schema-evolution.md`).

    Raises:
        StateMigrationException: It cannot; the message names the state and both sides.
    """
    if restored.kind is not spec.kind:
        raise _mismatch(spec.name, f"{restored.kind.value} state", f"{spec.kind.value} state")
    if restored.namespace is not spec.namespace:
        raise _mismatch(spec.name, f"namespace {restored.namespace.name}", f"namespace {spec.namespace.name}")
    if restored.ttl != (spec.ttl is not None):
        on, off = "state with time-to-live", "state without time-to-live"
        raise _mismatch(spec.name, *((on, off) if restored.ttl else (off, on)))
    key = _resolve_key(spec.name, "key", restored.key, spec.key)
    map_key = spec.map_key
    if map_key is not None:
        assert restored.map_key is not None
        map_key = _resolve_key(spec.name, "map key", restored.map_key, map_key)
    value, old, convert, rewrite = resolve_value(
        spec.name, restored.value, spec.value, spec.descriptor.migrations
    )
    return StateMigration(replace(spec, key=key, value=value, map_key=map_key), old, convert, rewrite)


def check_restored(meta: StateMeta, known: StateMeta | None, key: TypeSerializer[Any]) -> None:
    """Refuse rows that must not be taken over, before they are.

    Args:
        meta: What the snapshot says of the state.
        known: What it said of the same state of another old subtask, if there was one.
        key: The key serializer of this backend.

    Raises:
        StateMigrationException: The keys are of another type, or the old subtasks wrote the state in
            different forms.
    """
    _resolve_key(meta.name, "key", meta.key, key)
    if known is None or known == meta:
        return
    facts = [(each.kind, each.namespace, each.ttl, each.map_key is None) for each in (known, meta)]
    pairs = [(known.value, meta.value), (known.map_key, meta.map_key)]
    if facts[0] != facts[1] or not all(_same_form(old, new) for old, new in pairs):
        raise StateMigrationException(
            f"State '{meta.name}' was written in different forms by different subtasks, because not all of "
            "them had registered it with its new type when the snapshot was taken. Restore it with the old "
            "parallelism, register the state in open(), and take another savepoint.",
            state_name=meta.name,
        )


def _same_form(first: bytes | None, second: bytes | None) -> bool:
    if first is None or second is None or first == second:
        return True
    try:
        serializer = load_serializer_snapshot(first).restore_serializer()
        return resolve_compatibility(second, serializer).is_compatible_as_is()
    except (StateMigrationException, ValueError):
        return False


def resolve_value(
    name: str,
    stored: bytes,
    new: TypeSerializer[Any],
    migrations: list[tuple[TypeInformation, Callable[[Any], Any]]],
) -> tuple[TypeSerializer[Any], TypeSerializer[Any], Callable[[Any], Any] | None, bool]:
    """Resolve one value serializer: `(serializer to use, old serializer, user migration, rewrite)`.

    Raises:
        StateMigrationException: The old values cannot become values of the new serializer.
    """
    with naming_state("State", name):
        answer = resolve_compatibility(stored, new, migrations)
    answer.require_compatible(name)
    if answer.declared is not None:
        reader, function = answer.declared
        return new, reader, _normalized(function, new), True
    return answer.serializer, answer.reader, None, answer.is_compatible_after_migration()


def _normalized(function: Callable[[Any], Any], serializer: TypeSerializer[Any]) -> Callable[[Any], Any]:
    normalize = serializer.normalizer()
    return function if normalize is None else lambda value: normalize(function(value))


def _resolve_key(name: str, role: str, stored: bytes, new: TypeSerializer[Any]) -> TypeSerializer[Any]:
    """Keys must be the same type: their bytes decide where the state lies."""
    with naming_state("State", name):
        answer = resolve_key_compatibility(stored, new)
    answer.require_compatible(name, role=role)
    return answer.serializer


def _mismatch(name: str, old: str, new: str) -> StateMigrationException:
    return StateMigrationException(
        f"State '{name}' was written as {old} but is read as {new}. Go back to the old form, or give the "
        "state another name or the operator a new uid, and start with an empty one.",
        state_name=name,
    )


_PLAIN: dict[StateKind, Any] = {
    StateKind.VALUE: handles.TableValueState,
    StateKind.LIST: handles.TableListState,
    StateKind.MAP: handles.TableMapState,
    StateKind.REDUCING: handles.TableReducingState,
    StateKind.AGGREGATING: handles.TableAggregatingState,
    StateKind.FOLDING: handles.TableFoldingState,
}
_EXPIRING: dict[StateKind, Any] = {
    StateKind.VALUE: ttl.TtlValueState,
    StateKind.LIST: ttl.TtlListState,
    StateKind.MAP: ttl.TtlMapState,
    StateKind.REDUCING: ttl.TtlReducingState,
    StateKind.AGGREGATING: ttl.TtlAggregatingState,
    StateKind.FOLDING: ttl.TtlFoldingState,
}


def create_handle(
    spec: StateSpec, context: KeyContext, table: Table, on_access: Callable[[], None] | None = None
) -> State:
    """Make the handle of a registered state.

    Args:
        spec: The state.
        context: Current key and time.
        table: Value, list or map table, by the state's kind.
        on_access: Incremental clean-up, run after every access; only for state with time-to-live.
    """
    handle: State
    if spec.expiry is not None:
        times: AccessContext = context.event if spec.expiry.event_time else context
        handle = _EXPIRING[spec.kind](spec, times, table, on_access)
    else:
        handle = _PLAIN[spec.kind](spec, context, table)
    return handle
