"""Functions of two connected streams."""

from __future__ import annotations

import pytest

from tidemark.api.functions import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedCoProcessFunction,
)
from tidemark.state.descriptors import ValueStateDescriptor
from tidemark.testing import TwoInputHarness
from tidemark.types.typeinfo import Types


class Sum(CoMapFunction):
    def open(self, runtime_context):
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def map1(self, value):
        self.total.update((self.total.value() or 0) + value[1])
        return self.total.value()

    def map2(self, value):
        self.total.update((self.total.value() or 0) - value[1])
        return None if self.total.value() < 0 else self.total.value()


def first(value):
    return value[0]


def test_both_inputs_see_the_same_keyed_state_and_none_emits_nothing():
    harness = TwoInputHarness(Sum(), first, first, Types.STRING())

    harness.process_element1(("a", 5), 1)
    harness.process_element2(("a", 2), 2)
    harness.process_element2(("b", 2), 3)
    harness.process_element1(("b", 9))

    assert harness.output_with_timestamps() == [(5, 1), (3, 2), (7, None)]


class Plain(CoMapFunction):
    def map1(self, value):
        return value

    def map2(self, value):
        return -value if value else None


class Flat(CoFlatMapFunction):
    def flat_map1(self, value):
        return [value, value]

    def flat_map2(self, value):
        return None


@pytest.mark.parametrize("selector", [None, lambda value: 0])
def test_co_map_and_co_flat_map(selector):
    mapping = TwoInputHarness(Plain(), selector, selector)
    mapping.process_element1(1)
    mapping.process_element2(2)
    mapping.process_element2(0)
    flat = TwoInputHarness(Flat(), selector, selector)
    flat.process_element1(1, 7)
    flat.process_element2(2)

    assert mapping.output() == [1, -2]
    assert flat.output_with_timestamps() == [(1, 7), (1, 7)]


class Join(KeyedCoProcessFunction):
    def open(self, runtime_context):
        self.left = runtime_context.get_state(ValueStateDescriptor("left", Types.PICKLED_BYTE_ARRAY()))

    def process_element1(self, value, ctx):
        self.left.update(value)
        ctx.timer_service().register_event_time_timer(value[1])

    def process_element2(self, value, ctx):
        yield ctx.get_current_key(), self.left.value(), value

    def on_timer(self, timestamp, ctx):
        yield "expired", ctx.get_current_key(), timestamp
        self.left.clear()


def test_keyed_co_process_has_timers_and_a_combined_watermark():
    harness = TwoInputHarness(Join(), first, first, Types.STRING())
    harness.process_element1(("a", 10))
    harness.process_element2(("a", 1))

    harness.process_watermark1(20)
    assert harness.output() == [("a", ("a", 10), ("a", 1))]
    harness.process_watermark2(10)

    assert harness.output() == [("expired", "a", 10)]
    harness.process_element2(("a", 2))
    assert harness.output() == [("a", None, ("a", 2))]


class Tell(CoProcessFunction):
    def process_element1(self, value, ctx):
        yield 1, value, ctx.timestamp()

    def process_element2(self, value, ctx):
        yield 2, value, ctx.timer_service().current_watermark()


def test_co_process_without_keys():
    harness = TwoInputHarness(Tell())

    harness.process_element1("x", 3)
    harness.process_watermark(5)
    harness.process_element2("y")

    assert harness.output() == [(1, "x", 3), (2, "y", 5)]


def test_a_function_of_one_input_is_refused():
    with pytest.raises(TypeError, match="two inputs"):
        TwoInputHarness(lambda value: value)
