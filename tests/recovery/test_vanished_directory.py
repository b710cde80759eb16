"""The checkpoint directory is moved away or deleted under a running job: what completes can be restored."""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections import Counter
from pathlib import Path

import pytest
from tests.recovery.local_jobs import DEADLINE, Count, Numbers, board, finals, local_env, new_board

from tidemark import (
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    JobManagerCheckpointStorage,
    JobStatus,
    MapFunction,
    RestartStrategies,
    Types,
)
from tidemark.checkpoint.inspection import verify

BACKENDS = [HashMapStateBackend, lambda: EmbeddedRocksDBStateBackend(True)]
BLOCK = 5


class Steps(MapFunction):
    """Does at chosen numbers what the board says."""

    def __init__(self, board_name):
        self.board_name = board_name

    def map(self, value):
        action = board(self.board_name).values.pop(value, None)
        if action is not None:
            action()
        return value


class Job:
    """Counts numbers; every block of five has to be covered by a checkpoint before the next begins."""

    def __init__(self, tmp_path, backend, blocks, parallelism=1):
        self.seen = new_board()
        self.started = threading.Event()
        self.last = blocks * BLOCK
        self.root = tmp_path / "checkpoints"
        self.away = tmp_path / "away"
        env = self.env = local_env(
            {"state.checkpoints.dir": str(self.root), "state.backend.fs.memory-threshold": "0"},
            parallelism,
            backend(),
        )
        env.enable_checkpointing(10)
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 1))
        numbers = env.add_source(Numbers(self.seen.name, blocks, BLOCK), type_info=Types.LONG())
        stream = numbers.uid("numbers").map(Steps(self.seen.name), Types.LONG())
        self.counted = stream.key_by(lambda n: n % 3, Types.LONG()).process(Count()).uid("count")

    def at(self, number, *actions):
        """Do something when that number passes, once."""
        self.seen.set(number, lambda: [action() for action in actions])

    def run(self):
        results = self.counted.execute_and_collect()
        self.client = results.get_job_client()
        self.started.set()
        found = finals(results)
        assert self.client.get_job_status().result(DEADLINE) is JobStatus.FINISHED
        return found

    def directory(self):
        [found] = [path for path in self.root.iterdir() if path.is_dir()]
        return found

    def move_away(self):
        os.rename(self.directory(), self.away)

    def bring_back_instead(self):
        """What has been written meanwhile goes, the old directory takes its place."""
        directory = self.directory()
        shutil.rmtree(directory)
        os.rename(self.away, directory)

    def bring_back_merged(self):
        shutil.copytree(self.away, self.directory(), dirs_exist_ok=True)

    def delete(self):
        shutil.rmtree(self.directory())

    def lose_a_file(self):
        """Lose one shared file only, as a careless clean-up does."""
        sorted((self.directory() / "shared").iterdir())[0].unlink()


def fail():
    raise ValueError("on purpose")


def expected(last):
    return dict(Counter(number % 3 for number in range(last)))


@pytest.mark.parametrize("backend", BACKENDS, ids=["heap", "rocksdb"])
@pytest.mark.parametrize("back", ["never", "instead", "merged"])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_job_whose_directory_was_moved_away_restores_exactly(tmp_path, backend, back, parallelism):
    job = Job(tmp_path, backend, 8, parallelism)
    # A checkpoint that is just being written when its directory changes is lost; the next one is not.
    job.env.get_checkpoint_config().set_tolerable_checkpoint_failure_number(9)
    job.at(2 * BLOCK + 1, job.move_away)
    if back != "never":
        job.at(5 * BLOCK + 1, getattr(job, f"bring_back_{back}"))
    job.at(7 * BLOCK + 2, fail)

    assert job.run() == expected(job.last)


def test_the_log_says_that_the_directory_is_gone(tmp_path, caplog):
    job = Job(tmp_path, BACKENDS[1], 4)
    job.at(2 * BLOCK + 1, job.delete)

    with caplog.at_level(logging.WARNING):
        assert job.run() == expected(job.last)

    assert "has vanished from" in caplog.text
    assert "written in full" in caplog.text


def test_one_lost_shared_file_makes_the_next_checkpoint_a_full_one(tmp_path):
    job = Job(tmp_path, BACKENDS[1], 6)
    found = []
    job.at(3 * BLOCK + 1, job.lose_a_file)

    def check_newest():
        number = max(int(path.parent.name[4:]) for path in job.directory().glob("chk-*/_metadata"))
        found.extend(verify(str(job.directory() / f"chk-{number}")))

    job.at(5 * BLOCK + 2, check_newest, fail)

    assert job.run() == expected(job.last)
    assert found == []


@pytest.mark.parametrize("backend", BACKENDS, ids=["heap", "rocksdb"])
def test_files_that_vanish_while_the_metadata_is_written_do_not_complete_a_checkpoint(tmp_path, backend):
    job = Job(tmp_path, backend, 5)
    bad = []

    def strike(point):
        if point == "before-metadata" and not bad:
            bad.append(max(int(path.name[4:]) for path in job.directory().glob("chk-*")))
            job.delete()

    def arm():
        assert job.started.wait(DEADLINE)
        job.client.runner.execution.reached = strike

    job.at(2 * BLOCK + 1, arm)
    job.at(4 * BLOCK + 2, fail)

    assert job.run() == expected(job.last)
    completed = [event[1] for event in job.seen.events if event[0] == "complete"]
    assert bad
    assert bad[0] not in completed


def test_incremental_checkpoints_without_a_directory_write_nothing_outside_of_the_memory(tmp_path):
    job = Job(tmp_path, BACKENDS[1], 3)
    job.env.get_checkpoint_config().set_checkpoint_storage(JobManagerCheckpointStorage())
    job.at(2 * BLOCK + 2, fail)

    assert job.run() == expected(job.last)
    assert not Path("/memory").exists()
