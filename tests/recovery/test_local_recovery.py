"""A slot restores from its own disk where local recovery is on, and from storage where the copy is damaged."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tidemark import (
    CheckpointListener,
    Configuration,
    FsStateBackend,
    KeyedProcessFunction,
    RestartStrategies,
    SourceFunction,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)
from tidemark.api.functions import CheckpointedFunction
from tidemark.state.descriptors import ListStateDescriptor


class Numbers(SourceFunction, CheckpointedFunction, CheckpointListener):
    """Emits half of its numbers, waits for a checkpoint, then the other half."""

    def initialize_state(self, context: Any) -> None:
        self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("n", Types.LONG()))
        self.next = next(iter(self.state.get()), 0)
        self.completed = context.is_restored()
        self.running = True

    def snapshot_state(self, context: Any) -> None:
        self.state.update([self.next])

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.completed = self.completed or self.next >= 50

    def run(self, ctx: Any) -> None:
        while self.running and self.next < 100:
            if self.next == 50 and not self.completed:
                continue
            with ctx.get_checkpoint_lock():
                ctx.collect(self.next)
                self.next += 1

    def cancel(self) -> None:
        self.running = False


class CountThenBreak(KeyedProcessFunction):
    """Counts per key; on the first attempt, half way, it lets `sabotage` loose and fails."""

    def __init__(self, sabotage: Any) -> None:
        self.sabotage = sabotage

    def open(self, runtime_context: Any) -> None:
        self.attempt = runtime_context.get_attempt_number()
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Any:
        if value == 60 and self.attempt == 0:
            self.sabotage()
            raise RuntimeError("scripted failure")
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield ctx.get_current_key(), count


def run(tmp_path: Path, sabotage: Any, *, local: bool, incremental: bool = False) -> list[Any]:
    configuration = Configuration()
    configuration.set_string("execution.target", "local")
    configuration.set_string("state.backend.local-recovery", str(local).lower())
    configuration.set_string("taskmanager.state.local.root-dirs", str(tmp_path / "local"))
    configuration.set_string("state.backend.fs.memory-threshold", "0")
    configuration.set_string("state.backend.incremental", str(incremental).lower())
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(1)
    env.enable_checkpointing(20)
    env.set_state_backend(FsStateBackend(str(tmp_path / "durable")))
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 10))
    counted = (
        env.add_source(Numbers()).key_by(lambda n: n % 5, Types.LONG()).process(CountThenBreak(sabotage))
    )
    return list(counted.execute_and_collect())


def remove_durable_files(tmp_path: Path) -> Any:
    def sabotage() -> None:
        for file in (tmp_path / "durable").rglob("*.parquet"):
            file.unlink()

    return sabotage


@pytest.mark.parametrize("incremental", [False, True])
def test_a_slot_restores_from_its_own_disk_when_storage_lost_the_files(tmp_path, incremental):
    results = run(tmp_path, remove_durable_files(tmp_path), local=True, incremental=incremental)

    assert Counter(key for key, _ in results) == dict.fromkeys(range(5), 20)
    assert max(count for _, count in results) == 20
    assert not list((tmp_path / "local").rglob("chk-*")), "copies go when the job ends"


def test_without_local_recovery_lost_files_fail_the_job(tmp_path):
    with pytest.raises(Exception, match=r"parquet"):
        run(tmp_path, remove_durable_files(tmp_path), local=False)


@pytest.mark.parametrize("damage", ["missing", "flipped"])
def test_a_damaged_copy_falls_back_to_storage(tmp_path, damage):
    def sabotage() -> None:
        for file in (tmp_path / "local").rglob("*.parquet"):
            if damage == "flipped":
                data = bytearray(file.read_bytes())
                data[len(data) // 2] ^= 0xFF
                file.write_bytes(bytes(data))
        if damage == "missing":
            shutil.rmtree(tmp_path / "local", ignore_errors=True)

    results = run(tmp_path, sabotage, local=True)

    assert Counter(key for key, _ in results) == dict.fromkeys(range(5), 20)


@pytest.mark.parametrize("local", [True, False])
def test_copies_of_a_job_that_was_killed_go_with_the_next_start(tmp_path: Path, local: bool) -> None:
    copies = tmp_path / "local" / f"tidemark-copies-{os.geteuid()}"
    for job, owner in (("killed", ".owner"), ("of nobody", "other")):
        (copies / job / "slot-0").mkdir(parents=True)
        (copies / job / owner).touch(mode=0o600)
    copies.chmod(0o700)

    run(tmp_path, lambda: None, local=local)

    assert [path.name for path in copies.iterdir()] == ["of nobody"]
