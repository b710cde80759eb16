from __future__ import annotations

import pytest

from tidemark import (
    Configuration,
    CustomStateBackend,
    EmbeddedRocksDBStateBackend,
    FsStateBackend,
    HashMapStateBackend,
    MemoryStateBackend,
    PredefinedOptions,
    RocksDBStateBackend,
    StateBackend,
    StateBackendFactory,
    StreamExecutionEnvironment,
)
from tidemark.api.checkpoint_storage import (
    CustomCheckpointStorage,
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
    resolve_checkpoint_storage,
)
from tidemark.api.graph import Graph
from tidemark.api.state_backends import resolve_state_backend
from tidemark.errors import ConfigError

JAVA = "org.apache.flink."


class MyFactory(StateBackendFactory):
    def create_from_config(self, configuration):
        return FsStateBackend(configuration.get_string("my.path", "/none"))


class NoFactory:
    pass


def configured(**options):
    return Configuration.from_dict({key.replace("_", "."): value for key, value in options.items()})


def resolve(programmed=None, **options):
    return resolve_state_backend(configured(**options), programmed)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("jobmanager", MemoryStateBackend),
        ("memory", MemoryStateBackend),
        ("filesystem", FsStateBackend),
        ("rocksdb", RocksDBStateBackend),
        ("RocksDB", RocksDBStateBackend),
        ("hashmap", HashMapStateBackend),
        (JAVA + "runtime.state.memory.MemoryStateBackendFactory", MemoryStateBackend),
        (JAVA + "runtime.state.filesystem.FsStateBackendFactory", FsStateBackend),
        (JAVA + "contrib.streaming.state.RocksDBStateBackendFactory", RocksDBStateBackend),
        (f"{__name__}.MyFactory", FsStateBackend),
        (f"{__name__}:MyFactory", FsStateBackend),
    ],
)
def test_backends_are_chosen_by_name(name, expected):
    assert type(resolve(state_backend=name, state_checkpoints_dir="/c", my_path="/p")) is expected


@pytest.mark.parametrize(
    ("name", "expected"), [("rocksdb", EmbeddedRocksDBStateBackend), ("filesystem", HashMapStateBackend)]
)
def test_a_named_backend_needs_a_directory_only_if_checkpoints_have_no_other(name, expected, tmp_path):
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"state.backend": name})
    )
    graph = Graph()

    assert type(env._settings("without checkpoints", graph).state_backend) is expected
    env.enable_checkpointing(1000)
    with pytest.raises(ConfigError, match="no checkpoint directory"):
        env._settings("nowhere to go", graph)
    env.get_checkpoint_config().set_checkpoint_storage_dir(str(tmp_path))
    settings = env._settings("to the directory of the program", graph)
    assert type(settings.state_backend) is expected
    assert settings.checkpoint_storage.get_checkpoint_path() == str(tmp_path)


def test_nothing_configured_is_the_memory_backend():
    assert type(resolve()) is MemoryStateBackend


@pytest.mark.parametrize(
    "name", ["mars", "no.such.module.Factory", f"{__name__}:Missing", f"{__name__}:NoFactory"]
)
def test_unknown_names_are_refused_by_name(name):
    with pytest.raises(ValueError, match=name.split(":")[-1]):
        resolve(state_backend=name)


def test_the_backend_of_the_program_wins_and_takes_what_is_missing_from_the_configuration():
    programmed = FsStateBackend()

    backend = resolve(
        programmed,
        state_backend="rocksdb",
        state_checkpoints_dir="/c",
        state_backend_async="false",
    )

    assert type(backend) is FsStateBackend
    assert backend.get_checkpoint_path() == "/c"
    assert not backend.is_using_asynchronous_snapshots()
    assert programmed.get_checkpoint_path() is None


@pytest.mark.parametrize("backend", [FsStateBackend(), RocksDBStateBackend()])
def test_file_backends_need_a_directory(backend):
    with pytest.raises(ValueError, match=r"state\.checkpoints\.dir"):
        resolve(backend)


