from __future__ import annotations

import json

import pytest

from tidemark import (
    CheckpointingMode,
    CheckpointListener,
    Configuration,
    FileSource,
    FsStateBackend,
    HashMapStateBackend,
    MemoryStateBackend,
    NumberSequenceSource,
    ParallelSourceFunction,
    RestartStrategies,
    RuntimeExecutionMode,
    SourceFunction,
    StreamExecutionEnvironment,
    StreamFormat,
    Types,
    WatermarkStrategy,
)
from tidemark.api.checkpoint_storage import FileSystemCheckpointStorage, JobManagerCheckpointStorage
from tidemark.config.restart import ExponentialDelayRestart, NoRestart
from tidemark.errors import ConfigError, IllegalStateError, UnsupportedOperationException


class Numbers(SourceFunction):
    def run(self, ctx):
        ctx.collect(1)


class ManyNumbers(ParallelSourceFunction):
    def run(self, ctx):
        ctx.collect(1)


def submitted(env):
    return env.executor.submitted[-1]


def test_setters_chain_and_are_read_back(env):
    same = (
        env.set_parallelism(3)
        .set_max_parallelism(64)
        .set_runtime_mode(RuntimeExecutionMode.AUTOMATIC)
        .enable_checkpointing(1000, CheckpointingMode.AT_LEAST_ONCE, force=True)
        .set_state_backend(HashMapStateBackend())
        .set_restart_strategy(RestartStrategies.no_restart())
        .set_default_savepoint_directory("/sp")
        .set_buffer_timeout(5)
        .disable_operator_chaining()
        .enable_changelog_state_backend(True)
    )

    assert same is env
    assert env.get_parallelism() == env.get_config().get_parallelism() == 3
    assert env.get_max_parallelism() == 64
    assert env.get_checkpoint_interval() == 1000
    assert env.get_checkpointing_mode() is CheckpointingMode.AT_LEAST_ONCE
    assert env.get_checkpointing_consistency_mode() is CheckpointingMode.AT_LEAST_ONCE
    assert env.get_checkpoint_config() is env.get_checkpoint_config()
    assert env.get_checkpoint_config().is_force_checkpointing()
    assert env.get_state_backend() == HashMapStateBackend()
    assert env.get_restart_strategy() == RestartStrategies.no_restart()
    assert env.get_default_savepoint_directory() == "/sp"
    assert env.get_buffer_timeout() == 5
    assert not env.is_chaining_enabled()
    assert env.is_changelog_state_backend_enabled()


def test_defaults():
    env = StreamExecutionEnvironment.get_execution_environment()

    assert env.get_max_parallelism() == -1
    assert env.get_checkpoint_interval() == -1
    assert env.get_buffer_timeout() == 100
    assert env.is_chaining_enabled()
    assert isinstance(env.get_state_backend(), MemoryStateBackend)
    assert env.get_default_savepoint_directory() is None
    assert env.get_restart_strategy() == RestartStrategies.fall_back_restart()
    assert env.get_parallelism() >= 1


@pytest.mark.parametrize("value", [0, 32769])
def test_bad_parallelism_is_refused(env, value):
    with pytest.raises(ValueError, match="parallelism"):
        env.set_parallelism(value)
    with pytest.raises(ValueError, match="parallelism"):
        env.set_max_parallelism(value)


def test_bad_settings_are_refused(env):
    with pytest.raises(ValueError, match="10 ms"):
        env.enable_checkpointing(9)
    with pytest.raises(TypeError, match="StateBackend"):
        env.set_state_backend("rocksdb")
    with pytest.raises(TypeError, match="RestartStrategies"):
        env.set_restart_strategy("none")
    with pytest.raises(ValueError, match="empty"):
        env.set_default_savepoint_directory("")
    with pytest.raises(TypeError, match="RuntimeExecutionMode"):
        env.set_runtime_mode("BATCH")
    with pytest.raises(ValueError, match="timeout"):
        env.set_buffer_timeout(-5)
    with pytest.raises(UnsupportedOperationException, match="from_source"):
        env.create_input("java")


