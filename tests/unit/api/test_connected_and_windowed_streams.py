from __future__ import annotations

import pytest

from tidemark import (
    AggregateFunction,
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    MapStateDescriptor,
    NeverTrigger,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    Row,
    StateTtlConfig,
    Time,
    TumblingEventTimeWindows,
    Types,
    WindowFunction,
    avg,
    count,
    field,
    max_,
    min_,
    sum_,
)
from tidemark.api.graph import Ship
from tidemark.api.specs import OperatorKind
from tidemark.errors import ConfigError

RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())


class Both(CoMapFunction):
    def map1(self, value):
        return value

    def map2(self, value):
        return value


class BothFlat(CoFlatMapFunction):
    def flat_map1(self, value):
        return [value]

    def flat_map2(self, value):
        return [value]


class Co(CoProcessFunction):
    def process_element1(self, value, ctx):
        yield value

    process_element2 = process_element1


class KeyedCo(KeyedCoProcessFunction):
    def process_element1(self, value, ctx):
        yield value

    process_element2 = process_element1


class Rules(BroadcastProcessFunction):
    def process_element(self, value, ctx):
        yield value

    process_broadcast_element = process_element


class KeyedRules(KeyedBroadcastProcessFunction):
    def process_element(self, value, ctx):
        yield value

    process_broadcast_element = process_element


