"""Keyed map, flat_map, filter and process over the heap and the RocksDB backend."""

from __future__ import annotations

import pytest

from tidemark.api.functions import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
)
from tidemark.api.output_tag import OutputTag
from tidemark.api.state_backends import EmbeddedRocksDBStateBackend, HashMapStateBackend
from tidemark.errors import NoCurrentKeyError
from tidemark.operators.base import Output
from tidemark.operators.keyed import KeyedProcessOperator
from tidemark.protocol.batch import Batch
from tidemark.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from tidemark.testing import OneInputHarness
from tidemark.types.typeinfo import Types

BACKENDS = [HashMapStateBackend, EmbeddedRocksDBStateBackend]


def first(value):
    return value[0]


class CountAverage(FlatMapFunction):
    def open(self, runtime_context):
        pair = Types.TUPLE([Types.LONG(), Types.LONG()])
        self.sum = runtime_context.get_state(ValueStateDescriptor("average", pair))

    def flat_map(self, value):
        count, total = self.sum.value() or (0, 0)
        count, total = count + 1, total + value[1]
        self.sum.update((count, total))
        if count >= 2:
            self.sum.clear()
            yield value[0], total // count


@pytest.mark.parametrize("backend", BACKENDS)
def test_count_average_of_the_specification(backend):
    harness = OneInputHarness(CountAverage(), first, Types.LONG(), state_backend=backend())
    harness.open()

    for value in [(1, 3), (1, 5), (1, 7), (1, 4), (1, 2)]:
        harness.process_element(value)

    assert harness.output() == [(1, 4), (1, 5)]
    assert harness.num_keyed_state_entries("average") == 1
    harness.close()


class Running(MapFunction):
    def open(self, runtime_context):
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def map(self, value):
        total = (self.total.value() or 0) + value[1]
        self.total.update(total)
        return value[0], total


def test_keyed_map_keeps_state_per_key():
    harness = OneInputHarness(Running(), first, Types.STRING())

    for value in [("a", 1), ("b", 10), ("a", 2)]:
        harness.process_element(value, 7)

    assert harness.output_with_timestamps() == [(("a", 1), 7), (("b", 10), 7), (("a", 3), 7)]


class Distinct(FilterFunction):
    def open(self, runtime_context):
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.BOOLEAN()))

    def filter(self, value):
        new = not self.seen.value()
        self.seen.update(True)
        return new


def test_keyed_filter_keeps_state_per_key():
    harness = OneInputHarness(Distinct(), lambda value: value, Types.STRING())

    for value in ["a", "b", "a"]:
        harness.process_element(value, 1)
    harness.process_element("c")

    assert harness.output_with_timestamps() == [("a", 1), ("b", 1), ("c", None)]


class AllKinds(KeyedProcessFunction):
    def open(self, runtime_context):
        context = self.get_runtime_context()
        assert context is runtime_context
        self.values = context.get_list_state(ListStateDescriptor("list", Types.LONG()))
        self.map = context.get_map_state(MapStateDescriptor("map", Types.STRING(), Types.LONG()))
        self.sum = context.get_reducing_state(
            ReducingStateDescriptor("sum", lambda a, b: a + b, Types.LONG())
        )
        self.mean = context.get_aggregating_state(
            AggregatingStateDescriptor("mean", Mean(), Types.TUPLE([Types.LONG(), Types.LONG()]))
        )

    def process_element(self, value, ctx):
        self.values.add(value[1])
        self.map["last"] = value[1]
        self.sum.add(value[1])
        self.mean.add(value[1])
        yield ctx.get_current_key(), list(self.values), self.map["last"], self.sum.get(), self.mean.get()


class Mean:
    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + 1, accumulator[1] + value

    def get_result(self, accumulator):
        return accumulator[1] / accumulator[0]

    def merge(self, a, b):
        return a[0] + b[0], a[1] + b[1]


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_kind_of_state_is_reachable(backend):
    harness = OneInputHarness(AllKinds(), first, Types.STRING(), state_backend=backend())

    for value in [("a", 2), ("b", 9), ("a", 4)]:
        harness.process_element(value)

    assert harness.output() == [
        ("a", [2], 2, 2, 2.0),
        ("b", [9], 9, 9, 9.0),
        ("a", [2, 4], 4, 6, 3.0),
    ]
    harness.close()


class Passing(KeyedProcessFunction):
    def process_element(self, value, ctx):
        return [ctx.get_current_key()]


def test_keys_are_told_apart_by_their_bytes():
    harness = OneInputHarness(Running(), lambda value: value[0])

    for key in [1, True, 1.0, "1", [1], None, 1]:
        harness.process_element((key, 1))

    assert [total for _, total in harness.output()] == [1, 1, 1, 1, 1, 1, 2]


def test_the_current_key_is_the_users_key_whatever_the_token():
    harness = OneInputHarness(Passing(), lambda value: value)

    harness.process_element([1, "x"])
    harness.process_element(None)

    assert harness.output() == [[1, "x"], None]


TAG = OutputTag("odd", Types.LONG())


class Sides(KeyedProcessFunction):
    def process_element(self, value, ctx):
        if value % 2:
            yield TAG, value
        else:
            yield value
            ctx.output(TAG, -value)


