"""Whose snapshots a job restores: its user's and root's, and those of the user whose snapshot it is pointed at."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

import pytest
from tests.recovery.local_jobs import DEADLINE, Count, Numbers, finals, local_env, new_board

from tidemark import EmbeddedRocksDBStateBackend, ExternalizedCheckpointRetention, HashMapStateBackend, Types
from tidemark.errors import TidemarkError

STRANGER, OTHER = 65534, 65533

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to somebody else")


def job(tmp_path, backend, settings=None, *, bounded=True):
    seen = new_board()
    env = local_env(
        {
            "state.checkpoints.dir": str(tmp_path / "checkpoints"),
            "state.savepoints.dir": str(tmp_path / "savepoints"),
            "state.backend.fs.memory-threshold": "0",
            **(settings or {}),
        },
        2,
        backend(),
    )
    env.enable_checkpointing(10)
    env.get_checkpoint_config().set_externalized_checkpoint_retention(
        ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    )
    numbers = env.add_source(Numbers(seen.name, 2, 6, bounded=bounded), type_info=Types.LONG())
    counted = numbers.uid("numbers").key_by(lambda n: n % 3, Types.LONG()).process(Count()).uid("count")
    return seen, counted.execute_and_collect()


def incremental():
    return EmbeddedRocksDBStateBackend(True)


def take_snapshots(tmp_path, backend) -> tuple[Path, Path]:
    """A savepoint and a retained checkpoint of all twelve numbers."""
    seen, results = job(tmp_path, backend, bounded=False)
    client = results.get_job_client()
    seen.wait_set("emitted")
    savepoint = client.trigger_savepoint().result(DEADLINE)
    client.cancel().result(DEADLINE)
    checkpoint = max(
        (tmp_path / "checkpoints").glob("*/chk-*/_metadata"), key=lambda path: int(path.parent.name[4:])
    )
    return Path(savepoint), checkpoint.parent


def restore(tmp_path, backend, snapshot, settings=None):
    _, results = job(tmp_path, backend, {"execution.savepoint.path": str(snapshot), **(settings or {})})
    return finals(results)


def give(path: Path, user: int) -> None:
    for each in (path, *path.rglob("*")):
        os.chown(each, user, user)


@pytest.mark.parametrize("backend", [HashMapStateBackend, incremental])
@pytest.mark.parametrize("what", ["_metadata", "a file of state", "a directory"])
def test_what_somebody_else_put_into_a_snapshot_of_ours_is_refused(tmp_path, backend, what):
    _, snapshot = take_snapshots(tmp_path, backend)
    root = snapshot.parent if backend is incremental else snapshot
    state = next(path for path in root.rglob("*") if path.suffix in (".parquet", ".sst"))
    planted = {"_metadata": snapshot / "_metadata", "a file of state": state, "a directory": state.parent}[
        what
    ]
    os.chown(planted, STRANGER, STRANGER)

    with pytest.raises(TidemarkError) as refusal:
        restore(tmp_path, backend, snapshot)

    assert f"{planted} belongs to user {STRANGER}, not to user 0" in shown(refusal.value)
    assert "cp -r" in shown(refusal.value)


def test_a_copy_of_our_own_is_restored(tmp_path):
    savepoint, _ = take_snapshots(tmp_path, HashMapStateBackend)
    os.chown(savepoint / "_metadata", STRANGER, STRANGER)

    copy = shutil.copytree(savepoint, tmp_path / "copy")

    assert restore(tmp_path, HashMapStateBackend, copy) == {}


@pytest.mark.parametrize("backend", [HashMapStateBackend, incremental])
@pytest.mark.parametrize("kind", ["savepoint", "checkpoint", "its metadata"])
def test_a_snapshot_that_another_user_handed_over_is_restored_with_a_warning(tmp_path, backend, kind, caplog):
    savepoint, checkpoint = take_snapshots(tmp_path, backend)
    give(savepoint, STRANGER)
    give(checkpoint.parent, STRANGER)
    path = {"savepoint": savepoint, "checkpoint": checkpoint, "its metadata": savepoint / "_metadata"}[kind]

    with caplog.at_level(logging.WARNING):
        # All numbers were counted before, and none is counted again.
        assert restore(tmp_path, backend, path) == {}

    assert f"{path} belongs to user {STRANGER}, not to user 0" in caplog.text


def test_what_a_third_user_put_into_a_handed_over_snapshot_is_refused(tmp_path):
    savepoint, _ = take_snapshots(tmp_path, HashMapStateBackend)
    give(savepoint, STRANGER)
    table = next(savepoint.rglob("*.parquet"))
    os.chown(table, OTHER, OTHER)

    with pytest.raises(TidemarkError) as refusal:
        restore(tmp_path, HashMapStateBackend, savepoint)

    assert f"{table} belongs to user {OTHER}" in shown(refusal.value)


def test_users_who_share_a_directory_read_each_others_files(tmp_path):
    savepoint, _ = take_snapshots(tmp_path, HashMapStateBackend)
    os.chown(next(savepoint.rglob("*.parquet")), OTHER, OTHER)

    assert restore(tmp_path, HashMapStateBackend, savepoint, {"fs.permissions.umask-mode": "007"}) == {}


def shown(error: BaseException | None) -> str:
    """The messages of an error and of what caused it."""
    texts = []
    while error is not None:
        texts.append(str(error))
        error = error.__cause__
    return "\n".join(texts)
