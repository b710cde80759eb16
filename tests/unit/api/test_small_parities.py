"""Small things PyFlink programs rely on: checks of resources, forms of paths, texts of configurations."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tidemark import (
    Configuration,
    EmbeddedRocksDBStateBackend,
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
    MapFunction,
    RestartStrategies,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)
from tidemark.config import MemorySize
from tidemark.datastream import SlotSharingGroup
from tidemark.errors import ConfigError


def group() -> Any:
    return SlotSharingGroup.builder("group")


def test_slot_sharing_group_has_all_resources_or_none() -> None:
    bare, full = group().build(), group().set_cpu_cores(1.5).set_task_heap_memory_mb(10).build()

    assert isinstance(group(), SlotSharingGroup.Builder)
    assert (bare.get_cpu_cores(), bare.get_task_heap_memory(), bare.get_managed_memory()) == (None,) * 3
    assert (full.get_cpu_cores(), full.get_task_heap_memory()) == (1.5, MemorySize.of_mebi_bytes(10))
    assert full.get_managed_memory() == full.get_task_off_heap_memory() == MemorySize(bytes_size=0)


@pytest.mark.parametrize(
    "build",
    [
        lambda: group().set_cpu_cores(1).build(),
        lambda: group().set_task_heap_memory_mb(1).build(),
        lambda: group().set_task_off_heap_memory_mb(1).build(),
        lambda: group().set_managed_memory(MemorySize(1)).build(),
        lambda: group().set_external_resource("gpu", 1).build(),
        lambda: group().set_cpu_cores(0),
        lambda: group().set_cpu_cores(-1),
        lambda: group().set_cpu_cores(float("nan")),
        lambda: group().set_task_heap_memory_mb(0),
        lambda: group().set_external_resource("gpu", 0),
        lambda: group().set_external_resource("", 1),
        lambda: SlotSharingGroup.builder(""),
    ],
)
def test_slot_sharing_group_without_or_with_illegal_resources_is_refused(build: Any) -> None:
    with pytest.raises(ConfigError):
        build()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("file://var/checkpoints/", "file://var/checkpoints"),
        ("file:///var//checkpoints", "file:///var/checkpoints"),
        ("hdfs://host:1/a//b/", "hdfs://host:1/a/b"),
        ("s3://bucket/", "s3://bucket"),
        ("/var/checkpoints//", "/var/checkpoints"),
        ("/", "/"),
        ("relative/", "relative"),
        (Path("/var/x"), "/var/x"),
    ],
)
def test_checkpoint_directory_is_told_without_superfluous_slashes(given: Any, told: str) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.get_checkpoint_config().set_checkpoint_storage(given)

    assert FileSystemCheckpointStorage(given).get_checkpoint_path() == told
    assert JobManagerCheckpointStorage(given).get_checkpoint_path() == told
    storage = env.get_checkpoint_config().get_checkpoint_storage()
    assert storage is not None
    assert storage.get_checkpoint_path() == told


def test_rocksdb_directories_are_told_as_paths_of_the_machine() -> None:
    backend = EmbeddedRocksDBStateBackend().set_db_storage_paths("file:///db//one/", "/db/two/")

    assert backend.get_db_storage_paths() == ["/db/one", "/db/two"]


def test_file_system_storage_needs_a_path_whether_or_not_it_is_written_out() -> None:
    with pytest.raises(ValueError, match="checkpoint_path"):
        FileSystemCheckpointStorage()


def test_text_of_a_configuration_is_that_of_a_java_map_without_secrets() -> None:
    configuration = Configuration.from_dict(map={"b": True, "a": 1, "x.password": "no"})

    assert str(configuration) == "{a=1, b=true, x.password=******}"
    assert str(Configuration()) == "{}"


@pytest.mark.parametrize(
    ("text", "items"),
    [
        (None, []),
        ("", []),
        ("a", ["a"]),
        ("a;b", ["a", "b"]),
        ("[a, b]", ["a", "b"]),
        ("['a', \"b\"]", ["a", "b"]),
        ('["a", "b,c"]', ["a", "b,c"]),
        ("[1, 2]", [1, 2]),
        ("[]", []),
    ],
)
def test_list_value_is_parsed_from_either_form(text: str | None, items: list[Any]) -> None:
    assert Configuration.parse_list_value(text) == items


class FailOnce(MapFunction):
    """Fails in its first attempt, with files of RocksDB on disk."""

    def open(self, runtime_context: Any) -> None:
        self.attempt = runtime_context.get_attempt_number()
        self.state = runtime_context.get_state(ValueStateDescriptor("seen", Types.INT()))

    def map(self, value: Any) -> Any:
        self.state.update(value)
        if self.attempt == 0:
            raise ValueError("once")
        return value


def test_rocksdb_directory_is_empty_when_the_job_is_over(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"execution.target": "local"})
    )
    env.set_state_backend(EmbeddedRocksDBStateBackend().set_db_storage_paths(f"file://{tmp_path}/db"))
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 0))
    stream = env.from_collection([1, 2]).key_by(lambda value: value, key_type=Types.INT()).map(FailOnce())

    assert sorted(stream.execute_and_collect()) == [1, 2]

    assert os.listdir(tmp_path / "db") == []