class Whole(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key


class WholeApply(WindowFunction):
    def apply(self, key, window, inputs):
        yield key


class WholeAll(ProcessAllWindowFunction):
    def process(self, context, elements):
        yield 1


class Count(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + 1

    def get_result(self, accumulator):
        return accumulator

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b


@pytest.fixture
def two(env):
    return env.from_collection([1], Types.INT()), env.from_collection(["a"], Types.STRING())


def first(value):
    return value


def test_connected_streams_have_two_inputs(env, two, last_node):
    connected = two[0].connect(two[1].union(two[1]))

    assert connected.map(Both(), Types.INT()).get_type() == Types.INT()
    node = last_node(env)
    assert node.spec.kind is OperatorKind.CO_MAP
    assert not node.spec.keyed
    assert [(edge.source, edge.input_index) for edge in node.inputs] == [(1, 0), (2, 1), (2, 1)]
    connected.flat_map(BothFlat())
    assert last_node(env).spec.kind is OperatorKind.CO_FLAT_MAP
    connected.process(Co())
    assert last_node(env).spec.kind is OperatorKind.CO_PROCESS


def test_connected_streams_are_keyed_only_if_both_are(env, two, last_node):
    one, other = two
    one.key_by(first).connect(other).process(Co())
    assert [edge.ship for edge in last_node(env).inputs] == [Ship.FORWARD, Ship.FORWARD]

    one.connect(other).key_by(first, first, Types.STRING()).process(KeyedCo())
    node = last_node(env)
    assert node.spec.keyed
    assert [edge.ship for edge in node.inputs] == [Ship.HASH, Ship.HASH]
    assert {edge.key_type for edge in node.inputs} == {Types.STRING()}

    one.key_by(first).connect(other.key_by(first)).process(Co())
    assert last_node(env).spec.keyed


def test_wrong_functions_on_connected_streams_are_refused(env, two):
    one, other = two
    connected = one.connect(other)
    for method, name in (
        ("map", "CoMapFunction"),
        ("flat_map", "CoFlatMapFunction"),
        ("process", "CoProcessFunction"),
    ):
        with pytest.raises(TypeError, match=name):
            getattr(connected, method)(first)
    with pytest.raises(TypeError, match="key_by"):
        connected.process(KeyedCo())
    with pytest.raises(TypeError, match="KeySelector"):
        connected.key_by(1, first)
    with pytest.raises(TypeError, match="one type"):
        one.key_by(first, Types.INT()).connect(other.key_by(first, Types.STRING())).process(KeyedCo())


def test_streams_of_two_environments_do_not_connect(new_env):
    one, other = new_env().from_collection([1]), new_env().from_collection([1])
    with pytest.raises(ValueError, match="different environments"):
        one.connect(other)
    with pytest.raises(ValueError, match="different environments"):
        one.connect(other.broadcast(RULES))


def test_broadcast_process_has_the_data_on_input_0(env, two, last_node):
    data, rules = two
    data.key_by(first).connect(rules.broadcast(RULES)).process(KeyedRules())

    node = last_node(env)
    assert [(edge.input_index, edge.ship) for edge in node.inputs] == [(0, Ship.HASH), (1, Ship.BROADCAST)]
    assert node.spec.descriptors == (RULES,)
    assert node.spec.keyed


def test_broadcast_functions_must_fit_the_data_side(env, two):
    data, rules = two
    broadcast = rules.broadcast(RULES)
    data.connect(broadcast).process(Rules())
    with pytest.raises(TypeError, match="KeyedBroadcastProcessFunction"):
        data.key_by(first).connect(broadcast).process(Rules())
    with pytest.raises(TypeError, match="BroadcastProcessFunction"):
        data.connect(broadcast).process(KeyedRules())


def test_broadcast_state_cannot_expire(env, two):
    expiring = MapStateDescriptor("rules", Types.STRING(), Types.INT())
    expiring.enable_time_to_live(StateTtlConfig.new_builder(5).build())
    with pytest.raises(ValueError, match="time-to-live"):
        two[0].broadcast(expiring)


@pytest.fixture
def windowed(env):
    return (
        env.from_collection([1], Types.INT())
        .key_by(first, Types.INT())
        .window(TumblingEventTimeWindows.of(5))
    )


def test_windows_carry_all_their_settings(env, windowed, last_node):
    late = OutputTag("late")
    trigger = CountTrigger.of(2)

    windowed.trigger(trigger).allowed_lateness(Time.seconds(1)).side_output_late_data(late).aggregate(
        Count(), Whole(), Types.LONG(), Types.STRING()
    )

    node = last_node(env)
    assert node.spec.kind is OperatorKind.WINDOW
    assert node.spec.keyed
    assert node.spec.trigger is trigger
    assert node.spec.allowed_lateness == 1000
    assert node.spec.late_tag is late
    assert node.spec.accumulator_type == Types.LONG()
    assert node.spec.function_kind == "process"
    assert not node.spec.all_windows
    assert node.side_types == {"late": Types.INT()}
    assert node.output_type == Types.STRING()


def test_aggregations_by_column_say_what_they_give(env, windowed):
    rows = Types.ROW_NAMED(["user", "cents", "note"], [Types.STRING(), Types.INT(), Types.STRING()])
    stream = env.from_collection([Row(user="a", cents=1, note=None)], rows)
    windows = TumblingEventTimeWindows.of(5)
    by_user = stream.key_by(field("user"), Types.STRING()).window(windows)

    result = by_user.aggregate(
        total=sum_("cents"), most=max_("cents"), mean=avg(1), n=count("note")
    ).get_type()
    assert result == Types.ROW_NAMED(
        ["user", "window_start", "window_end", "total", "most", "mean", "n"],
        [Types.STRING(), *[Types.LONG()] * 3, Types.INT(), Types.DOUBLE(), Types.LONG()],
    )
    assert windowed.aggregate(least=min_()).get_type().get_field_names() == [
        "key",
        "window_start",
        "window_end",
        "least",
    ]
    assert stream.window_all(windows).aggregate(n=count()).get_type() == Types.ROW_NAMED(
        ["window_start", "window_end", "n"], [Types.LONG()] * 3
    )


def test_aggregations_that_cannot_be_are_refused(env, windowed):
    pairs = env.from_collection([("a", 1)], Types.TUPLE([Types.STRING(), Types.INT()]))
    of_pairs = pairs.key_by(first, Types.STRING()).window(TumblingEventTimeWindows.of(5))
    with pytest.raises(ConfigError, match="column of numbers"):
        of_pairs.aggregate(total=sum_(0))
    with pytest.raises(ConfigError, match="it has f0, f1"):
        of_pairs.aggregate(total=sum_("cents"))
    with pytest.raises(ConfigError, match="which column"):
        of_pairs.aggregate(total=sum_())
    with pytest.raises(ConfigError, match="have no columns"):
        windowed.aggregate(total=sum_("cents"))
    with pytest.raises(ConfigError, match="two have one name"):
        of_pairs.aggregate(window_end=count())
    with pytest.raises(ConfigError, match="start and an end"):
        pairs.key_by(first).count_window(3).aggregate(n=count())
    with pytest.raises(ConfigError, match="declared type"):
        env.from_collection([1]).key_by(first).window(TumblingEventTimeWindows.of(5)).aggregate(n=count())
    with pytest.raises(TypeError, match="not both"):
        windowed.aggregate(Count(), n=count())
    with pytest.raises(TypeError, match="sum_"):
        windowed.aggregate(n=3)
    with pytest.raises(TypeError, match="position"):
        sum_(1.5)


def test_reduce_keeps_the_type_unless_a_window_function_follows(env, windowed, last_node):
    assert windowed.reduce(max).get_type() == Types.INT()
    assert windowed.reduce(max, WholeApply()).get_type() == Types.PICKLED_BYTE_ARRAY()
    assert last_node(env).spec.function_kind == "apply"
    assert windowed.apply(WholeApply(), Types.INT()).get_type() == Types.INT()
    assert windowed.process(Whole()).get_name() == "TumblingEventTimeWindows"
    assert windowed.get_input_type() == Types.INT()
    assert windowed.get_execution_environment() is env


def test_wrong_functions_on_windows_are_refused(env, windowed):
    with pytest.raises(TypeError, match="ReduceFunction"):
        windowed.reduce(1)
    with pytest.raises(TypeError, match="AggregateFunction"):
        windowed.aggregate(max)
    with pytest.raises(TypeError, match="WindowFunction"):
        windowed.apply(Whole())
    with pytest.raises(TypeError, match="ProcessWindowFunction"):
        windowed.process(WholeApply())
    with pytest.raises(TypeError, match="window_function"):
        windowed.reduce(max, first)
    with pytest.raises(TypeError, match="Trigger"):
        windowed.trigger(1)
    with pytest.raises(TypeError, match="OutputTag"):
        windowed.side_output_late_data("late")
    with pytest.raises(ValueError, match="negative"):
        windowed.allowed_lateness(-1)
    every = env.from_collection([1]).window_all(TumblingEventTimeWindows.of(5))
    every.process(WholeAll())
    with pytest.raises(TypeError, match="ProcessAllWindowFunction"):
        every.process(Whole())


def test_an_assigner_with_pyflinks_signature_gives_the_trigger(env, last_node):
    class Mine(TumblingEventTimeWindows):
        def get_default_trigger(self, env):
            return CountTrigger.of(3)

    env.from_collection([1]).key_by(first).window(Mine(5, 0)).reduce(max)

    assert isinstance(last_node(env).spec.trigger, CountTrigger)


def test_merging_windows_want_a_trigger_that_can_merge(env):
    keyed = env.from_collection([1]).key_by(first)
    with pytest.raises(TypeError, match="merging"):
        keyed.window(EventTimeSessionWindows.with_gap(5)).trigger(NeverTrigger())
    keyed.window(GlobalWindows.create()).trigger(NeverTrigger())
