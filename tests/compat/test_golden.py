"""Snapshots written once by released code restore for ever, on every backend, at any parallelism."""

from __future__ import annotations

import importlib
import itertools
from pathlib import Path
from typing import Any

import pytest
from tests.compat.write_golden import DEADLINE, environment

from tidemark import EmbeddedRocksDBStateBackend, HashMapStateBackend
from tidemark.checkpoint.inspection import describe, verify
from tidemark.errors import JobExecutionException, RestoreError

HERE = Path(__file__).parent
RELEASES = sorted(path.name for path in HERE.glob("v*_*"))
SNAPSHOTS = ["heap-savepoint", "rocksdb-checkpoint", "memory-checkpoint"]
BACKENDS: dict[str, Any] = {"heap": HashMapStateBackend, "rocksdb": EmbeddedRocksDBStateBackend}
NATIVE = ("rocksdb-checkpoint",)
"""Snapshots in a backend's own files; only that backend opens them."""

_numbers = itertools.count()
releases = pytest.mark.parametrize("release", RELEASES)


def second_life(job: Any, path: Path, backend: Any, parallelism: int) -> Any:
    """What the job says when it goes on from the snapshot, and what its operator state was."""
    life = f"second-{next(_numbers)}"
    env = environment({"execution.savepoint.path": str(path)}, backend, parallelism)
    said: dict[Any, list[Any]] = {}
    for part, key, what in job.build(env, life, asks=True).execute_and_collect():
        said.setdefault((part, key), []).append(what)
    return {key: sorted(whats) if len(whats) > 1 else whats for key, whats in said.items()}, job.lives[life]


def check(job: Any, said: Any, life: Any, parallelism: int) -> None:
    assert said == job.expected()
    assert sorted(life.split) == list(range(len(job.KEYS)))
    # A union list that is written again by every subtask that got all of it holds everything repeatedly.
    assert [sorted(set(union)) for union in life.union] == [sorted(job.KEYS)] * parallelism


@releases
@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("snapshot", SNAPSHOTS)
def test_a_golden_snapshot_restores(release: str, snapshot: str, backend: str, parallelism: int) -> None:
    if snapshot in NATIVE and backend == "heap":
        pytest.skip("the files of RocksDB are opened by RocksDB; see the test below for the way to the heap")
    job = importlib.import_module(f"tests.compat.{release}.job")

    said, life = second_life(job, HERE / release / snapshot / "chk", BACKENDS[backend](), parallelism)

    check(job, said, life, parallelism)


@releases
def test_a_native_checkpoint_reaches_the_heap_by_way_of_a_savepoint(release: str, tmp_path: Path) -> None:
    job = importlib.import_module(f"tests.compat.{release}.job")
    path = HERE / release / "rocksdb-checkpoint" / "chk"
    with pytest.raises(JobExecutionException, match="take a savepoint there") as refused:
        second_life(job, path, HashMapStateBackend(), 2)
    assert isinstance(refused.value.__cause__, RestoreError)

    env = environment({"execution.savepoint.path": str(path)}, EmbeddedRocksDBStateBackend(), 3)
    results = job.build(env, "between", asks=False).execute_and_collect()
    assert job.lives["between"].emitted.wait(DEADLINE)
    savepoint = results.get_job_client().stop_with_savepoint(False, str(tmp_path)).result(DEADLINE)
    assert list(results) == []
    said, life = second_life(job, Path(savepoint), HashMapStateBackend(), 2)

    check(job, said, life, 2)


@releases
@pytest.mark.parametrize("snapshot", SNAPSHOTS)
def test_golden_files_are_intact_small_and_of_two_subtasks(release: str, snapshot: str) -> None:
    directory = HERE / release / snapshot
    described = describe(str(directory / "chk"))

    assert verify(str(directory / "chk")) == []
    assert sum(file.stat().st_size for file in directory.rglob("*") if file.is_file()) < 120_000
    keyed = {operator["uid"]: operator for operator in described["operators"] if operator["keyed_states"]}
    assert set(keyed) == {"ledger", "windows", "sessions"}
    assert {operator["parallelism"] for operator in keyed.values()} == {2}
    assert {operator["max_parallelism"] for operator in keyed.values()} == {128}
    assert {state["name"] for state in keyed["ledger"]["keyed_states"]} >= {
        "every type",
        "list",
        "map",
        "mean",
        "sum",
        "ttl list",
        "ttl map",
        "ttl value",
        "_timers/event",
        "_timers/processing",
    }


def test_every_release_has_its_snapshots() -> None:
    assert RELEASES
    for release in RELEASES:
        assert sorted(path.name for path in (HERE / release).glob("*-*")) == sorted(SNAPSHOTS)
