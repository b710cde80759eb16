"""Writes the golden snapshots of a release: ``python -m tests.compat.write_golden v0_1``, once, from the root.

A heap savepoint, an incremental RocksDB checkpoint and a checkpoint of the memory backend, each of the job
in ``<release>/job.py`` with parallelism 2. What a release wrote is never written again: the script refuses to
replace a folder that is there.
"""

from __future__ import annotations

import importlib
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from tidemark import (
    Configuration,
    EmbeddedRocksDBStateBackend,
    ExternalizedCheckpointRetention,
    HashMapStateBackend,
    MemoryStateBackend,
    StreamExecutionEnvironment,
)

HERE = Path(__file__).parent
DEADLINE = 120


def environment(settings: dict[str, Any], backend: Any, parallelism: int) -> StreamExecutionEnvironment:
    """A local environment for one run."""
    configuration = Configuration.from_dict(
        {"execution.target": "local", "restart-strategy": "none", **settings}
    )
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(parallelism)
    env.set_state_backend(backend)
    return env


def run_first_life(job: Any, life: str, backend: Any, directory: Path, savepoint: bool) -> str:
    """Run the job until its state is in a snapshot below `directory`; the path of that snapshot."""
    env = environment({"state.checkpoints.dir": str(directory)}, backend, 2)
    env.enable_checkpointing(50)
    retention = ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    env.get_checkpoint_config().set_externalized_checkpoint_retention(retention)
    results = job.build(env, life, asks=False).execute_and_collect()
    client = results.get_job_client()
    assert job.lives[life].emitted.wait(DEADLINE)
    # Everything emitted so far is in the next savepoint, and in every checkpoint after that.
    path = client.trigger_savepoint(str(directory / "savepoint")).result(DEADLINE)
    if savepoint:
        client.cancel().result(DEADLINE)
        return path
    taken = _latest(directory)
    while _latest(directory) in (None, taken):
        client.get_job_status().result(DEADLINE)
    client.cancel().result(DEADLINE)
    found = _latest(directory)
    assert found is not None
    return str(found)


def _latest(directory: Path) -> Path | None:
    """The newest complete checkpoint of the one job below `directory`."""
    found = [metadata.parent for metadata in directory.glob("*/chk-*/_metadata")]
    return max(found, key=lambda path: int(path.name.removeprefix("chk-")), default=None)


def main(release: str) -> None:
    """Write the snapshots of a release."""
    job = importlib.import_module(f"tests.compat.{release}.job")
    target = HERE / release
    names = {
        "heap-savepoint": (HashMapStateBackend(), True),
        "rocksdb-checkpoint": (EmbeddedRocksDBStateBackend(True), False),
        "memory-checkpoint": (MemoryStateBackend(), False),
    }
    for name, (backend, savepoint) in names.items():
        if (target / name).exists():
            raise SystemExit(f"{target / name} exists; what a release wrote is never written again.")
        with tempfile.TemporaryDirectory() as scratch:
            snapshot = Path(run_first_life(job, name, backend, Path(scratch), savepoint))
            shutil.copytree(snapshot, target / name / "chk")
            shared = snapshot.parent / "shared"
            if shared.exists() and not savepoint:
                shutil.copytree(shared, target / name / "shared")
        size = sum(file.stat().st_size for file in (target / name).rglob("*") if file.is_file())
        print(f"{name}: {size} bytes")


if __name__ == "__main__":
    main(sys.argv[1])
