from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass

import pytest

from tidemark import (
    AggregateFunction,
    AggregatingStateDescriptor,
    KeyedProcessFunction,
    KeySelector,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    Row,
    StateTtlConfig,
    Types,
    ValueStateDescriptor,
)
from tidemark.api.graph import Ship
from tidemark.api.specs import OperatorKind
from tidemark.api.stateful_functions import (
    MaxByFunction,
    MaxFunction,
    MinByFunction,
    MinFunction,
    SumFunction,
)
from tidemark.errors import UnsupportedOperationException

PAIR = Types.TUPLE([Types.STRING(), Types.INT()])


class ByFirst(KeySelector):
    def get_key(self, value):
        return value[0]


class Pass(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield value


class Average(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator

    def get_result(self, accumulator):
        return accumulator

    def merge(self, acc_a, acc_b):
        return acc_a


@pytest.fixture
def keyed(env):
    return env.from_collection([("a", 1)], PAIR).key_by(ByFirst(), Types.STRING())


@dataclass
class Point:
    x: int
    y: int


Pair = namedtuple("Pair", ["key", "number"])


def test_keyed_operators_hang_on_hash_edges(env, keyed, last_node):
    for result in (
        keyed.map(str),
        keyed.flat_map(str),
        keyed.filter(bool),
        keyed.process(Pass()),
        keyed.reduce(max),
    ):
        node = last_node(env) if result is None else env._builder.graph.nodes[result._edges[0].source]
        assert node.spec.keyed
        assert node.inputs[0].ship is Ship.HASH
        assert node.inputs[0].key_type == Types.STRING()
    assert keyed.get_key_type() == Types.STRING()
    assert keyed.filter(bool).get_type() == PAIR
    assert keyed.reduce(max).get_type() == PAIR


def test_keying_again_replaces_the_key(env, keyed, last_node):
    keyed.key_by(lambda value: value[1]).map(str)

    edge = last_node(env).inputs[0]
    assert edge.key_selector(("a", 5)) == 5
    assert edge.key_type is None


def test_a_keyed_stream_wants_a_keyed_process_function(keyed):
    with pytest.raises(TypeError, match="KeyedProcessFunction"):
        keyed.process(lambda value: value)
    with pytest.raises(TypeError, match="ReduceFunction"):
        keyed.reduce(5)


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.shuffle(),
        lambda s: s.rebalance(),
        lambda s: s.rescale(),
        lambda s: s.forward(),
        lambda s: s.broadcast(),
        lambda s: s.partition_custom(lambda k, n: 0, lambda v: v),
        lambda s: s.name("x"),
        lambda s: s.get_name(),
        lambda s: s.uid("x"),
        lambda s: s.set_uid_hash("0" * 32),
        lambda s: s.set_parallelism(1),
        lambda s: s.set_max_parallelism(1),
        lambda s: s.force_non_parallel(),
        lambda s: s.cache(),
        lambda s: s.start_new_chain(),
        lambda s: s.disable_chaining(),
        lambda s: s.slot_sharing_group("g"),
        lambda s: s.set_buffer_timeout(1),
    ],
)
def test_partitioning_and_settings_are_fixed(keyed, call):
    with pytest.raises(UnsupportedOperationException, match="KeyedStream"):
        call(keyed)


def test_sinks_and_unions_act_on_the_values(env, keyed, last_node):
    keyed.print()
    assert last_node(env).inputs[0].ship is Ship.FORWARD

    keyed.union(env.from_collection([("b", 1)], PAIR)).map(str)
    assert [edge.ship for edge in last_node(env).inputs] == [Ship.FORWARD, Ship.FORWARD]


@pytest.mark.parametrize("method", ["sum", "min", "max", "min_by", "max_by"])
def test_rolling_aggregates_check_the_position(env, keyed, method):
    call = getattr(keyed, method)

    assert call(1).get_type() == PAIR
    assert call("f1").get_type() == PAIR
    for bad in (1.5, None, True):
        with pytest.raises(TypeError, match=method):
            call(bad)
    with pytest.raises(TypeError, match="no field"):
        call("amount")
    with pytest.raises(ValueError, match="no field"):
        call(2)
    numbers = env.from_collection([1], Types.INT()).key_by(lambda value: value)
    getattr(numbers, method)(0)
    with pytest.raises(TypeError, match="position 0"):
        getattr(numbers, method)(1)
    untyped = env.from_collection([1]).key_by(lambda value: value)
    getattr(untyped, method)(3)


