"""What slot processes say of a snapshot they cannot use reaches the restart decision whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_jobs_on_spark import wait_for
from tests.integration.test_recovery_on_spark import numbers_job

from tidemark import ExternalizedCheckpointRetention, FsStateBackend, JobStatus, RocksDBStateBackend
from tidemark.errors import RestoreError

pytestmark = pytest.mark.spark


def refused(env: Any, backend: Any, out: Path) -> BaseException:
    """Why the job failed; it must have done so in its first attempt."""
    numbers_job(env, backend, 10**9, out)
    client = env.execute_async("refused")
    error = client.get_job_execution_result().exception(120)
    assert client.get_job_status().result() is JobStatus.FAILED
    assert client.get_progress()["attempt"] == 0, "another attempt cannot help"
    return error


def test_a_snapshot_that_can_never_be_restored_ends_the_job_at_once(make_env, checkpoints, tmp_path):
    env = make_env(2)
    retention = ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    env.get_checkpoint_config().set_externalized_checkpoint_retention(retention)
    numbers_job(env, RocksDBStateBackend(checkpoints, True), 10**9, tmp_path / "out")
    client = env.execute_async("retained")
    wait_for(lambda: client.get_progress()["checkpoints"] >= 1)
    client.cancel().result(120)
    [path] = tmp_path.glob("checkpoints/*/chk-*")

    other_backend = refused(
        make_env(2, execution__savepoint__path=str(path)), FsStateBackend(checkpoints), tmp_path / "out"
    )
    assert "take a savepoint there, and restore that one here" in str(other_backend)

    shared = max(path.parent.glob("shared/*.sst"), key=lambda file: file.stat().st_size)
    shared.write_bytes(shared.read_bytes()[:-1])
    damaged = refused(
        make_env(2, execution__savepoint__path=str(path)),
        RocksDBStateBackend(checkpoints, True),
        tmp_path / "out",
    )
    assert isinstance(damaged.__cause__, RestoreError)
    assert shared.name in str(damaged)
    assert (path / "_metadata").is_file()
    assert shared.is_file()