def test_configuration_shows_what_is_in_force(new_env):
    env = new_env(state_checkpoints_dir="/c")
    env.set_parallelism(7).enable_checkpointing(500)

    effective = env.get_configuration()

    assert effective.get_integer("parallelism.default", 0) == 7
    assert effective.get_string("execution.checkpointing.interval", "") == "500"
    assert effective.get_string("execution.checkpointing.dir", "") == "/c"
    assert effective.get_string("execution.target", "") == "recording"
    assert effective.get_integer("akka.framesize", 0) == 10485760


def test_configuration_shows_backend_and_strategy_of_the_program(env):
    env.set_state_backend(FsStateBackend("/c"))
    env.set_restart_strategy(RestartStrategies.failure_rate_restart(3, 1000, 10))
    effective = env.get_configuration()
    assert effective.get_string("state.backend", "") == "filesystem"
    assert effective.get_string("restart-strategy.type", "") == "failure-rate"
    assert effective.get_integer("restart-strategy.failure-rate.max-failures-per-interval", 0) == 3

    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(4, 10))
    assert env.get_configuration().get_integer("restart-strategy.fixed-delay.attempts", 0) == 4

    env.set_restart_strategy(RestartStrategies.no_restart())
    assert env.get_configuration().get_string("restart-strategy", "") == "none"


def test_configure_applies_only_what_is_there(env):
    env.set_parallelism(3).set_state_backend(HashMapStateBackend())

    env.configure(
        Configuration.from_dict(
            {"execution.checkpointing.interval": "2 s", "state.savepoints.dir": "/s", "my.key": "1"}
        )
    )

    assert env.get_parallelism() == 3
    assert env.get_checkpoint_interval() == 2000
    assert env.get_default_savepoint_directory() == "/s"
    assert env.get_state_backend() == HashMapStateBackend()
    assert env.get_configuration().get_string("my.key", "") == "1"
    env.configure(Configuration.from_dict({"state.backend": "jobmanager", "restart-strategy": "none"}))
    assert env.get_state_backend() == MemoryStateBackend()


def test_configure_refuses_bad_values_as_a_whole(env):
    with pytest.raises(ConfigError, match="parallelism"):
        env.configure(Configuration.from_dict({"state.savepoints.dir": "/s", "parallelism.default": "many"}))
    assert env.get_default_savepoint_directory() is None


def test_a_collection_keeps_its_order_in_one_subtask(env):
    stream = env.from_collection((n for n in (3, 1)), Types.INT())

    node = env._builder.graph.nodes[1]
    assert node.spec.elements == [3, 1]
    assert node.spec.bounded
    assert node.parallelism == 1
    assert stream.get_type() == Types.INT()


def test_built_in_sources_carry_their_strategy_and_type(env):
    strategy = WatermarkStrategy.no_watermarks()
    files = FileSource.for_record_stream_format(StreamFormat.text_line_format(), "/a").build()

    numbers = env.from_source(NumberSequenceSource(1, 5), strategy, "numbers")
    lines = env.from_source(files, strategy, "lines", Types.PICKLED_BYTE_ARRAY())

    nodes = env._builder.graph.nodes
    assert (nodes[1].spec.start, nodes[1].spec.end) == (1, 5)
    assert nodes[1].spec.strategy is strategy
    assert nodes[1].parallelism is None
    assert numbers.get_type() == Types.LONG()
    assert numbers.get_name() == "numbers"
    assert lines.get_type() == Types.PICKLED_BYTE_ARRAY()
    with pytest.raises(TypeError, match="Source"):
        env.from_source(5, strategy, "x")
    with pytest.raises(TypeError, match="WatermarkStrategy"):
        env.from_source(NumberSequenceSource(1, 5), None, "x")


def test_only_a_parallel_source_function_runs_in_parallel(env):
    single, parallel = env.add_source(Numbers()), env.add_source(ManyNumbers(), "many", Types.INT())

    with pytest.raises(ValueError, match="ParallelSourceFunction"):
        single.set_parallelism(2)
    parallel.set_parallelism(4)
    nodes = env._builder.graph.nodes
    assert [nodes[1].parallelism, nodes[2].parallelism] == [1, 4]
    assert not nodes[1].spec.bounded
    assert single.get_name() == "Custom Source"
    with pytest.raises(TypeError, match="SourceFunction"):
        env.add_source(iter([1]))


class FakeType:
    def __init__(self, name, **parts):
        self.name = name
        self.__dict__.update(parts)

    def typeName(self):
        return self.name