def test_memory_backend_forms():
    assert MemoryStateBackend.DEFAULT_MAX_STATE_SIZE == 5 * 1024 * 1024
    assert MemoryStateBackend().get_max_state_size() == 5 * 1024 * 1024
    seed = MemoryStateBackend(1000, False)
    assert seed.get_max_state_size() == 1000
    assert not seed.is_using_asynchronous_snapshots()
    full = MemoryStateBackend("/c", "/s", 7, True)
    assert full.get_checkpoint_path() == "/c"
    assert full.get_savepoint_path() == "/s"
    assert full.is_using_asynchronous_snapshots()
    assert full.get_checkpoint_storage() == JobManagerCheckpointStorage("/c", 7)
    assert resolve(MemoryStateBackend(), state_checkpoints_dir="/d").get_checkpoint_path() == "/d"
    with pytest.raises(ValueError, match="positive"):
        MemoryStateBackend(max_state_size=0)
    for cls in (MemoryStateBackend, FsStateBackend):
        with pytest.raises(TypeError, match="asynchronous"):
            cls(using_asynchronous_snapshots="yes")


def test_file_backend_forms():
    seed = FsStateBackend("file:///c", False)
    assert seed.get_checkpoint_path() == "file:///c"
    assert not seed.is_using_asynchronous_snapshots()
    full = FsStateBackend("/c", "/s", 2048, 100, True)
    assert full.get_savepoint_path() == "/s"
    assert full.get_min_file_size_threshold() == 2048
    assert full.get_write_buffer_size() == 100
    assert FsStateBackend("/c").get_min_file_size_threshold() == 1024
    assert FsStateBackend("/c").get_write_buffer_size() == 4096
    assert FsStateBackend("/c").store == "heap"
    tuned = resolve(FsStateBackend("/c"), **{"state.backend.fs.memory-threshold": "5kb"})
    assert tuned.get_checkpoint_storage().get_min_file_size_threshold() == 5120
    with pytest.raises(ValueError, match="threshold"):
        FsStateBackend("/c", file_state_size_threshold=2 * 1024 * 1024)
    with pytest.raises(ValueError, match="write_buffer_size"):
        FsStateBackend("/c", write_buffer_size=-5)
    with pytest.raises(TypeError, match="path"):
        FsStateBackend(5.0)


def test_rocksdb_settings_reach_the_store():
    def tune(options):
        return options

    backend = RocksDBStateBackend("/c", True)
    same = (
        backend.enable_ttl_compaction_filter()
        .set_db_storage_paths("/a", "/b")
        .set_predefined_options(PredefinedOptions.FLASH_SSD_OPTIMIZED)
        .set_options(tune)
        .set_number_of_transfer_threads(2)
    )

    assert same is backend
    assert backend.store == "rocksdb"
    assert backend.is_incremental_checkpoints_enabled()
    assert backend.is_using_asynchronous_snapshots()
    assert backend.is_ttl_compaction_filter_enabled()
    assert backend.get_db_storage_paths() == ["/a", "/b"]
    assert backend.get_predefined_options() is PredefinedOptions.FLASH_SSD_OPTIMIZED
    assert backend.get_options() is tune
    assert backend.get_number_of_transfer_threads() == 2
    assert backend.store_options() == {
        "predefined": "FLASH_SSD_OPTIMIZED",
        "ttl_compaction_filter_enabled": True,
        "options_factory": tune,
    }


def test_rocksdb_takes_the_rest_from_the_configuration():
    backend = resolve(
        EmbeddedRocksDBStateBackend(),
        **{
            "state.backend.incremental": "true",
            "state.backend.rocksdb.ttl.compaction.filter.enabled": "true",
            "state.backend.rocksdb.localdir": "/x, /y",
            "state.backend.rocksdb.memory.fixed-per-slot": "64mb",
        },
    )

    assert backend.is_incremental_checkpoints_enabled()
    assert backend.is_ttl_compaction_filter_enabled()
    assert backend.get_db_storage_paths() == ["/x", "/y"]
    assert backend.store_options()["memory_per_slot"] == 64 * 1024 * 1024
    assert backend.get_checkpoint_storage() is None
    forced = resolve(EmbeddedRocksDBStateBackend(False), **{"state.backend.incremental": "true"})
    assert not forced.is_incremental_checkpoints_enabled()
    assert HashMapStateBackend().get_db_storage_paths() is None


def test_the_heap_takes_incremental_checkpoints_from_the_configuration():
    usual = resolve(HashMapStateBackend())
    chosen = resolve(HashMapStateBackend(), **{"execution.checkpointing.incremental": "true"})
    bounded = resolve(
        HashMapStateBackend(),
        **{"state.backend.incremental": "true", "state.backend.heap.incremental.max-changes": "3"},
    )

    assert not usual.is_incremental_checkpoints_enabled()
    assert usual.store_options() == {}
    assert chosen.is_incremental_checkpoints_enabled()
    assert chosen.store_options() == {"max_changes": 10}
    assert bounded.store_options() == {"max_changes": 3}
    with pytest.raises(ConfigError, match="max-changes must not be negative"):
        resolve(
            HashMapStateBackend(),
            **{"state.backend.incremental": "true", "state.backend.heap.incremental.max-changes": "-1"},
        )


