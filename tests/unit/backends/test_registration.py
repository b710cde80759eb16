from __future__ import annotations

from typing import Any

import pytest

from tidemark.backends.registration import RegisteredStates, resolve_restored, spec_of
from tidemark.errors import ConfigError, StateMigrationException, UnknownStateError
from tidemark.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from tidemark.state.namespace import NamespaceKind
from tidemark.state.serializers import NullableSerializer, serializer_for
from tidemark.types.typeinfo import Types

KEY = serializer_for(Types.LONG())
HANDLE: Any = object()


def test_a_state_is_found_again_by_name() -> None:
    states = RegisteredStates()
    descriptor = ValueStateDescriptor("v", Types.LONG())
    assert states.find(descriptor, NamespaceKind.VOID) is None
    states.add(spec_of(descriptor, KEY), HANDLE)

    assert states.find(ValueStateDescriptor("v", Types.LONG()), NamespaceKind.VOID) is HANDLE
    assert "v" in states
    assert [spec.name for spec in states] == ["v"]


def test_the_same_name_with_another_namespace_is_refused() -> None:
    states = RegisteredStates()
    descriptor = ValueStateDescriptor("v", Types.LONG())
    states.add(spec_of(descriptor, KEY), HANDLE)

    with pytest.raises(ConfigError, match="namespace"):
        states.find(descriptor, NamespaceKind.WINDOW)


def test_a_custom_serializer_made_anew_is_the_same_type() -> None:
    states = RegisteredStates()
    states.add(spec_of(ValueStateDescriptor("v", NullableSerializer(KEY)), KEY), HANDLE)

    again = ValueStateDescriptor("v", NullableSerializer(KEY))
    assert states.find(again, NamespaceKind.VOID) is HANDLE


def test_an_unknown_state_is_reported_with_the_known_ones() -> None:
    states = RegisteredStates()
    states.add(spec_of(ValueStateDescriptor("v", Types.LONG()), KEY), HANDLE)

    with pytest.raises(UnknownStateError, match=r"'w'.*v"):
        states.spec("w")


def test_restored_state_of_the_same_type_is_used_as_it_is() -> None:
    spec = spec_of(MapStateDescriptor("m", Types.STRING(), Types.LONG()), KEY)

    resolution = resolve_restored(spec.meta(), spec)

    assert resolution.spec == spec
    assert not resolution.rewrite
    assert resolution.convert is None


def test_a_declared_migration_gives_normalised_values() -> None:
    old = spec_of(ValueStateDescriptor("v", Types.LONG()), KEY)
    descriptor = ValueStateDescriptor("v", Types.FLOAT())
    descriptor.migrate_from(Types.LONG(), lambda number: number + 0.1)

    resolution = resolve_restored(old.meta(), spec_of(descriptor, KEY))

    assert resolution.rewrite
    assert resolution.convert is not None
    assert resolution.convert(110) == 110.0999984741211
    assert resolution.old.from_bytes(KEY.to_bytes(3)) == 3


@pytest.mark.parametrize(
    ("descriptor", "namespace", "message"),
    [
        (ListStateDescriptor("v", Types.LONG()), NamespaceKind.VOID, "value state.*list state"),
        (ValueStateDescriptor("v", Types.STRING()), NamespaceKind.VOID, "LONG.*STRING"),
        (ValueStateDescriptor("v", Types.LONG()), NamespaceKind.WINDOW, "namespace"),
    ],
)
def test_what_does_not_fit_is_named(descriptor: Any, namespace: NamespaceKind, message: str) -> None:
    old = spec_of(ValueStateDescriptor("v", Types.LONG()), KEY)

    with pytest.raises(StateMigrationException, match=f"'v'.*{message}") as caught:
        resolve_restored(old.meta(), spec_of(descriptor, KEY, namespace))
    assert caught.value.state_name == "v"