class FakeField:
    def __init__(self, name, data_type):
        self.name = name
        self.dataType = data_type


class FakeFrame:
    def __init__(self, streaming, **columns):
        self.isStreaming = streaming
        self.schema = FakeType("struct", fields=[FakeField(n, t) for n, t in columns.items()])


def test_a_data_frame_becomes_a_stream_of_named_rows(env):
    inner = FakeType("struct", fields=[FakeField("x", FakeType("double"))])
    frame = FakeFrame(
        True,
        id=FakeType("long"),
        tags=FakeType("array", elementType=FakeType("string")),
        counts=FakeType("map", keyType=FakeType("string"), valueType=FakeType("integer")),
        raw=FakeType("binary"),
        at=inner,
        odd=FakeType("interval"),
    )

    stream = env.from_spark_stream(frame)

    assert stream.get_type() == Types.ROW_NAMED(
        ["id", "tags", "counts", "raw", "at", "odd"],
        [
            Types.LONG(),
            Types.LIST(Types.STRING()),
            Types.MAP(Types.STRING(), Types.INT()),
            Types.PRIMITIVE_ARRAY(Types.BYTE()),
            Types.ROW_NAMED(["x"], [Types.DOUBLE()]),
            Types.PICKLED_BYTE_ARRAY(),
        ],
    )
    nodes = env._builder.graph.nodes
    assert (nodes[1].spec.kind, nodes[1].spec.bounded) == ("spark_stream", False)
    env.from_spark_stream(FakeFrame(False, id=FakeType("long")), Types.PICKLED_BYTE_ARRAY())
    assert (nodes[2].spec.kind, nodes[2].spec.bounded) == ("spark_batch", True)
    with pytest.raises(TypeError, match="DataFrame"):
        env.from_spark_stream([1])


def test_execute_runs_the_sinks_added_since_the_last_time(env):
    stream = env.from_collection([1])
    other = env.from_collection([2])
    stream.print()

    result = env.execute("first")
    graph, settings = submitted(env)
    assert set(graph.nodes) == {1, 3}
    assert settings.job_name == "first"
    assert result.get_net_runtime() == 5

    other.print()
    env.execute_async()
    graph, settings = submitted(env)
    assert set(graph.nodes) == {2, 4}
    assert settings.job_name == "Flink Streaming Job"


def test_nothing_to_execute_is_an_error(env):
    env.from_collection([1]).map(str)
    with pytest.raises(IllegalStateError, match="sink"):
        env.execute()
    assert env.executor.submitted == []


def test_settings_are_resolved_before_submission(new_env, tmp_path):
    env = new_env(state_checkpoints_dir=str(tmp_path), state_savepoints_dir="/conf")
    env.set_state_backend(FsStateBackend()).enable_checkpointing(100).set_max_parallelism(16)
    env.get_config().set_global_job_parameters({"a": 1}).set_use_snapshot_compression(True)
    env.get_checkpoint_config().set_min_pause_between_checkpoints(500).set_max_concurrent_checkpoints(1)
    env.add_python_file("/f.py")
    env.add_python_archive("/a.zip", "target")
    env.set_python_requirements("/r.txt")
    env.set_python_executable("/py")
    env.register_cached_file("/c", "c", True)
    env.from_collection([1]).print()
    env.execute()

    _, settings = submitted(env)
    assert settings.parallelism == 2
    assert settings.max_parallelism == 16
    assert settings.checkpointing.enabled
    assert settings.checkpointing.interval == 500
    assert settings.checkpoint_storage == FileSystemCheckpointStorage(str(tmp_path), 1024, 4096)
    assert settings.restart_strategy == ExponentialDelayRestart(1000, 60_000, 1.5, 3_600_000, 0.1)
    assert settings.savepoint_directory == "/conf"
    assert settings.job_parameters == {"a": "1"}
    assert settings.snapshot_compression
    assert settings.artifacts.files == ("/f.py",)
    assert settings.artifacts.archives == (("/a.zip", "target"),)
    assert settings.artifacts.requirements == "/r.txt"
    assert settings.artifacts.executable == "/py"
    assert settings.artifacts.cached_files[0].executable
    assert not settings.batch_mode


