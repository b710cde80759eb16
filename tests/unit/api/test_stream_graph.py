from __future__ import annotations

import pytest

from tidemark import (
    KeySelector,
    MapFunction,
    MapStateDescriptor,
    OutputTag,
    Partitioner,
    ProcessFunction,
    SinkFunction,
    SlotSharingGroup,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from tidemark.api.graph import NodeKind, Ship
from tidemark.api.specs import IterationHeadSpec, OperatorKind, SparkWriterSinkSpec
from tidemark.errors import ConfigError, UnsupportedOperationException


class Plus(MapFunction):
    def map(self, value):
        return value + 1


class Pass(ProcessFunction):
    def process_element(self, value, ctx):
        yield value


class Discard(SinkFunction):
    def invoke(self, value, context):
        pass


PAIR = Types.TUPLE([Types.STRING(), Types.INT()])


def test_transformations_add_one_node_each(env):
    source = env.from_collection([1, 2], Types.INT())
    result = source.map(Plus(), Types.LONG()).filter(bool).flat_map(lambda v: [v]).process(Pass())
    nodes = list(env._builder.graph.nodes.values())

    assert [node.kind for node in nodes] == [NodeKind.SOURCE] + [NodeKind.OPERATOR] * 4
    assert [node.spec.kind for node in nodes[1:]] == [
        OperatorKind.MAP,
        OperatorKind.FILTER,
        OperatorKind.FLAT_MAP,
        OperatorKind.PROCESS,
    ]
    assert [edge.source for node in nodes[1:] for edge in node.inputs] == [1, 2, 3, 4]
    assert nodes[2].output_type == Types.LONG()
    assert nodes[1].spec.function.map(1) == 2
    assert result.get_type() == Types.PICKLED_BYTE_ARRAY()
    assert source.get_type() == Types.INT()
    assert result.get_execution_environment() is env


@pytest.mark.parametrize(
    "method", ["map", "flat_map", "filter", "key_by", "process", "add_sink", "sink_to", "connect"]
)
def test_things_that_are_no_functions_are_refused(env, method):
    with pytest.raises(TypeError, match=method):
        getattr(env.from_collection([1]), method)(5)


def test_a_lambda_is_no_process_function(env):
    with pytest.raises(TypeError, match="ProcessFunction"):
        env.from_collection([1]).process(lambda value: value)


def test_output_types_may_be_lists_and_dataclasses_but_not_anything(env):
    stream = env.from_collection([1])

    assert stream.map(str, [Types.INT()]).get_type() == Types.ROW([Types.INT()])
    with pytest.raises(TypeError, match="type"):
        stream.map(str, int)


def test_partitioning_changes_edges_and_adds_no_node(env, last_node):
    stream = env.from_collection([1])
    ships = {}
    for method in ("shuffle", "rebalance", "rescale", "forward", "broadcast"):
        getattr(stream, method)().map(str)
        ships[method] = last_node(env).inputs[0]

    assert {method: edge.ship for method, edge in ships.items()} == {
        "shuffle": Ship.SHUFFLE,
        "rebalance": Ship.REBALANCE,
        "rescale": Ship.RESCALE,
        "forward": Ship.FORWARD,
        "broadcast": Ship.BROADCAST,
    }
    assert [method for method, edge in ships.items() if edge.explicit] == ["forward"]


def test_a_custom_partitioner_may_be_a_class_or_a_callable(env, last_node):
    class Second(Partitioner):
        def partition(self, key, num_partitions):
            return 1

    class Whole(KeySelector):
        def get_key(self, value):
            return value

    stream = env.from_collection([1])
    stream.partition_custom(Second(), Whole()).map(str)
    edge = last_node(env).inputs[0]
    assert edge.ship is Ship.CUSTOM
    assert edge.partitioner(5, 2) == 1
    stream.partition_custom(lambda key, n: 0, lambda value: value).map(str)
    assert last_node(env).inputs[0].partitioner(5, 2) == 0
    with pytest.raises(TypeError, match="Partitioner"):
        stream.partition_custom(1, lambda value: value)
    with pytest.raises(TypeError, match="KeySelector"):
        stream.partition_custom(lambda key, n: 0, 1)


def test_a_union_is_several_edges_also_with_itself(env, last_node):
    one, two = env.from_collection([1], Types.INT()), env.from_collection([2], Types.INT())

    one.union(two, one).map(str)

    assert [(edge.source, edge.input_index) for edge in last_node(env).inputs] == [(1, 0), (2, 0), (1, 0)]


def test_a_union_drops_keys_and_wants_one_type(env, last_node):
    numbers, words = env.from_collection([1], Types.INT()), env.from_collection(["a"], Types.STRING())

    numbers.union(numbers.key_by(lambda v: v)).map(str)

    assert [edge.ship for edge in last_node(env).inputs] == [Ship.FORWARD, Ship.FORWARD]
    with pytest.raises(TypeError, match="one type"):
        numbers.union(words)
    with pytest.raises(ValueError, match="different environments"):
        numbers.union(
            StreamExecutionEnvironment.get_execution_environment().from_collection([2], Types.INT())
        )
    with pytest.raises(TypeError, match="DataStream"):
        numbers.union([1])


def test_project_keeps_fields_of_tuples(env, last_node):
    stream = env.from_collection([("a", 1)], PAIR)

    assert stream.project(1).get_type() == Types.TUPLE([Types.INT()])
    assert stream.key_by(lambda v: v[0]).project(1, 0).get_type() == Types.TUPLE(
        [Types.INT(), Types.STRING()]
    )
    assert last_node(env).spec.function.map(("a", 1)) == (1, "a")
    with pytest.raises(TypeError, match="TUPLE"):
        env.from_collection([1]).project(0)
    with pytest.raises(ConfigError, match="outside"):
        stream.project(2)
    with pytest.raises(ConfigError, match="at least one"):
        stream.project()
    with pytest.raises(TypeError, match="int"):
        stream.project("f0")


def test_side_outputs_are_tagged_edges_of_the_operator(env, last_node):
    operator = env.from_collection([1]).process(Pass())

    late = operator.get_side_output(OutputTag("late", Types.INT()))
    operator.get_side_output(OutputTag("other"))
    late.map(str)

    assert env._builder.graph.nodes[2].side_types == {"late": Types.INT(), "other": None}
    assert last_node(env).inputs[0].tag == "late"
    assert late.get_type() == Types.INT()
    with pytest.raises(ConfigError, match="already read"):
        operator.get_side_output(OutputTag("late", Types.STRING()))
    with pytest.raises(TypeError, match="OutputTag"):
        operator.get_side_output("late")
    with pytest.raises(UnsupportedOperationException, match="get_side_output"):
        late.get_side_output(OutputTag("x"))


def test_output_tags_are_identified_by_their_id():
    assert OutputTag("a", Types.INT()) == OutputTag("a")
    assert OutputTag("a") != OutputTag("b")
    assert len({OutputTag("a"), OutputTag("a", [Types.INT()])}) == 1
    assert OutputTag("a", [Types.INT()]).type_info == Types.ROW([Types.INT()])
    for bad in ("", None):
        with pytest.raises(ValueError, match="tag_id"):
            OutputTag(bad)
    with pytest.raises(TypeError, match="str"):
        OutputTag(5)


def test_settings_of_operators(env):
    stream = env.from_collection([1]).map(str)

    same = (
        stream.name("words")
        .uid("w")
        .set_uid_hash("0123456789abcdef0123456789ABCDEF")
        .set_parallelism(3)
        .set_max_parallelism(64)
        .set_description("to words")
        .start_new_chain()
        .disable_chaining()
        .slot_sharing_group(SlotSharingGroup.builder("g").build())
        .set_buffer_timeout(5)
    )

    node = env._builder.graph.nodes[2]
    assert same is stream
    assert (node.name, node.uid, node.parallelism, node.max_parallelism) == ("words", "w", 3, 64)
    assert node.uid_hash == "0123456789abcdef0123456789abcdef"
    assert node.description == "to words"
    assert stream.get_name() == "words"


@pytest.mark.parametrize("parallelism", [0, -1, 32769])
def test_parallelism_has_limits(env, parallelism):
    stream = env.from_collection([1]).map(str)
    with pytest.raises(ValueError, match="parallelism"):
        stream.set_parallelism(parallelism)
    with pytest.raises(ValueError, match="parallelism"):
        stream.set_max_parallelism(parallelism)


def test_a_collection_and_a_forced_operator_run_in_one_subtask(env):
    source = env.from_collection([1])
    forced = source.map(str).force_non_parallel()

    for stream in (source, forced):
        with pytest.raises(ValueError, match="one subtask"):
            stream.set_parallelism(2)
        assert stream.set_parallelism(1) is stream


def test_bad_settings_are_refused(env):
    stream = env.from_collection([1]).map(str)
    with pytest.raises(ValueError, match="uid"):
        stream.uid("")
    with pytest.raises(ValueError, match="hex"):
        stream.set_uid_hash("xyz")
    with pytest.raises(ValueError, match="timeout"):
        stream.set_buffer_timeout(-2)
    with pytest.raises(ValueError, match="negative"):
        stream.iterate(-1)


@pytest.mark.parametrize("method", ["name", "uid", "set_description"])
def test_a_union_has_no_settings(env, method):
    stream = env.from_collection([1])
    with pytest.raises(UnsupportedOperationException, match=method):
        getattr(stream.union(stream), method)("x")


def test_timestamps_are_an_operator(env, last_node):
    strategy = WatermarkStrategy.for_monotonous_timestamps()

    stream = env.from_collection([1], Types.INT()).assign_timestamps_and_watermarks(strategy)

    assert last_node(env).spec.strategy is strategy
    assert stream.get_type() == Types.INT()
    with pytest.raises(TypeError, match="WatermarkStrategy"):
        stream.assign_timestamps_and_watermarks(5)


def test_broadcast_with_descriptors_wants_map_descriptors(env):
    stream = env.from_collection([1])
    rules = MapStateDescriptor("rules", Types.STRING(), Types.INT())

    broadcast = stream.broadcast(rules)

    assert broadcast.broadcast_state_descriptors == [rules]
    assert broadcast.get_execution_environment() is env
    assert not hasattr(broadcast, "map")
    with pytest.raises(TypeError, match="MapStateDescriptor"):
        stream.broadcast(ValueStateDescriptor("v", Types.INT()))
    with pytest.raises(TypeError, match="MapStateDescriptor"):
        stream.broadcast(rules, ValueStateDescriptor("v", Types.INT()))
    with pytest.raises(ValueError, match="different names"):
        stream.broadcast(rules, MapStateDescriptor("rules", Types.INT(), Types.INT()))


def test_all_windows_run_in_one_subtask_under_one_key(env, last_node):
    env.from_collection([1], Types.INT()).window_all(TumblingEventTimeWindows.of(5)).reduce(max)

    node = last_node(env)
    assert node.forced_non_parallel
    assert node.spec.all_windows
    assert node.inputs[0].ship is Ship.HASH
    assert node.inputs[0].key_selector.get_key("anything") == 0
    assert node.output_type == Types.INT()


def test_sinks_are_remembered_until_they_run(env):
    stream = env.from_collection([1])

    stream.print("id").name("out").uid("p").set_parallelism(1)
    stream.add_sink(Discard())
    stream.foreach_batch(lambda frame, epoch: None)
    stream.write_spark("parquet", "/tmp/x", compression="zstd")

    specs = [env._builder.graph.nodes[at].spec for at in env._builder.sinks]
    assert [spec.kind for spec in specs] == ["print", "function", "foreach_batch", "spark_writer"]
    assert specs[0].identifier == "id"
    assert specs[3] == SparkWriterSinkSpec("parquet", {"compression": "zstd"}, "/tmp/x")
    assert specs[3].guarantee == "at-least-once"
    with pytest.raises(TypeError, match="callable"):
        stream.foreach_batch(5)
    with pytest.raises(ValueError, match="format"):
        stream.write_spark("")


def test_iterations_collect_their_feedback(env):
    loop = env.from_collection([1], Types.INT()).iterate(50)
    body = loop.map(str, Types.INT())

    closed = loop.close_with(body.filter(bool))

    head = env._builder.graph.nodes[2]
    assert closed is not None
    assert head.spec == IterationHeadSpec(50, [(4, None)])


def test_a_loop_closes_only_with_its_own_elements(env):
    stream = env.from_collection([1], Types.INT())
    loop = stream.iterate()
    with pytest.raises(UnsupportedOperationException, match="comes out of the loop"):
        loop.close_with(stream.map(str))
    with pytest.raises(TypeError, match="String"):
        loop.close_with(loop.map(str, Types.STRING()))
    with pytest.raises(ValueError, match="same parallelism"):
        loop.close_with(loop.map(str).set_parallelism(5))
    with pytest.raises(TypeError, match="DataStream"):
        loop.close_with([1])


def test_a_loop_is_not_closed_with_the_like_of_another_environment(env):
    other = StreamExecutionEnvironment.get_execution_environment()
    loop, twin = (each.from_collection([1], Types.INT()).iterate() for each in (env, other))
    body, stranger = loop.map(abs, Types.INT()), twin.map(abs, Types.INT())

    with pytest.raises(UnsupportedOperationException, match="comes out of the loop"):
        loop.close_with(stranger)
    loop.close_with(body)


def test_a_stream_says_what_it_is(env):
    numbers = env.from_collection([1, 2], Types.LONG())
    named = numbers.map(Plus(), Types.LONG()).name("plus").uid("p")

    assert repr(named) == "<DataStream of 'plus', Long, uid='p'>"
    assert repr(named.key_by(lambda value: value)) == "<KeyedStream of 'plus', Long>"
    assert "plus" in repr(numbers.union(named))
