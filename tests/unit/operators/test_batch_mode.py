"""Batch execution: key by key, time only at a key's end, one value per rolling aggregate."""

from __future__ import annotations

from tidemark.api.functions import (
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ReduceFunction,
)
from tidemark.api.specs import WindowSpec
from tidemark.api.time_domain import TimeDomain
from tidemark.api.windows.assigners import TumblingEventTimeWindows, TumblingProcessingTimeWindows
from tidemark.api.windows.counts import CountTumblingWindowAssigner
from tidemark.clock import ManualClock
from tidemark.operators.reduce import ReduceOperator
from tidemark.operators.window import WindowOperator
from tidemark.state.descriptors import MapStateDescriptor, ValueStateDescriptor
from tidemark.testing import BroadcastHarness, OneInputHarness, TwoInputHarness
from tidemark.types.typeinfo import Types

BATCH = {"execution.runtime-mode": "BATCH"}
LOWEST, HIGHEST = -(2**63), 2**63 - 1


def first(value):
    return value[0]


class Tell(KeyedProcessFunction):
    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        service = ctx.timer_service()
        self.count.update((self.count.value() or 0) + 1)
        service.register_event_time_timer(10**15)
        service.register_processing_time_timer(10**15)
        yield value, self.count.value(), service.current_watermark()

    def on_timer(self, timestamp, ctx):
        service = ctx.timer_service()
        if ctx.time_domain() is TimeDomain.PROCESSING_TIME:
            service.register_processing_time_timer(timestamp + 1)
        yield ctx.time_domain().name, ctx.get_current_key(), self.count.value(), service.current_watermark()


def test_keys_are_processed_one_after_the_other_and_time_jumps_at_their_end():
    harness = OneInputHarness(Tell(), first, Types.STRING(), configuration=BATCH)
    for value in [("a", 1), ("b", 2), ("a", 3)]:
        harness.process_element(value, value[1])
    harness.process_watermark(50)
    assert harness.output() == []

    harness.end_input()

    assert harness.output() == [
        (("a", 1), 1, LOWEST),
        (("a", 3), 2, LOWEST),
        ("EVENT_TIME", "a", 2, HIGHEST),
        ("PROCESSING_TIME", "a", 2, HIGHEST),
        (("b", 2), 1, LOWEST),
        ("EVENT_TIME", "b", 1, HIGHEST),
        ("PROCESSING_TIME", "b", 1, HIGHEST),
    ]
    assert harness.num_keyed_state_entries() == 0


class Clocked(KeyedProcessFunction):
    def __init__(self, clock):
        self.clock = clock

    def process_element(self, value, ctx):
        self.clock.advance(5)
        yield ctx.timer_service().current_processing_time()


def test_processing_time_stands_still_during_a_key():
    clock = ManualClock(100)
    harness = OneInputHarness(Clocked(clock), first, Types.STRING(), clock=clock, configuration=BATCH)
    for value in ["ax", "ay", "bx"]:
        harness.process_element(value)

    harness.end_input()

    assert harness.output() == [100, 100, 110]


def test_rolling_reduce_emits_the_last_value_per_key():
    operator = ReduceOperator(lambda a, b: (a[0], a[1] + b[1]), Types.STRING(), None)
    harness = OneInputHarness(operator, first, Types.STRING(), configuration=BATCH)
    for value in [("a", 1), ("b", 5), ("a", 2)]:
        harness.process_element(value, value[1])
    assert harness.output() == []

    harness.end_input()

    assert harness.output_with_timestamps() == [(("a", 3), 2), (("b", 5), 5)]


class CountedSum(ReduceFunction):
    """Adds, and counts its calls in keyed state."""

    def open(self, runtime_context):
        self.calls = runtime_context.get_state(ValueStateDescriptor("calls", Types.LONG()))

    def reduce(self, value1, value2):
        self.calls.update((self.calls.value() or 0) + 1)
        return value1[0], value1[1] + value2[1], self.calls.value()


def test_reduce_function_has_keyed_state_of_its_own_in_batch_mode():
    operator = ReduceOperator(CountedSum(), Types.STRING(), None)
    harness = OneInputHarness(operator, first, Types.STRING(), configuration=BATCH)
    for value in [("a", 1), ("b", 5), ("a", 2), ("a", 4), ("b", 1)]:
        harness.process_element(value)

    harness.end_input()

    assert harness.output() == [("a", 7, 2), ("b", 6, 1)]
    assert harness.num_keyed_state_entries() == 0


class Join(KeyedCoProcessFunction):
    def process_element1(self, value, ctx):
        yield 1, value

    def process_element2(self, value, ctx):
        yield 2, value


def test_both_inputs_of_a_key_come_together_when_both_have_ended():
    harness = TwoInputHarness(Join(), first, first, Types.STRING(), configuration=BATCH)
    harness.process_element1("a1")
    harness.process_element2("b1")
    harness.process_element2("a2")
    harness.process_element1("a3")

    harness.end_input()

    assert harness.output() == [(1, "a1"), (2, "a2"), (1, "a3"), (2, "b1")]


RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())


class Keyed(KeyedBroadcastProcessFunction):
    def process_element(self, value, ctx):
        yield value, sorted(ctx.get_broadcast_state(RULES).keys())

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(RULES).put(value, 1)
        yield "rule", value


class Plain(Keyed, BroadcastProcessFunction):
    pass


def test_the_broadcast_side_is_consumed_first():
    for harness in (
        BroadcastHarness(Keyed(), [RULES], first, Types.STRING(), configuration=BATCH),
        BroadcastHarness(Plain(), [RULES], configuration=BATCH),
    ):
        harness.process_element("a1")
        harness.process_broadcast_element("r")
        harness.process_element("b1")
        harness.process_broadcast_element("s")

        harness.end_input()

        assert harness.output() == [("rule", "r"), ("rule", "s"), ("a1", ["r", "s"]), ("b1", ["r", "s"])]


def test_windows_of_a_key_fire_at_its_end_and_nothing_is_late():
    def collect(assigner):
        settings = WindowSpec(
            assigner, window_function=lambda key, window, inputs: [(key, list(inputs))], function_kind="apply"
        )
        harness = OneInputHarness(
            WindowOperator(settings, Types.STRING()), first, Types.STRING(), configuration=BATCH
        )
        for value, stamp in [("a1", 50), ("b1", 7), ("a2", 1), ("a3", 55)]:
            harness.process_element(value, stamp)
        harness.end_input()
        assert harness.num_keyed_state_entries() == 0
        return harness.output()

    assert collect(TumblingEventTimeWindows.of(10)) == [("a", ["a2"]), ("a", ["a1", "a3"]), ("b", ["b1"])]
    assert collect(TumblingProcessingTimeWindows.of(10)) == [("a", ["a1", "a2", "a3"]), ("b", ["b1"])]
    assert collect(CountTumblingWindowAssigner.of(2)) == [("a", ["a1", "a2"])]
