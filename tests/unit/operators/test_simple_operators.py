"""Operators without keys, rolling reduce, sinks, queryable state, and how they are made from specs."""

from __future__ import annotations

import pytest

from tidemark.api.functions import (
    AsyncRetryStrategy,
    FilterFunction,
    FlatMapFunction,
    MapFunction,
    ReduceFunction,
    SinkFunction,
)
from tidemark.api.output_tag import OutputTag
from tidemark.api.specs import (
    AsyncWaitSpec,
    BatchSpec,
    BroadcastProcessSpec,
    DeltaSpec,
    FunctionSpec,
    IterationHeadSpec,
    OperatorKind,
    QueryableSpec,
    ReduceSpec,
    TimestampsSpec,
    TransformSpec,
    WindowSpec,
)
from tidemark.api.state_backends import EmbeddedRocksDBStateBackend, HashMapStateBackend
from tidemark.api.watermarks import WatermarkStrategy
from tidemark.api.windows.assigners import TumblingEventTimeWindows
from tidemark.clock import ManualClock
from tidemark.errors import ConfigError
from tidemark.metrics.registry import MetricRegistry
from tidemark.operators.async_wait import AsyncWaitOperator
from tidemark.operators.base import OperatorEnvironment, Output
from tidemark.operators.broadcast import BroadcastOperator, KeyedBroadcastOperator
from tidemark.operators.detach import detached
from tidemark.operators.emission import emit_result, stamps_of
from tidemark.operators.factory import create_operator
from tidemark.operators.function_operator import PassThroughOperator
from tidemark.operators.own import KeyedOwnOperator, OwnOperator
from tidemark.operators.queryable import QueryableStateOperator
from tidemark.operators.reduce import ReduceOperator
from tidemark.operators.sink import SinkOperator
from tidemark.operators.stateless import method_of
from tidemark.operators.supersteps import DeltaOperator, SuperstepHead
from tidemark.operators.timestamps import TimestampsOperator
from tidemark.operators.window import WindowOperator
from tidemark.plan.vertex import SubtaskInfo
from tidemark.protocol.batch import MIN_WATERMARK, Batch
from tidemark.protocol.deployment import BackendChoice
from tidemark.state.backend import BackendParameters
from tidemark.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from tidemark.state.serializers.registry import serializer_for
from tidemark.subtask.backend_factory import create_backend
from tidemark.testing import OneInputHarness
from tidemark.types.row import Row
from tidemark.types.typeinfo import Types


def ready(operator, clock=None, publish=None):
    clock = clock or ManualClock()

    def make(key_serializer):
        return create_backend(BackendChoice("heap"), BackendParameters(key_serializer, 128, (0, 127), clock))

    registry = MetricRegistry(clock)
    operator.setup(OperatorEnvironment(SubtaskInfo("op", "uid"), clock, registry.group("op"), make, publish))
    operator.initialize(None)
    operator.open()
    return operator


def through(operator, *batches):
    out = Output()
    for batch in batches:
        operator.process(0, batch, out)
    main, _ = out.drain()
    return main.values, main.timestamps


class Doubling(MapFunction):
    def map(self, value):
        return value * 2


class Twice(FlatMapFunction):
    def flat_map(self, value):
        return [value] * value if value else None


class Odd(FilterFunction):
    def filter(self, value):
        return value % 2


STATELESS = [
    (OperatorKind.MAP, Doubling(), lambda value: value * 2, [2, 4, 0]),
    (OperatorKind.FLAT_MAP, Twice(), Twice().flat_map, [1, 2, 2]),
    (OperatorKind.FILTER, Odd(), lambda value: value % 2, [1]),
]


@pytest.mark.parametrize(("kind", "function", "callable_", "expected"), STATELESS)
def test_functions_and_callables_do_the_same(kind, function, callable_, expected):
    for user in (function, callable_):
        operator = ready(create_operator(FunctionSpec(kind, user)))

        assert through(operator, Batch([1, 2, 0])) == (expected, None)


@pytest.mark.parametrize(
    ("kind", "stamps"),
    [
        (OperatorKind.MAP, [None, None, None, 5, 6, None]),
        (OperatorKind.FLAT_MAP, [None, None, None, 5, 6, 6]),
        (OperatorKind.FILTER, [None, 5]),
    ],
)
def test_batches_with_and_without_timestamps_mix(kind, stamps):
    function = next(function for known, function, _, _ in STATELESS if known is kind)
    operator = ready(create_operator(FunctionSpec(kind, function)))

    _, timestamps = through(operator, Batch([1, 2, 0]), Batch([1, 2, 0], [5, 6, None]))

    assert timestamps == stamps


