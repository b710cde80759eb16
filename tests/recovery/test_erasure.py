"""Forgetting one key in a running job: state, timers, windows and the checkpoints it retains, with a proof."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tidemark import (
    CheckpointedFunction,
    Configuration,
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    KeyedProcessFunction,
    ListStateDescriptor,
    RestartStrategies,
    SourceFunction,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)
from tidemark.cli.main import cli
from tidemark.errors import ConfigError
from tidemark.state_processor import erase_from_job
from tidemark.state_processor.erasure import rows_of_key

DEADLINE = 60
LATER = 10**15
PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
SECRET = "ann-who-wants-to-be-forgotten"
FAILURES = threading.Semaphore(0)
"""Each permit makes a job fail once."""


class Payments(SourceFunction, CheckpointedFunction):
    """The secret key first; then others, for ever."""

    def initialize_state(self, context: Any) -> None:
        self.position = context.get_operator_state_store().get_list_state(
            ListStateDescriptor("position", Types.LONG())
        )
        self.number = sum(self.position.get())

    def snapshot_state(self, context: Any) -> None:
        self.position.update([self.number])

    def run(self, ctx: Any) -> None:
        self.stopped = threading.Event()
        while not self.stopped.wait(0 if self.number < 30 else 0.01):
            with ctx.get_checkpoint_lock():
                self.number += 1
                name = SECRET if self.number <= 10 else f"other-{self.number % 5}"
                ctx.collect((name, self.number))

    def cancel(self) -> None:
        self.stopped.set()


class Total(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        if FAILURES.acquire(blocking=False):
            raise RuntimeError("as the test asked")
        self.total.update((self.total.value() or 0) + value[1])
        ctx.timer_service().register_event_time_timer(LATER)
        yield value[0], value[1]


class ByNumber(KeyedProcessFunction):
    """Keys of another type, which the secret does not fit."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        yield value


@pytest.fixture(
    params=[HashMapStateBackend, lambda: EmbeddedRocksDBStateBackend(True)],
    ids=["incremental-heap", "rocksdb"],
)
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    configuration = Configuration()
    for key, value in {
        "execution.target": "local",
        "state.checkpoints.dir": f"file://{tmp_path}/checkpoints",
        "state.checkpoints.num-retained": "3",
        "state.backend.incremental": "true",
    }.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    env.set_state_backend(request.param())
    env.enable_checkpointing(3_600_000)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(20, 10))
    keyed = env.add_source(Payments(), type_info=PAIR).uid("payments").key_by(lambda p: p[0], Types.STRING())
    totals = keyed.process(Total(), PAIR).uid("totals")
    totals.key_by(lambda p: p[0], Types.STRING()).count_window(100).reduce(lambda a, b: a).uid(
        "windows"
    ).print()
    totals.key_by(lambda p: p[1] % 3, Types.LONG()).process(ByNumber()).uid("numbers").print()
    client = env.execute_async("payments")
    wait_for(lambda: client.get_progress()["state_entries"] > 8)
    for _ in range(3):
        client.runner.checkpoint().result(DEADLINE)
    yield client
    client.cancel().result(DEADLINE)


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def checkpoints(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "checkpoints").glob("*/chk-*"))


def holding(tmp_path: Path, text: str) -> list[Path]:
    found = []
    for path in (tmp_path / "checkpoints").rglob("*"):
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):
            if text.encode() in path.read_bytes():
                found.append(path)
    return found


KEYS = {uid: SECRET.encode() for uid in ("totals", "windows")}


def test_a_running_job_forgets_a_key_and_proves_it(
    job: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    old = checkpoints(tmp_path)
    assert len(old) == 3
    assert all(rows_of_key(str(path), KEYS) > 0 for path in old)

    proof = erase_from_job(str(job.get_job_id()), SECRET, tmp_path / "proof.json")

    assert proof.complete
    assert proof.facts["erased"]["totals"] == {"total": 1, "_timers/event": 1}
    assert proof.facts["erased"]["windows"]
    assert "numbers" not in proof.facts["erased"]
    assert not any(path.exists() for path in old)
    assert [each["rows_found"] for each in proof.facts["checkpoints"]] == [0, 0, 0]
    assert all(rows_of_key(str(path), KEYS) == 0 for path in checkpoints(tmp_path))
    assert rows_of_key(str(checkpoints(tmp_path)[-1]), {"totals": b"other-1"}) > 0
    # RocksDB's MANIFEST, which may lie in _metadata, keeps the borders of files it had: the proof says so.
    spared = () if "heap" in request.node.callspec.id else ("_metadata", "MANIFEST-000005")
    wait_for(lambda: all(path.name.endswith(spared) for path in holding(tmp_path, SECRET)))


@pytest.mark.modes("epochs", reason="what the proof says does not depend on the mode")
def test_the_proof_tells_no_key_and_can_be_checked(job: Any, tmp_path: Path) -> None:
    path = tmp_path / "proof.json"
    asked = ["erase", "--job", str(job.get_job_id())[:8], "--key", SECRET, "--proof", str(path)]
    assert CliRunner().invoke(cli, asked).exit_code == 0
    text = path.read_text()
    assert SECRET not in text
    facts = json.loads(text)
    digest = facts.pop("sha256")
    assert digest == hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    newest = facts["checkpoints"][-1]
    metadata = Path(newest["directory"].removeprefix("file://")) / "_metadata"
    assert hashlib.sha256(metadata.read_bytes()).hexdigest() == newest["metadata_sha256"]
    assert CliRunner().invoke(cli, asked).exit_code != 0
    assert path.read_text() == text


def test_a_restart_amid_it_does_not_bring_the_key_back(job: Any, tmp_path: Path) -> None:
    """The job fails between two of the new checkpoints: what was restored is erased again."""
    taken = []
    checkpoint = job.runner.checkpoint

    def failing() -> Any:
        taken.append(1)
        if len(taken) == 1:
            attempt = job.runner.execution.attempt
            FAILURES.release()
            wait_for(lambda: job.runner.execution.attempt > attempt)
        return checkpoint()

    job.runner.checkpoint = failing

    proof = erase_from_job(str(job.get_job_id()), SECRET, tmp_path / "proof.json")

    assert proof.complete
    assert proof.facts["attempt"] > 0
    assert len(taken) > 3
    assert all(rows_of_key(str(path), KEYS) == 0 for path in checkpoints(tmp_path))


@pytest.mark.modes("epochs", reason="what the proof says does not depend on the mode")
def test_what_cannot_be_erased_is_refused_and_leaves_no_proof(job: Any, tmp_path: Path) -> None:
    for key, uids in [(SECRET, ["numbers"]), (SECRET, ["payments"]), (SECRET, ["nobody"])]:
        with pytest.raises(ConfigError):
            erase_from_job(str(job.get_job_id()), key, tmp_path / "proof.json", uids)
        assert not (tmp_path / "proof.json").exists()
    with pytest.raises(ConfigError, match="proof"):
        erase_from_job(str(job.get_job_id()), SECRET, tmp_path / "no" / "proof.json")