def test_side_outputs_by_yield_and_by_context():
    harness = OneInputHarness(Sides(), lambda value: 0, Types.LONG())

    for value in [1, 2, 3]:
        harness.process_element(value, 10 * value)

    assert harness.output_with_timestamps() == [(2, 20)]
    assert harness.side_output(TAG) == [1, -2, 3]
    assert harness.side_output(TAG) == []


class Forms(KeyedProcessFunction):
    def process_element(self, value, ctx):
        return {"none": None, "list": [1, 2], "empty": [], "tuple": (3,), "generator": iter("x")}[value]


def test_none_and_any_iterable_are_results():
    harness = OneInputHarness(Forms(), lambda value: 0, Types.LONG())

    for value in ["none", "list", "empty", "tuple", "generator"]:
        harness.process_element(value)

    assert harness.output() == [1, 2, 3, "x"]


def test_timestamps_follow_the_record_that_caused_the_output():
    harness = OneInputHarness(Forms(), lambda value: 0, Types.LONG())
    operator = harness._operator
    harness.open()
    out = Output()
    out.emit("before", None)

    operator.process(0, Batch(["list", "none", "tuple"], [5, 6, None], [0, 0, 0]), out)
    operator.process(0, Batch(["tuple"], None, [0]), out)

    main, _ = out.drain()
    assert main.values == ["before", 1, 2, 3, 3]
    assert main.timestamps == [None, 5, 5, None, None]


class Growing(KeyedProcessFunction):
    def open(self, runtime_context):
        self.items = runtime_context.get_state(ValueStateDescriptor("items", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value, ctx):
        items = self.items.value() or []
        items.append(value)
        self.items.update(items)
        yield items


def test_emitted_objects_do_not_change_when_state_changes_later_in_the_batch():
    harness = OneInputHarness(Growing(), lambda value: 0, Types.LONG(), state_backend=HashMapStateBackend())
    harness.open()
    out = Output()

    for _ in range(2):
        harness._operator.process(0, Batch(["a", "b"], None, [0, 0]), out)

    assert out.values == [["a"], ["a", "b"], ["a", "b", "a"], ["a", "b", "a", "b"]]


class Misplaced(KeyedProcessFunction):
    def __init__(self, where):
        self.where = where

    def open(self, runtime_context):
        self.state = runtime_context.get_state(ValueStateDescriptor("s", Types.LONG()))
        if self.where == "open":
            self.state.value()

    def process_element(self, value, ctx):
        self.state.update(1)

    def close(self):
        if self.where == "close":
            self.state.value()


@pytest.mark.parametrize("backend", BACKENDS)
def test_keyed_state_without_a_current_key_is_refused(backend):
    with pytest.raises(NoCurrentKeyError):
        OneInputHarness(Misplaced("open"), lambda value: 0, Types.LONG(), state_backend=backend()).open()

    harness = OneInputHarness(Misplaced("close"), lambda value: 0, Types.LONG(), state_backend=backend())
    harness.process_element(1)
    with pytest.raises(NoCurrentKeyError):
        harness.close()


class Unkeyed(ProcessFunction):
    def open(self, runtime_context):
        runtime_context.get_state(ValueStateDescriptor("s", Types.LONG()))

    def process_element(self, value, ctx):
        return None


def test_keyed_state_on_a_stream_without_keys_is_refused():
    with pytest.raises(RuntimeError, match="KeyedStream"):
        OneInputHarness(Unkeyed()).open()


class Twice(KeyedProcessFunction):
    def __init__(self, second):
        self.second = second

    def open(self, runtime_context):
        one = runtime_context.get_state(ValueStateDescriptor("s", Types.LONG()))
        again = runtime_context.get_state(ValueStateDescriptor("s", Types.LONG()))
        assert type(one) is type(again)
        getter = "get_list_state" if isinstance(self.second, ListStateDescriptor) else "get_state"
        getattr(runtime_context, getter)(self.second)

    def process_element(self, value, ctx):
        return None


@pytest.mark.parametrize(
    "second", [ListStateDescriptor("s", Types.LONG()), ValueStateDescriptor("s", Types.STRING())]
)
def test_one_name_for_two_states_is_refused(second):
    with pytest.raises(ValueError, match="'s'"):
        OneInputHarness(Twice(second), lambda value: 0, Types.LONG()).open()


def test_a_getter_takes_only_its_own_kind_of_descriptor():
    class Wrong(KeyedProcessFunction):
        def open(self, runtime_context):
            runtime_context.get_map_state(ValueStateDescriptor("s", Types.LONG()))

        def process_element(self, value, ctx):
            return None

    with pytest.raises(TypeError, match="MapStateDescriptor"):
        OneInputHarness(Wrong(), lambda value: 0, Types.LONG()).open()


class Failing(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield "before"
        raise ZeroDivisionError("user code")


def test_exceptions_of_user_code_pass_through_and_leave_no_current_key():
    harness = OneInputHarness(Failing(), lambda value: 0, Types.LONG())

    with pytest.raises(ZeroDivisionError, match="user code"):
        harness.process_element(1)

    assert harness.output() == ["before"]
    assert repr(harness._operator.backend.context.token) == "NO_KEY"


def test_a_process_operator_without_on_timer_ignores_timers():
    class OnlyElements:
        def process_element(self, value, ctx):
            ctx.timer_service().register_event_time_timer(1)

    harness = OneInputHarness(
        KeyedProcessOperator(OnlyElements(), Types.LONG()), lambda value: 0, Types.LONG()
    )
    harness.process_element(1)
    harness.process_watermark(5)

    assert harness.output() == []
