"""A storage of the program's own is written by the slots as well, and small state stays in the metadata."""

from __future__ import annotations

import threading

import pytest
from tests.recovery.local_jobs import Count, Numbers, finals, local_env, new_board

from tidemark import CustomCheckpointStorage, EmbeddedRocksDBStateBackend, HashMapStateBackend, Types
from tidemark.api.executor import JobSettings
from tidemark.checkpoint.storage import FileSystemStorage
from tidemark.checkpoint.storage.memory import MemoryStorage
from tidemark.errors import ConfigError
from tidemark.plan.vertex import dump_functions
from tidemark.protocol.deployment import Deployment
from tidemark.runtime.storage_plan import check_travels, storage_plan
from tidemark.subtask.task_state import TaskStateManager


class Noting(FileSystemStorage):
    """Notes the names of the files that are written."""

    def __init__(self):
        super().__init__(sync=False)
        self.written = []

    def create(self, path):
        self.written.append(path.rpartition("/")[2])
        return super().create(path)


def written(tmp_path, backend, threshold):
    seen = new_board()
    storage = Noting()
    env = local_env({"state.backend.fs.memory-threshold": threshold}, 1, backend)
    env.enable_checkpointing(10)
    env.get_checkpoint_config().set_checkpoint_storage(CustomCheckpointStorage(storage, str(tmp_path)))
    numbers = env.add_source(Numbers(seen.name, 2, 6), type_info=Types.LONG())
    results = numbers.key_by(lambda n: n % 3, Types.LONG()).process(Count()).execute_and_collect()
    assert finals(results) == dict.fromkeys(range(3), 4)
    # Files that checkpoints share are never part of the metadata.
    return {name for name in storage.written if name != "_metadata" and not name.endswith(".sst")}


@pytest.mark.parametrize("backend", [HashMapStateBackend, lambda: EmbeddedRocksDBStateBackend(True)])
def test_state_above_the_threshold_goes_into_files_and_below_it_into_the_metadata(tmp_path, backend):
    assert written(tmp_path, backend(), "0") > written(tmp_path, backend(), "1mb")


def test_a_slot_writes_with_the_storage_of_the_program_not_with_its_own(tmp_path):
    mine = MemoryStorage()
    plan = storage_plan(JobSettings(checkpoint_storage=CustomCheckpointStorage(mine, "/somewhere")))
    deployment = Deployment("job", 0, 0, dump_functions([]), storage=plan.choice)

    state = TaskStateManager(deployment, FileSystemStorage(), tmp_path)

    state.writer._storage.write("/somewhere/file", b"x")
    assert mine.read("/somewhere/file") == b"x"


def test_a_storage_that_cannot_be_sent_to_slots_is_refused_with_a_remedy():
    class Locked(MemoryStorage):
        def __init__(self):
            self.lock = threading.Lock()

    plan = storage_plan(JobSettings(checkpoint_storage=CustomCheckpointStorage(Locked(), "/somewhere")))

    with pytest.raises(ConfigError, match="__getstate__"):
        check_travels(plan)
