"""Where operators run, and what the plan knows about the graph."""

from __future__ import annotations

from typing import Any

import pytest

from tidemark import (
    CheckpointedFunction,
    MapFunction,
    MapStateDescriptor,
    ProcessFunction,
    SinkFunction,
    SourceFunction,
    StreamExecutionEnvironment,
    Types,
)
from tidemark.api.graph import NodeKind
from tidemark.plan.job_plan import JobPlan, build_plan, has_life_cycle
from tidemark.plan.vertex import Placement


class Plain(MapFunction):
    def map(self, value: Any) -> Any:
        return value


class Opened(Plain):
    def open(self, runtime_context: Any) -> None:
        self.ready = True


class Inherits(Opened):
    pass


class Checkpointed(Plain, CheckpointedFunction):
    def snapshot_state(self, context: Any) -> None:
        pass

    def initialize_state(self, context: Any) -> None:
        pass


class Once(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value


class Numbers(SourceFunction):
    def run(self, ctx: Any) -> None:
        ctx.collect(1)

    def cancel(self) -> None:
        pass


class Discard(SinkFunction):
    def invoke(self, value: Any, context: Any) -> None:
        pass


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    environment = StreamExecutionEnvironment.get_execution_environment()
    environment.set_parallelism(2)
    return environment


def plan_of(env: StreamExecutionEnvironment) -> JobPlan:
    graph, settings, _caches = env._prepared("job")
    return build_plan(graph, settings, "0" * 32)


def places(plan: JobPlan) -> dict[str, Placement]:
    return {vertex.name: vertex.placement for vertex in plan.vertices.values()}


def test_functions_without_life_cycle_are_fused_into_the_task(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([1]).map(Plain()).name("m").filter(bool).name("f").process(Once()).name("p")
    stream.print().name("s")

    assert set(places(plan_of(env)).values()) == {Placement.TASK}


@pytest.mark.parametrize("function", [Opened(), Inherits(), Checkpointed()])
def test_functions_with_life_cycle_run_in_slots(function: Any, env: StreamExecutionEnvironment) -> None:
    env.from_collection([1]).map(function).name("m").print()

    assert has_life_cycle(function)
    assert places(plan_of(env))["m"] is Placement.SLOT


def test_callables_have_no_life_cycle() -> None:
    assert not has_life_cycle(lambda value: value)
    assert not has_life_cycle(Plain())


def test_keyed_operators_user_sources_and_user_sinks_run_in_slots(env: StreamExecutionEnvironment) -> None:
    numbers = env.add_source(Numbers()).name("numbers")
    numbers.key_by(lambda value: value).map(lambda value: value).name("keyed").add_sink(Discard()).name("end")

    assert set(places(plan_of(env)).values()) == {Placement.SLOT}


@pytest.mark.parametrize("partition", ["broadcast", "partition_custom"])
def test_an_addressed_edge_needs_real_subtasks(partition: str, env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([1])
    arguments = [lambda key, count: 0, lambda value: value] if partition == "partition_custom" else []
    getattr(stream, partition)(*arguments).map(lambda value: value).name("m").print()

    assert places(plan_of(env))["m"] is Placement.SLOT


def test_there_are_as_many_slots_as_the_widest_operator_in_slots_needs(
    env: StreamExecutionEnvironment,
) -> None:
    stream = env.from_collection([1]).map(lambda value: value).set_parallelism(7)
    stream.key_by(lambda value: value).map(lambda value: value).set_parallelism(4).map(Opened()).print()

    assert plan_of(env).slots == 4


def test_a_job_without_slot_operators_has_one_slot(env: StreamExecutionEnvironment) -> None:
    env.from_collection([1]).print()

    assert plan_of(env).slots == 1


def test_the_sources_of_a_vertex_are_all_that_reach_it(env: StreamExecutionEnvironment) -> None:
    left, right = env.from_collection([1]).name("left"), env.from_collection([2]).name("right")
    rules = (
        env.from_collection([3]).name("rules").broadcast(MapStateDescriptor("r", Types.INT(), Types.INT()))
    )
    assert rules is not None
    left.union(right).map(lambda value: value).name("both").print()
    left.map(lambda value: value).name("one").print()

    plan = plan_of(env)
    ids = {vertex.name: vertex.id for vertex in plan.vertices.values()}

    assert plan.sources_of(ids["both"]) == {ids["left"], ids["right"]}
    assert plan.sources_of(ids["one"]) == {ids["left"]}
    assert plan.sources_of(ids["left"]) == {ids["left"]}
    assert {vertex.name for vertex in plan.of_kind(NodeKind.SOURCE)} == {"left", "right"}


def test_a_loop_knows_what_is_fed_back(env: StreamExecutionEnvironment) -> None:
    loop = env.from_collection([1]).map(lambda value: value).iterate()
    body = loop.map(lambda value: value - 1).name("body")
    loop.close_with(body.filter(bool).name("again"))
    body.print()

    plan = plan_of(env)
    ids = {vertex.name: vertex.id for vertex in plan.vertices.values()}

    assert plan.feedback == {ids["Iteration"]: ((ids["again"], None),)}


def test_depth_counts_slot_operators_on_the_longest_way(env: StreamExecutionEnvironment) -> None:
    source = env.add_source(Numbers()).name("source")
    once = source.map(lambda value: value).key_by(lambda value: value).map(lambda value: value)
    twice = once.filter(bool).key_by(lambda value: value).map(lambda value: value)
    twice.union(source.map(Opened())).map(Opened()).name("end").print()

    plan = plan_of(env)
    ids = {vertex.name: vertex.id for vertex in plan.vertices.values()}

    assert plan.depth_below(ids["source"]) == 3
    assert plan.depth_below(ids["end"]) == 0
