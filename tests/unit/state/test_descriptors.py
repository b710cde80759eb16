from __future__ import annotations

from typing import Any

import pytest

from tidemark.errors import ConfigError, IllegalStateError
from tidemark.state.descriptors import (
    AggregatingStateDescriptor,
    FoldingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from tidemark.state.ttl import StateTtlConfig
from tidemark.types.typeinfo import Types

TTL = StateTtlConfig.new_builder(1000).build()


@pytest.mark.parametrize("name", ["", None, 3])
def test_a_state_needs_a_name(name: Any) -> None:
    with pytest.raises(ValueError, match="name"):
        ValueStateDescriptor(name, Types.LONG())


def test_descriptors_are_equal_by_class_and_name() -> None:
    assert ValueStateDescriptor("a", Types.LONG()) == ValueStateDescriptor("a", Types.STRING())
    assert hash(ValueStateDescriptor("a", Types.LONG())) == hash(ValueStateDescriptor("a", Types.STRING()))
    assert ValueStateDescriptor("a", Types.LONG()) != ListStateDescriptor("a", Types.LONG())
    assert ValueStateDescriptor("a", Types.LONG()) != ValueStateDescriptor("b", Types.LONG())


def test_a_descriptor_tells_what_it_describes() -> None:
    descriptor = MapStateDescriptor("m", Types.STRING(), Types.LONG())

    assert descriptor.get_name() == "m"
    assert descriptor.get_type_info() == descriptor.type_info == Types.LONG()
    assert descriptor.key_type_info == Types.STRING()
    assert "m" in repr(descriptor)


def test_the_queryable_name_is_set_once() -> None:
    descriptor = ValueStateDescriptor("a", Types.LONG())
    assert not descriptor.is_queryable()
    descriptor.set_queryable("q")

    assert descriptor.is_queryable()
    assert descriptor.get_queryable_state_name() == "q"
    with pytest.raises(IllegalStateError, match="'q'"):
        descriptor.set_queryable("r")


def test_the_queryable_name_is_not_empty() -> None:
    with pytest.raises(ConfigError, match="queryable"):
        ValueStateDescriptor("a", Types.LONG()).set_queryable("")


def test_queryable_and_time_to_live_exclude_each_other() -> None:
    first, second = ValueStateDescriptor("a", Types.LONG()), ValueStateDescriptor("a", Types.LONG())
    first.set_queryable("q")
    second.enable_time_to_live(TTL)

    with pytest.raises(ConfigError, match="time-to-live"):
        first.enable_time_to_live(TTL)
    with pytest.raises(ConfigError, match="time-to-live"):
        second.set_queryable("q")


def test_a_time_to_live_is_a_configuration_not_a_number() -> None:
    with pytest.raises(TypeError, match="StateTtlConfig, not 5"):
        ValueStateDescriptor("a", Types.LONG()).enable_time_to_live(5)  # type: ignore[arg-type]


def test_a_disabled_time_to_live_is_none() -> None:
    disabled = StateTtlConfig.new_builder(5).set_update_type(StateTtlConfig.UpdateType.Disabled).build()
    descriptor = ValueStateDescriptor("a", Types.LONG())

    descriptor.enable_time_to_live(disabled)

    assert descriptor.ttl_config is None
    descriptor.set_queryable("q")


def test_functions_are_checked() -> None:
    nonsense: Any = 5
    with pytest.raises(TypeError):
        ReducingStateDescriptor("r", nonsense, Types.LONG())
    with pytest.raises(TypeError):
        AggregatingStateDescriptor("a", lambda: 1, Types.LONG())
    with (
        pytest.warns(DeprecationWarning, match="AggregatingStateDescriptor"),
        pytest.raises(TypeError),
    ):
        FoldingStateDescriptor("f", 0, nonsense, Types.LONG())


def test_function_objects_and_callables_are_accepted() -> None:
    class Sum:
        def reduce(self, left: int, right: int) -> int:
            return left + right

    assert ReducingStateDescriptor("r", Sum(), Types.LONG()).reduce_function(1, 2) == 3
    assert ReducingStateDescriptor("r", max, Types.LONG()).reduce_function(1, 2) == 2


def test_folding_is_deprecated() -> None:
    with pytest.warns(DeprecationWarning, match="AggregatingStateDescriptor"):
        FoldingStateDescriptor("f", 0, lambda folded, value: folded + value, Types.LONG())