@pytest.mark.parametrize(
    ("function", "first", "second", "expected"),
    [
        (SumFunction(1), ("a", 1), ("b", 2), ("a", 3)),
        (SumFunction("f1"), ("a", 1), ("b", 2), ("a", 3)),
        (SumFunction("number"), Pair("a", 1), Pair("b", 2), Pair("a", 3)),
        (SumFunction(0), 1, 2, 3),
        (SumFunction(1), ["a", 1], ["b", 2], ["a", 3]),
        (SumFunction("n"), {"n": 1}, {"n": 2}, {"n": 3}),
        (SumFunction("y"), Point(1, 2), Point(5, 6), Point(1, 8)),
        (SumFunction(1), Point(1, 2), Point(5, 6), Point(1, 8)),
        (MinFunction("n"), Row(k="a", n=5), Row(k="b", n=2), Row(k="a", n=2)),
        (MaxFunction(1), ("a", 1), ("b", 2), ("a", 2)),
        (MinByFunction(1), ("a", 1), ("b", 1), ("a", 1)),
        (MinByFunction(1), ("a", 2), ("b", 1), ("b", 1)),
        (MaxByFunction(1), ("a", 2), ("b", 2), ("a", 2)),
        (MaxByFunction(1), ("a", 1), ("b", 2), ("b", 2)),
    ],
)
def test_rolling_aggregates_keep_the_right_fields(function, first, second, expected):
    result = function.reduce(first, second)

    assert result == expected
    assert type(result) is type(expected)


def test_rolling_aggregates_do_not_change_their_input():
    row = Row(1, 2)
    SumFunction(1).reduce(row, Row(1, 5))
    assert row == Row(1, 2)


def test_a_plain_value_has_no_other_field():
    with pytest.raises(TypeError, match="position 0"):
        SumFunction(1).reduce(1, 2)
    with pytest.raises(TypeError, match="no field"):
        SumFunction("x").reduce((1, 2), (3, 4))


class FakeValueState:
    def __init__(self):
        self.stored = None

    def value(self):
        return self.stored

    def update(self, value):
        self.stored = value


class FakeRuntimeContext:
    def __init__(self):
        self.state = FakeValueState()

    def get_state(self, descriptor):
        self.descriptor = descriptor
        return self.state


def opened(env):
    nodes = env._builder.graph.nodes
    function, context = nodes[max(nodes)].spec.function, FakeRuntimeContext()
    function.open(context)
    return function, context


def test_map_with_state_keeps_what_the_function_returns_second(env, keyed):
    stream = keyed.map_with_state(lambda v, s: ((v, s), (s or 0) + 1), PAIR, Types.LONG())
    function, context = opened(env)

    assert [function.map("x"), function.map("y")] == [("x", None), ("y", 1)]
    assert context.state.stored == 2
    assert context.descriptor.type_info == Types.LONG()
    assert stream.get_type() == PAIR


def test_flat_map_and_filter_with_state(env, keyed):
    keyed.flat_map_with_state(lambda v, s: ([v, v], None))
    function, context = opened(env)
    assert list(function.flat_map("x")) == ["x", "x"]
    assert context.state.stored is None

    kept = keyed.filter_with_state(lambda v, s: (s is None, True))
    function, _ = opened(env)
    assert [function.filter(1), function.filter(1)] == [True, False]
    assert kept.get_type() == PAIR
    for method in ("map_with_state", "flat_map_with_state", "filter_with_state"):
        with pytest.raises(TypeError, match=method):
            getattr(keyed, method)(5)


def test_queryable_state_counts_as_a_sink(env, keyed, last_node):
    published = keyed.as_queryable_state("newest")

    node = last_node(env)
    assert env._builder.sinks == [node.id]
    assert node.spec.kind is OperatorKind.QUERYABLE
    assert published.get_queryable_state_name() == "newest"
    assert published.get_state_descriptor().type_info == PAIR
    assert published.get_state_descriptor().get_queryable_state_name() == "newest"
    assert not hasattr(published, "map")


def test_queryable_state_takes_descriptors_that_do_not_grow(env, keyed):
    keyed.as_queryable_state("a", ReducingStateDescriptor("r", max, PAIR))
    keyed.as_queryable_state("b", AggregatingStateDescriptor("g", Average(), Types.INT()))
    for bad in (ListStateDescriptor("l", PAIR), MapStateDescriptor("m", PAIR, PAIR)):
        with pytest.raises(TypeError, match="for ever"):
            keyed.as_queryable_state("c", bad)
    expiring = ValueStateDescriptor("v", PAIR)
    expiring.enable_time_to_live(StateTtlConfig.new_builder(5).build())
    with pytest.raises(ValueError, match="time-to-live"):
        keyed.as_queryable_state("d", expiring)


def test_count_windows(env, keyed, last_node):
    keyed.count_window(3).reduce(max)
    assert repr(last_node(env).spec.assigner) == "CountTumblingWindowAssigner(3, 3)"
    keyed.count_window(3, 2).reduce(max)
    assert repr(last_node(env).spec.assigner) == "CountSlidingWindowAssigner(3, 2)"
    with pytest.raises(TypeError, match="WindowAssigner"):
        keyed.window(5)
