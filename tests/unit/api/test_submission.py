from __future__ import annotations

import pytest

from tidemark import (
    CheckpointingMode,
    KeyedProcessFunction,
    MapFunction,
    RuntimeExecutionMode,
    SourceFunction,
    Time,
    TumblingProcessingTimeWindows,
    Types,
)
from tidemark.api.executor import (
    JobSettings,
    executor_for,
    explicit_max_parallelism,
    resolve_max_parallelism,
    resolve_parallelism,
)
from tidemark.api.graph import Ship
from tidemark.api.uids import resolve_uids
from tidemark.config import Configuration
from tidemark.errors import ConfigError, IllegalStateError, UnsupportedOperationException


class Endless(SourceFunction):
    def run(self, ctx):
        pass


class Keep(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield value


class Plus(MapFunction):
    def map(self, value):
        return value


def test_a_uid_used_twice_is_refused(env):
    env.from_collection([1]).map(str).uid("a").map(str).uid("a").print()
    with pytest.raises(ConfigError, match="uid 'a'"):
        env.execute()


def test_without_automatic_uids_everyone_needs_one(env):
    env.get_config().disable_auto_generated_uids()
    env.from_collection([1]).uid("s").print().name("out")
    with pytest.raises(IllegalStateError, match="'out'"):
        env.execute()


def test_a_failed_check_keeps_the_sinks(env):
    sink = env.from_collection([1]).uid("a").print()
    sink.uid("a")
    with pytest.raises(ConfigError):
        env.execute()

    sink.uid("b")
    env.execute()

    assert len(env.executor.submitted) == 1


def test_parallelism_above_the_maximum_is_refused(env):
    env.set_max_parallelism(4)
    env.from_collection([1]).map(str).set_parallelism(5).print()
    with pytest.raises(ValueError, match="max parallelism 4"):
        env.execute()


def test_an_explicit_forward_wants_equal_parallelism(env):
    env.from_collection([1]).forward().map(str).print()
    with pytest.raises(ValueError, match=r"forward\(\)"):
        env.execute()


def test_edges_nobody_partitioned_rebalance_where_the_parallelism_changes(env):
    env.from_collection([1]).map(str).map(str).print().set_parallelism(1)
    env.execute()

    graph, _ = env.executor.submitted[-1]
    assert [node.inputs[0].ship for node in graph.nodes.values() if node.inputs] == [
        Ship.REBALANCE,
        Ship.FORWARD,
        Ship.REBALANCE,
    ]
    assert env._builder.graph.nodes[2].inputs[0].ship is Ship.FORWARD


def test_an_open_loop_is_refused(env):
    env.from_collection([1]).iterate().map(str).print()
    with pytest.raises(IllegalStateError, match="close_with"):
        env.execute()


def looping(env):
    loop = env.from_collection([1], Types.INT()).iterate()
    body = loop.map(Plus(), Types.INT())
    loop.close_with(body.filter(bool))
    body.print()
    return body


def test_a_closed_loop_runs_with_its_feedback(env):
    looping(env)
    env.execute()

    graph, _ = env.executor.submitted[-1]
    assert graph.nodes[2].spec.feedback == [(4, None)]
    assert 4 in graph.nodes


def test_loops_and_checkpoints_exclude_each_other_unless_forced(env):
    env.enable_checkpointing(100)
    looping(env)
    with pytest.raises(UnsupportedOperationException, match="force=True"):
        env.execute()
    assert env.executor.submitted == []

    env.enable_checkpointing(100, CheckpointingMode.EXACTLY_ONCE, force=True)
    env.execute()
    assert len(env.executor.submitted) == 1


def test_a_feedback_whose_parallelism_changed_later_is_refused(env):
    loop = env.from_collection([1], Types.INT()).iterate()
    body = loop.map(Plus(), Types.INT())
    loop.close_with(body)
    body.set_parallelism(5).print()
    with pytest.raises(ValueError, match="same parallelism"):
        env.execute()


def test_loops_do_not_run_in_batch_mode(env):
    looping(env)
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    with pytest.raises(UnsupportedOperationException, match="STREAMING"):
        env.execute()


def test_batch_mode_wants_bounded_sources(env):
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    env.add_source(Endless(), "endless").print()
    with pytest.raises(ValueError, match="'endless' is unbounded"):
        env.execute()


def test_a_queryable_name_is_used_once(env):
    keyed = env.from_collection([1]).key_by(lambda value: value)
    keyed.as_queryable_state("q")
    keyed.as_queryable_state("q")
    with pytest.raises(IllegalStateError, match="'q'"):
        env.execute()


def test_unaligned_checkpoints_want_exactly_once(env):
    env.enable_checkpointing(100, CheckpointingMode.AT_LEAST_ONCE)
    env.get_checkpoint_config().enable_unaligned_checkpoints()
    env.from_collection([1]).print()
    with pytest.raises(ConfigError, match="EXACTLY_ONCE"):
        env.execute()


def test_an_unknown_backend_leaves_execute_unwrapped(new_env):
    env = new_env(state_backend="no.such.Factory")
    env.from_collection([1]).print()
    with pytest.raises(ValueError, match=r"no\.such\.Factory"):
        env.execute()


def test_uids_are_stable_and_depend_on_what_is_upstream(new_env):
    def uids(extra):
        env = new_env()
        stream = env.from_collection([1])
        if extra:
            stream = stream.filter(bool)
        stream.map(str).name("any name" if extra else "other").uid("mine").map(str).print()
        return resolve_uids(env._builder.graph)

    assert uids(False) == uids(False)
    short, long = uids(False), uids(True)
    assert short[2] == long[3] == "mine"
    assert short[1] == long[1]
    assert short[3] == long[4]
    assert len(set(long.values())) == len(long)


def test_equal_siblings_get_different_uids_and_hashes_are_taken_as_they_are(env):
    source = env.from_collection([1])
    source.map(str).print()
    source.map(str).set_uid_hash("ab" * 16).print()
    source.map(str)

    uids = resolve_uids(env._builder.graph)
    assert len(set(uids.values())) == len(uids)
    assert uids[4] == "ab" * 16


def test_parallelism_rules(env):
    settings = JobSettings(parallelism=3)
    env.from_collection([1]).map(str).set_max_parallelism(7)
    source, mapped = env._builder.graph.nodes.values()

    assert resolve_parallelism(source, settings) == 1
    assert resolve_parallelism(mapped, settings) == 3
    assert resolve_max_parallelism(mapped, settings, 3) == 7
    assert resolve_max_parallelism(source, settings, 1) == 128
    assert explicit_max_parallelism(source, settings) is None
    assert explicit_max_parallelism(source, JobSettings(max_parallelism=9)) == 9


def test_executors_are_found_by_name():
    found = executor_for("tests.unit.api.recording_executor:RecordingExecutor")

    assert found.submitted == []
    with pytest.raises(ConfigError, match="Unknown execution target"):
        executor_for("mars")
    with pytest.raises(ConfigError, match="has no Nothing"):
        executor_for("tests.unit.api.recording_executor:Nothing")


def test_options_without_effect_are_said_once_at_submission(env, caplog):
    env.configure(Configuration.from_dict({"pipeline.object-reuse": "true"}))
    env.from_collection([1]).print()

    env.execute()

    said = [r.getMessage() for r in caplog.records if "without effect" in r.getMessage()]
    assert len(said) == 1
    assert "pipeline.object-reuse" in said[0]
    assert "operator-chaining" not in said[0]


def test_nothing_is_said_of_options_that_do_something(env, caplog):
    env.configure(Configuration.from_dict({"queryable-state.proxy.query-threads": "3"}))
    env.from_collection([1]).print()

    env.execute()

    assert not [r for r in caplog.records if "without effect" in r.getMessage()]


def upgrade_warnings(caplog) -> list[str]:
    return [r.getMessage() for r in caplog.records if "before the first snapshot" in r.getMessage()]


def test_what_makes_upgrades_expensive_is_told_in_one_warning(env, caplog):
    env.enable_checkpointing(1000)
    numbers = env.from_collection([1], Types.INT())
    named = numbers.key_by(lambda n: n).process(Keep()).uid("kept").name("kept")
    named.key_by(lambda n: n, Types.INT()).reduce(max).name("largest").print()
    numbers.key_by(lambda n: n).map(lambda n: n).print()
    numbers.window_all(TumblingProcessingTimeWindows.of(Time.seconds(1))).reduce(max).name("all").print()

    env.execute()

    (said,) = upgrade_warnings(caplog)
    assert "No uid: 'largest', 'all'. " in said
    assert "Keys without a type: 'kept' (Keep). " in said


@pytest.mark.parametrize("interval", [None, 1000])
def test_uids_and_key_types_are_not_missed_where_nothing_is_lost(env, caplog, interval):
    numbers = env.from_collection([1], Types.INT())
    if interval is None:
        numbers.key_by(lambda n: n).process(Keep()).print()
    else:
        env.enable_checkpointing(interval)
        numbers.key_by(lambda n: n, Types.INT()).process(Keep()).uid("kept").map(str).print()

    env.execute()

    assert upgrade_warnings(caplog) == []