def test_the_savepoint_directory_of_the_program_wins(new_env):
    env = new_env(state_savepoints_dir="/conf")
    env.set_state_backend(MemoryStateBackend(None, "/backend"))
    env.from_collection([1]).print()
    env.execute()
    assert submitted(env)[1].savepoint_directory == "/backend"

    env.set_default_savepoint_directory("/program")
    env.from_collection([1]).print()
    env.execute()
    assert submitted(env)[1].savepoint_directory == "/program"


def test_restore_settings_come_from_the_configuration(env):
    env.configure(
        Configuration.from_dict(
            {"execution.savepoint.path": "/sp", "execution.state-recovery.ignore-unclaimed-state": "true"}
        )
    )
    env.from_collection([1]).print()
    env.execute()

    _, settings = submitted(env)
    assert settings.savepoint_path == "/sp"
    assert settings.allow_non_restored_state


def test_batch_mode_ignores_checkpointing_and_backend(env):
    env.set_runtime_mode(RuntimeExecutionMode.BATCH).enable_checkpointing(100)
    env.set_state_backend(FsStateBackend())
    env.from_collection([1]).print()
    env.execute()

    _, settings = submitted(env)
    assert settings.batch_mode
    assert not settings.checkpointing.enabled
    assert settings.restart_strategy == NoRestart()
    assert isinstance(settings.checkpoint_storage, JobManagerCheckpointStorage)


def test_automatic_mode_looks_at_the_sources(env):
    env.set_runtime_mode(RuntimeExecutionMode.AUTOMATIC)
    env.from_collection([1]).print()
    env.execute()
    assert submitted(env)[1].batch_mode

    env.add_source(Numbers()).print()
    env.execute()
    assert not submitted(env)[1].batch_mode


def test_the_plan_is_json_in_flinks_shape(env):
    env.from_collection([1]).map(str).key_by(lambda v: v).reduce(max).set_parallelism(4).print("x")
    env.get_execution_plan()

    plan = json.loads(env.get_execution_plan())["nodes"]

    assert [node["pact"] for node in plan] == ["Data Source", "Operator", "Operator", "Data Sink"]
    assert [node["type"] for node in plan] == [
        "Source: Collection Source",
        "Map",
        "Reduce",
        "Sink: Print to Std. Out",
    ]
    assert [node["parallelism"] for node in plan] == [1, 2, 4, 2]
    assert [node.get("predecessors", [{}])[0].get("ship_strategy") for node in plan] == [
        None,
        "REBALANCE",
        "HASH",
        "REBALANCE",
    ]
    assert plan[3]["guarantee"] == "none"
    assert plan[1]["predecessors"][0]["id"] == plan[0]["id"]


def test_close_releases_executors(env):
    env.close()
    assert env.executor.closed


def test_accepted_lists_are_kept(env):
    env.add_jars("a.jar", "b.jar")
    env.add_classpaths("c")
    assert env.get_jars() == ["a.jar", "b.jar"]
    assert env.get_classpaths() == ["c"]


def test_two_environments_share_nothing(new_env):
    one, other = new_env(), new_env()
    one.set_parallelism(5)
    one.from_collection([1]).print()
    assert other.get_parallelism() == 2
    with pytest.raises(IllegalStateError):
        other.execute()


def test_a_listener_is_not_a_position(env, caplog):
    class Listening(Numbers, CheckpointListener):
        pass

    env.enable_checkpointing(100)
    env.add_source(Listening(), "numbers").print()
    env.execute()
    assert "'numbers' keeps no position" in caplog.text


def test_the_plan_says_how_the_job_would_run_and_why():
    def planned(mode, build):
        env = StreamExecutionEnvironment.get_execution_environment(
            Configuration.from_dict({"execution.target": "spark", "execution.mode": mode})
        )
        build(env.from_collection([1]))
        return json.loads(env.get_execution_plan())["execution"]

    def frames(stream):
        stream.foreach_batch(lambda frame, epoch: None).name("frames")

    assert planned("auto", lambda stream: stream.print())["mode"] == "continuous"
    assert planned("epochs", lambda stream: stream.print()) == {
        "mode": "epochs",
        "reason": "execution.mode is EPOCHS",
    }
    assert planned("auto", frames) == {
        "mode": "epochs",
        "reason": "sink 'frames' wants a DataFrame for each epoch",
    }
    refused = planned("continuous", frames)
    assert refused["mode"] is None
    assert "sink 'frames'" in refused["reason"]