def test_bad_rocksdb_settings_are_refused():
    backend = EmbeddedRocksDBStateBackend()
    with pytest.raises(TypeError, match="PredefinedOptions"):
        backend.set_predefined_options("DEFAULT")
    with pytest.raises(TypeError, match="callable"):
        backend.set_options("java.class")
    with pytest.raises(ValueError, match="at least 1"):
        backend.set_number_of_transfer_threads(0)
    with pytest.raises(TypeError, match="incremental"):
        EmbeddedRocksDBStateBackend("yes")


def test_custom_backends_make_their_own_store():
    backend = CustomStateBackend(lambda parameters: ("store", parameters), {"a": 1})

    assert backend.store == "custom"
    assert backend.create_keyed_state_backend(5) == ("store", 5)
    assert backend.store_options() == {"a": 1}
    assert backend.get_checkpoint_storage() is None
    with pytest.raises(TypeError, match="KeyedStateBackend"):
        CustomStateBackend("java.class")


def test_a_backend_that_overrides_nothing_keeps_state_in_memory():
    class Mine(StateBackend):
        pass

    assert Mine().store == "heap"
    assert Mine() == Mine()
    assert resolve(Mine()).is_using_asynchronous_snapshots()


def test_storages_check_their_settings():
    storage = FileSystemCheckpointStorage("/c", 10, 20)
    assert storage.get_checkpoint_path() == "/c"
    assert storage.get_savepoint_path() is None
    assert storage.get_min_file_size_threshold() == 10
    assert storage.get_write_buffer_size() == 20
    assert FileSystemCheckpointStorage("/c").get_min_file_size_threshold() == 1024
    assert JobManagerCheckpointStorage().get_max_state_size() == 5 * 1024 * 1024
    assert JobManagerCheckpointStorage("/c", 9).get_max_state_size() == 9
    with pytest.raises(ValueError, match="checkpoint_path"):
        FileSystemCheckpointStorage(None)
    with pytest.raises(ValueError, match="threshold"):
        FileSystemCheckpointStorage("/c", 1024 * 1024 + 1)
    with pytest.raises(ValueError, match="positive"):
        JobManagerCheckpointStorage(max_state_size=-1)


def storage_of(backend, programmed=None, **options):
    return resolve_checkpoint_storage(configured(**options), backend, programmed)


def test_a_storage_of_the_programs_own_takes_its_threshold_from_the_configuration():
    heap, mine = HashMapStateBackend(), object()

    option = {"state.backend.fs.memory-threshold": "7b"}
    configured = storage_of(heap, CustomCheckpointStorage(mine, "/m"), **option)
    programmed = storage_of(heap, CustomCheckpointStorage(mine, "/m", 5), **option)

    assert configured.storage is programmed.storage is mine
    assert [configured.get_min_file_size_threshold(), programmed.get_min_file_size_threshold()] == [7, 5]
    with pytest.raises(ConfigError, match="between 0 and"):
        CustomCheckpointStorage(mine, "/m", 1 << 21)


def test_storage_is_chosen_in_the_right_order():
    heap = HashMapStateBackend()
    mine = CustomCheckpointStorage(object(), "/m")

    assert storage_of(heap) == JobManagerCheckpointStorage()
    assert storage_of(heap, state_checkpoints_dir="/c") == FileSystemCheckpointStorage("/c", 1024, 4096)
    assert storage_of(heap, execution_checkpointing_storage="jobmanager") == JobManagerCheckpointStorage()
    assert storage_of(heap, mine) == CustomCheckpointStorage(mine.storage, "/m", 1024)
    assert storage_of(heap, "/d") == FileSystemCheckpointStorage("/d", 1024, 4096)
    assert storage_of(heap, FileSystemCheckpointStorage("/d", 5)) == FileSystemCheckpointStorage(
        "/d", 5, 4096
    )
    assert storage_of(MemoryStateBackend(), state_checkpoints_dir="/c") == JobManagerCheckpointStorage()
    with pytest.raises(ConfigError, match="directory"):
        storage_of(heap, execution_checkpointing_storage="filesystem")
    with pytest.raises(ConfigError, match="Unknown checkpoint storage"):
        storage_of(heap, execution_checkpointing_storage="tape")
