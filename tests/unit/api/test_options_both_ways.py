"""One truth for setters, getters and keys: what is set by one is told by the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidemark import Configuration, StreamExecutionEnvironment
from tidemark.api.checkpoint_config import CheckpointConfig
from tidemark.api.execution_config import ExecutionConfig
from tidemark.config import CheckpointingMode, Options, RuntimeExecutionMode
from tidemark.config.modes import ClosureCleanerLevel, ExternalizedCheckpointRetention
from tidemark.config.option import ConfigOption, to_text
from tidemark.config.options import all_options
from tidemark.types.time import Duration

Env = StreamExecutionEnvironment

# Option, value, getter, setter (None: there is only the key).
CASES: list[tuple[ConfigOption[Any], Any, Callable[[Env], Any], Callable[[Env], Any] | None]] = [
    (Options.PARALLELISM, 7, Env.get_parallelism, lambda env: env.set_parallelism(7)),
    (Options.MAX_PARALLELISM, 9, Env.get_max_parallelism, lambda env: env.set_max_parallelism(9)),
    (
        Options.RUNTIME_MODE,
        RuntimeExecutionMode.BATCH,
        lambda env: env.get_config().get_runtime_mode(),
        lambda env: env.set_runtime_mode(RuntimeExecutionMode.BATCH),
    ),
    (
        Options.AUTO_WATERMARK_INTERVAL,
        5,
        lambda env: env.get_config().get_auto_watermark_interval(),
        lambda env: env.get_config().set_auto_watermark_interval(5),
    ),
    (
        Options.TASK_CANCELLATION_INTERVAL,
        5,
        lambda env: env.get_config().get_task_cancellation_interval(),
        lambda env: env.get_config().set_task_cancellation_interval(5),
    ),
    (
        Options.TASK_CANCELLATION_TIMEOUT,
        5,
        lambda env: env.get_config().get_task_cancellation_timeout(),
        lambda env: env.get_config().set_task_cancellation_timeout(5),
    ),
    (
        Options.GLOBAL_JOB_PARAMETERS,
        {"url": "http://host:1/a,b", "name": "it's", "": " "},
        lambda env: env.get_config().get_global_job_parameters(),
        lambda env: env.get_config().set_global_job_parameters(
            {"url": "http://host:1/a,b", "name": "it's", "": " "}
        ),
    ),
    (
        Options.OBJECT_REUSE,
        True,
        lambda env: env.get_config().is_object_reuse_enabled(),
        lambda env: env.get_config().enable_object_reuse(),
    ),
    (
        Options.AUTO_GENERATE_UIDS,
        False,
        lambda env: env.get_config().has_auto_generated_uids_enabled(),
        lambda env: env.get_config().disable_auto_generated_uids(),
    ),
    (
        Options.SNAPSHOT_COMPRESSION,
        True,
        lambda env: env.get_config().is_use_snapshot_compression(),
        lambda env: env.get_config().set_use_snapshot_compression(True),
    ),
    (
        Options.LATENCY_INTERVAL,
        5,
        lambda env: env.get_config().get_latency_tracking_interval(),
        lambda env: env.get_config().set_latency_tracking_interval(5),
    ),
    (
        Options.GENERIC_TYPES,
        False,
        lambda env: not env.get_config().has_generic_types_disabled(),
        lambda env: env.get_config().disable_generic_types(),
    ),
    (
        Options.FORCE_KRYO,
        True,
        lambda env: env.get_config().is_force_kryo_enabled(),
        lambda env: env.get_config().enable_force_kryo(),
    ),
    (
        Options.FORCE_AVRO,
        True,
        lambda env: env.get_config().is_force_avro_enabled(),
        lambda env: env.get_config().enable_force_avro(),
    ),
    (
        Options.CLOSURE_CLEANER_LEVEL,
        ClosureCleanerLevel.NONE,
        lambda env: env.get_config()._get(Options.CLOSURE_CLEANER_LEVEL),
        lambda env: env.get_config().disable_closure_cleaner(),
    ),
    (Options.OPERATOR_CHAINING, False, Env.is_chaining_enabled, Env.disable_operator_chaining),
    (
        Options.CHAIN_DIFFERENT_MAX_PARALLELISM,
        False,
        Env.is_chaining_of_operators_with_different_max_parallelism_enabled,
        None,
    ),
    (Options.BUFFER_TIMEOUT, 5, Env.get_buffer_timeout, lambda env: env.set_buffer_timeout(5)),
    (
        Options.CHANGELOG,
        True,
        Env.is_changelog_state_backend_enabled,
        lambda env: env.enable_changelog_state_backend(True),
    ),
    (
        Options.SAVEPOINTS_DIR,
        "/savepoints",
        Env.get_default_savepoint_directory,
        lambda env: env.set_default_savepoint_directory("/savepoints"),
    ),
    (
        Options.CHECKPOINTING_INTERVAL,
        50,
        Env.get_checkpoint_interval,
        lambda env: env.enable_checkpointing(50),
    ),
    (
        Options.CHECKPOINTING_MODE,
        CheckpointingMode.AT_LEAST_ONCE,
        Env.get_checkpointing_mode,
        lambda env: env.get_checkpoint_config().set_checkpointing_mode(CheckpointingMode.AT_LEAST_ONCE),
    ),
    (
        Options.CHECKPOINTING_TIMEOUT,
        50,
        lambda env: env.get_checkpoint_config().get_checkpoint_timeout(),
        lambda env: env.get_checkpoint_config().set_checkpoint_timeout(50),
    ),
    (
        Options.CHECKPOINTING_MIN_PAUSE,
        50,
        lambda env: env.get_checkpoint_config().get_min_pause_between_checkpoints(),
        lambda env: env.get_checkpoint_config().set_min_pause_between_checkpoints(50),
    ),
    (
        Options.CHECKPOINTING_MAX_CONCURRENT,
        3,
        lambda env: env.get_checkpoint_config().get_max_concurrent_checkpoints(),
        lambda env: env.get_checkpoint_config().set_max_concurrent_checkpoints(3),
    ),
    (
        Options.CHECKPOINTING_TOLERABLE_FAILURES,
        3,
        lambda env: env.get_checkpoint_config().get_tolerable_checkpoint_failure_number(),
        lambda env: env.get_checkpoint_config().set_tolerable_checkpoint_failure_number(3),
    ),
    (
        Options.CHECKPOINTING_RETENTION,
        ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION,
        lambda env: env.get_checkpoint_config().get_externalized_checkpoint_retention(),
        lambda env: env.get_checkpoint_config().enable_externalized_checkpoints(
            cleanup_mode=ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
        ),
    ),
    (
        Options.CHECKPOINTING_UNALIGNED,
        True,
        Env.is_unaligned_checkpoints_enabled,
        lambda env: env.get_checkpoint_config().enable_unaligned_checkpoints(),
    ),
    (
        Options.CHECKPOINTING_FORCE_UNALIGNED,
        True,
        Env.is_force_unaligned_checkpoints,
        lambda env: env.get_checkpoint_config().set_force_unaligned_checkpoints(),
    ),
    (
        Options.CHECKPOINTING_ALIGNED_TIMEOUT,
        50,
        lambda env: env.get_checkpoint_config().get_alignment_timeout().to_millis(),
        lambda env: env.get_checkpoint_config().set_alignment_timeout(
            alignment_timeout=Duration.of_millis(50)
        ),
    ),
]


def cases(chosen: list[Any]) -> Any:
    ids = [option.key for option, *_ in chosen]
    return pytest.mark.parametrize(("option", "value", "getter", "setter"), chosen, ids=ids)


SETTABLE = [case for case in CASES if case[3] is not None]
# The getters of these tell "off" or "not set" by a value that cannot be written.
WITHOUT_DEFAULT = [
    Options.CHANGELOG,
    Options.SAVEPOINTS_DIR,
    Options.CHECKPOINTING_INTERVAL,
    Options.MAX_PARALLELISM,
]


@cases(CASES)
def test_every_spelling_of_a_key_reaches_the_getter(
    option: ConfigOption[Any], value: Any, getter: Any, setter: Any
) -> None:
    for key in option.spellings:
        configured = Env.get_execution_environment()
        configured.configure(Configuration.from_dict({key: to_text(value)}))
        given = Env.get_execution_environment(Configuration.from_dict({key: to_text(value)}))

        assert getter(configured) == getter(given) == value != getter(Env.get_execution_environment())


@cases(SETTABLE)
def test_setter_reaches_getter_and_key(
    option: ConfigOption[Any], value: Any, getter: Any, setter: Any
) -> None:
    env = Env.get_execution_environment()

    setter(env)

    assert getter(env) == value
    assert all(
        option.parse(env.get_configuration().get_string(key, None)) == value for key in option.spellings
    )


@cases([case for case in SETTABLE if case[0] not in WITHOUT_DEFAULT])
def test_the_later_of_setter_and_configuration_wins(
    option: ConfigOption[Any], value: Any, getter: Any, setter: Any
) -> None:
    before, key = getter(Env.get_execution_environment()), option.key
    env = Env.get_execution_environment()

    setter(env)
    env.configure(Configuration.from_dict({key: to_text(before)}))

    assert getter(env) == before
    setter(env)
    assert getter(env) == value
    assert option.parse(env.get_configuration().get_string(key, None)) == value


def test_every_option_with_a_getter_is_in_the_table() -> None:
    told = {option.key for option, *_ in CASES}

    assert {option.key for option in (*ExecutionConfig._options, *CheckpointConfig._options)} <= told
    assert told <= {option.key for option in all_options()}


def test_default_local_parallelism_holds_while_nobody_sets_one() -> None:
    env = Env.get_execution_environment()
    env.set_default_local_parallelism(5)

    assert (env.get_default_local_parallelism(), env.get_parallelism()) == (5, 5)
    assert env.get_configuration().get(Options.PARALLELISM) == 5
    env.set_parallelism(2)
    assert (env.get_default_local_parallelism(), env.get_parallelism()) == (5, 2)


def test_configured_place_replaces_a_storage_that_was_set() -> None:
    env = Env.get_execution_environment()
    env.get_checkpoint_config().set_checkpoint_storage("file:///before")

    env.configure(Configuration.from_dict({"execution.checkpointing.dir": "file:///after"}))

    assert env.get_checkpoint_config().get_checkpoint_storage() is None
    assert env.get_configuration().get(Options.CHECKPOINTS_DIR) == "file:///after"


def test_execution_configs_are_equal_if_the_same_settings_hold() -> None:
    one = ExecutionConfig(Configuration.from_dict({"pipeline.object-reuse": "true"}))
    other = ExecutionConfig().set_global_job_parameters({}).enable_object_reuse()

    assert (one == other, hash(one) == hash(other)) == (True, True)
    assert one != other.set_parallelism(one.get_parallelism() + 1)
    assert one != 1
    assert (ExecutionConfig.PARALLELISM_DEFAULT, ExecutionConfig.PARALLELISM_UNKNOWN) == (-1, -2)
