"""Jobs whose checkpoints lie in S3 or HDFS: they restore, outlive an outage of the server, and keep their secrets."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.campaign import SEED
from tests.recovery.local_jobs import DEADLINE, Count, Numbers, board, finals, local_env, new_board
from tests.storages.conftest import Store

from tidemark import (
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    JobStatus,
    MapFunction,
    RestartStrategies,
    Types,
)
from tidemark.checkpoint.inspection import describe, verify
from tidemark.runtime.job_facts import job_facts

BACKENDS = {"heap": HashMapStateBackend, "rocksdb": lambda: EmbeddedRocksDBStateBackend(True)}
BLOCK, BLOCKS = 10, 3
OUTAGE_S = 30.0 if SEED else 2.0
"""Issues ask for half a minute, which `make chaos` waits."""

pytestmark = pytest.mark.modes(
    "auto", reason="Storage knows nothing of modes, and each request takes its time."
)


class At(MapFunction):
    """Does at chosen numbers, once, what the board says."""

    def __init__(self, board_name: str) -> None:
        self.board_name = board_name

    def map(self, value: int) -> int:
        action = board(self.board_name).values.pop(value, None)
        if action is not None:
            action()
        return value


def job(
    root: str,
    store: Store,
    backend: str,
    restarts: int,
    actions: dict[int, Callable[[], None]],
    bounded: bool = True,
) -> Any:
    """Counts numbers; each block must be covered by a checkpoint before the next begins."""
    seen = new_board()
    for number, action in actions.items():
        seen.set(number, action)
    settings = {
        **store.settings(),
        "state.checkpoints.dir": root,
        "state.backend.fs.memory-threshold": "0",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    }
    env = local_env(settings, 2, BACKENDS[backend]())
    env.enable_checkpointing(10)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(restarts, 1))
    numbers = env.add_source(Numbers(seen.name, BLOCKS, BLOCK, bounded), type_info=Types.LONG()).uid(
        "numbers"
    )
    stream = numbers.map(At(seen.name), Types.LONG())
    return stream.key_by(lambda number: number % 3, Types.LONG()).process(Count()).uid("count")


EXPECTED = dict(Counter(number % 3 for number in range(BLOCK * BLOCKS)))


def run(counted: Any) -> dict[int, int]:
    results = counted.execute_and_collect()
    client = results.get_job_client()
    found = finals(results)
    assert client.get_job_status().result(DEADLINE) is JobStatus.FINISHED
    return found


def fail() -> None:
    raise ValueError("on purpose")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_job_restores_from_its_checkpoints(store: Store, backend: str) -> None:
    root = store.new_root()
    inspected: list[Any] = []

    def look_and_fail() -> None:
        (newest,) = {key.rpartition("/")[0] for key in store.objects(root) if key.endswith("/_metadata")}
        inspected.append((describe(f"{root}/{newest}"), verify(f"{root}/{newest}")))
        fail()

    assert run(job(root, store, backend, 1, {2 * BLOCK + 1: look_and_fail})) == EXPECTED

    ((summary, problems),) = inspected
    assert problems == []
    assert {operator["uid"] for operator in summary["operators"]} >= {"numbers", "count"}


def test_an_outage_of_the_server_fails_nothing(store: Store) -> None:
    root = store.new_root()

    counted = job(root, store, "heap", 0, {BLOCK + 1: store.shut})
    results = counted.execute_and_collect()
    assert store.refused.wait(DEADLINE)
    # For so long nobody answers; what is tested is that it does not matter.
    time.sleep(OUTAGE_S)
    store.open()

    assert finals(results) == EXPECTED


def test_commands_reach_what_the_configuration_names(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = store.new_root()
    with job(root, store, "heap", 0, {}, bounded=False).execute_and_collect() as results:
        client = results.get_job_client()
        path = client.trigger_savepoint(f"{root}/savepoints").result(DEADLINE)
        client.cancel().result(DEADLINE)
    (tmp_path / "tidemark-conf.yaml").write_text(
        "".join([f"{key}: {value}\n" for key, value in store.settings().items()])
    )
    clean = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
    command = [sys.executable, "-m", "tidemark.cli.main", "--json", "inspect", path]

    done = subprocess.run(
        command,
        env={**clean, "TIDEMARK_CONF_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert not [secret for secret in store.secrets if secret in done.stdout + done.stderr]
    assert "count" in {operator["uid"] for operator in json.loads(done.stdout)["operators"]}


def test_secrets_are_in_no_object_log_or_page(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    root = store.new_root()
    shown: list[str] = []
    counted = job(root, store, "rocksdb", 1, {BLOCK + 1: fail})

    with caplog.at_level(logging.DEBUG, "tidemark"):
        results = counted.execute_and_collect()
        shown.append(repr(job_facts(results.get_job_client().runner)))
        assert finals(results) == EXPECTED
        # The job puts the level back that it found, which is this one: not behind whoever sets the former one.
        deadline = time.monotonic() + DEADLINE
        while logging.getLogger("tidemark").handlers:
            assert time.monotonic() < deadline, "the job's log stays open"
            time.sleep(0.01)

    everything = [caplog.text, *shown, *map(repr, store.objects(root).values())]
    for text in everything:
        assert not [secret for secret in store.secrets if secret in text]