def test_map_emits_none():
    assert through(
        ready(create_operator(FunctionSpec(OperatorKind.MAP, lambda value: None))), Batch([1])
    ) == (
        [None],
        None,
    )


def test_the_head_of_an_iteration_passes_records_through():
    operator = ready(create_operator(IterationHeadSpec()))

    assert isinstance(operator, PassThroughOperator)
    assert through(operator, Batch([1]), Batch([2], [9]), Batch([3])) == ([1, 2, 3], [None, 9, None])


def test_timestamps_are_assigned_and_the_newest_is_observed():
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(10).with_timestamp_assigner(
        lambda value, previous: value if previous < 0 else previous
    )
    operator = ready(create_operator(TimestampsSpec(strategy)))
    assert isinstance(operator, TimestampsOperator)

    values, stamps = through(operator, Batch([50, 100]), Batch([1, 2], [70, None]))

    assert (values, stamps) == ([50, 100, 1, 2], [50, 100, 70, 2])
    assert operator.max_timestamp == 100


def test_without_assigner_existing_timestamps_count():
    operator = ready(TimestampsOperator(WatermarkStrategy.for_monotonous_timestamps()))

    assert through(operator, Batch(["a", "b"], [4, None]), Batch(["c"])) == (["a", "b", "c"], [4, None, None])
    assert operator.max_timestamp == 4


class Add(ReduceFunction):
    def reduce(self, value1, value2):
        return value1[0], value1[1] + value2[1]


@pytest.mark.parametrize("backend", [HashMapStateBackend, EmbeddedRocksDBStateBackend])
def test_rolling_reduce_emits_the_running_value(backend):
    harness = OneInputHarness(Add(), lambda value: value[0], Types.STRING(), state_backend=backend())

    for value in [("a", 1), ("b", 5), ("a", 2)]:
        harness.process_element(value, value[1])

    assert harness.output_with_timestamps() == [(("a", 1), 1), (("b", 5), 5), (("a", 3), 2)]
    harness.close()


def test_rolling_reduce_does_not_emit_an_object_it_changes_later():
    def append(left, right):
        left.extend(right)
        return left

    operator = ready(ReduceOperator(append, Types.LONG(), None))

    values, _ = through(operator, Batch([[1], [2], [3]], None, [0, 0, 0]))

    assert values == [[1], [1, 2], [1, 2, 3]]


class OneArgument(SinkFunction):
    def __init__(self):
        self.got = []

    def invoke(self, value):
        self.got.append(value)


class TwoArguments(SinkFunction):
    def __init__(self):
        self.got = []

    def invoke(self, value, context=None):
        self.got.append(
            (value, context.timestamp(), context.current_watermark(), context.current_processing_time())
        )


def test_sinks_take_one_argument_or_two():
    one, two = OneArgument(), TwoArguments()
    plain = []
    for sink in (one, plain.append):
        operator = ready(SinkOperator(sink))
        assert through(operator, Batch([1, 2])) == ([], None)
    operator = ready(create_operator(FunctionSpec(OperatorKind.SINK_FUNCTION, two)), ManualClock(8))
    operator.process(0, Batch(["x"]), Output())
    operator.advance_watermark(3, Output())
    operator.process(0, Batch(["y"], [5]), Output())

    assert one.got == plain == [1, 2]
    assert two.got == [("x", None, MIN_WATERMARK, 8), ("y", 5, 3, 8)]


class Count:
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + 1

    def get_result(self, accumulator):
        return accumulator

    def merge(self, a, b):
        return a + b


@pytest.mark.parametrize(
    ("descriptor", "expected"),
    [
        (ValueStateDescriptor("v", Types.LONG()), 3),
        (ReducingStateDescriptor("r", lambda a, b: a + b, Types.LONG()), 4),
        (AggregatingStateDescriptor("g", Count(), Types.LONG()), 2),
    ],
)
def test_queryable_state_is_published_and_updated(descriptor, expected):
    published = []
    spec = QueryableSpec(descriptor, "q")
    operator = ready(
        create_operator(spec, Types.STRING()),
        publish=lambda state, backend: published.append((state.get_queryable_state_name(), backend)),
    )

    assert through(operator, Batch([1, 3], None, ["a", "a"])) == ([], None)

    ((name, backend),) = published
    assert name == "q"
    assert backend.query(descriptor.name, "a") == (True, expected)


def test_queryable_state_refuses_lists_and_other_names():
    with pytest.raises(TypeError, match="list"):
        QueryableStateOperator(ListStateDescriptor("list", Types.LONG()), "q", None)
    taken = ValueStateDescriptor("v", Types.LONG())
    taken.set_queryable("other")
    with pytest.raises(ConfigError, match="other"):
        QueryableStateOperator(taken, "q", None)


def test_the_factory_knows_every_kind():
    class Anything:
        def __call__(self, *arguments):
            return None

        map1 = map2 = flat_map1 = flat_map2 = process_element = __call__
        process_element1 = process_element2 = process_broadcast_element = __call__

    special = {
        spec.kind: spec
        for spec in (
            TimestampsSpec(WatermarkStrategy.no_watermarks()),
            WindowSpec(TumblingEventTimeWindows.of(1), window_function=Anything(), function_kind="apply"),
            QueryableSpec(ValueStateDescriptor("v", Types.LONG()), "q"),
            ReduceSpec(Anything()),
            IterationHeadSpec(),
            AsyncWaitSpec(Anything(), 0, 1, AsyncRetryStrategy.no_restart(), ordered=True),
            DeltaSpec(Anything(), Types.LONG()),
            BatchSpec(OperatorKind.PROCESS_BATCH, Anything(), Types.LONG(), Types.LONG(), keyed=True),
            BatchSpec(OperatorKind.MAP_BATCH, Anything(), Types.LONG(), Types.LONG()),
            BatchSpec(OperatorKind.FILTER_BATCH, Anything(), Types.LONG(), Types.LONG()),
        )
    }
    for keyed in (False, True):
        special[OperatorKind.BROADCAST_PROCESS] = BroadcastProcessSpec(Anything(), keyed, ())
        special[OperatorKind.TRANSFORM] = TransformSpec(Anything(), keyed)
        made = {
            kind: create_operator(special.get(kind) or FunctionSpec(kind, Anything(), keyed), Types.LONG())
            for kind in OperatorKind
        }
        broadcast = KeyedBroadcastOperator if keyed else BroadcastOperator
        assert isinstance(made[OperatorKind.BROADCAST_PROCESS], broadcast)
        assert isinstance(made[OperatorKind.WINDOW], WindowOperator)
        assert isinstance(made[OperatorKind.REDUCE], ReduceOperator)
        assert isinstance(made[OperatorKind.TRANSFORM], KeyedOwnOperator if keyed else OwnOperator)
        assert isinstance(made[OperatorKind.ASYNC_WAIT], AsyncWaitOperator)
        assert isinstance(made[OperatorKind.DELTA], DeltaOperator)
    assert isinstance(create_operator(IterationHeadSpec(max_iterations=1)), SuperstepHead)


def test_what_is_no_function_is_refused():
    with pytest.raises(TypeError, match="map"):
        method_of(3, "map")
    with pytest.raises(TypeError, match="callable"):
        OneInputHarness(3)
    with pytest.raises(TypeError, match="keyed stream"):
        OneInputHarness(Add())


def test_unknown_stores_are_refused():
    parameters = BackendParameters(serializer_for(Types.LONG()), 128, (0, 127), ManualClock())

    with pytest.raises(ConfigError, match="imported"):
        create_backend(BackendChoice("no.such.module:Class"), parameters)
    with pytest.raises(ConfigError, match="KeyedStateBackend"):
        create_backend(BackendChoice("pathlib:Path"), parameters)
    assert (
        create_backend(BackendChoice("tidemark.backends.heap:HeapKeyedStateBackend"), parameters) is not None
    )


def test_emit_result_routes_tags_and_stamps_every_record():
    tag = OutputTag("t")
    out = Output()
    out.emit("old", None)

    emit_result(["a", (tag, "b"), ("c", "d")], 4, out)
    emit_result(None, 5, out)
    emit_result([], 5, out)

    main, sides = out.drain()
    assert (main.values, main.timestamps) == (["old", "a", ("c", "d")], [None, 4, 4])
    assert (sides["t"].values, sides["t"].timestamps) == (["b"], [4])


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ([], []),
        ([3, 3], []),
        ([4, 5], [10, 20]),
        ([5, 5], [10, 10]),
        ([3, 5], [20, 20]),
        ([5, 6], [10, 10, 20]),
    ],
)
def test_timestamps_from_output_lengths(ends, expected):
    assert list(stamps_of([10, 20][: len(ends)], 3, ends)) == expected


def test_detached_values_share_nothing_changeable():
    class Custom:
        def __init__(self):
            self.items = [1]

    inner = [1]
    row = Row(a=inner)
    custom = Custom()
    value = (inner, {"k": inner}, row, custom, ("atoms", 1))

    copy = detached(value)
    inner.append(2)
    custom.items.append(2)

    assert copy[:3] == ([1], {"k": [1]}, Row(a=[1]))
    assert copy[3].items == [1]
    assert copy[4] is value[4]
