"""A storage that does not return holds up its job, but not whoever controls it.

The storage hangs in the one call its test chose until the test lets it go; assertions are made while it hangs.
"""

from __future__ import annotations

import threading

import pytest
from tests.recovery.local_jobs import DEADLINE, Numbers, board, lane_threads, local_env, new_board

from tidemark import (
    CustomCheckpointStorage,
    ExternalizedCheckpointRetention,
    JobStatus,
    MapFunction,
    RestartStrategies,
    Types,
)
from tidemark.checkpoint.storage import FileSystemStorage
from tidemark.runtime.job_facts import job_facts


class Hangs(FileSystemStorage):
    """Hangs in the first call of an operation on a path with that ending, once the board says "hang"."""

    def __init__(self, seen, operation, ending):
        super().__init__(sync=False)
        self.seen, self.operation, self.ending = seen, operation, ending

    def reach(self, operation, path):
        values = self.seen.values
        if operation != self.operation or not path.endswith(self.ending) or not values.get("hang"):
            return
        if not values.get("hung"):
            self.seen.set("path", path)
            self.seen.set("hung")
            self.seen.wait_set("release")
            self.seen.note("returned")

    def write(self, path, data):
        self.reach("write", path)
        super().write(path, data)

    def read(self, path):
        self.reach("read", path)
        return super().read(path)

    def is_file(self, path):
        self.reach("is_file", path)
        return super().is_file(path)

    def size(self, path):
        self.reach("size", path)
        return super().size(path)

    def list(self, path):
        self.reach("list", path)
        return super().list(path)

    def delete(self, path):
        self.reach("delete", path)
        super().delete(path)

    def delete_tree(self, path):
        self.reach("delete_tree", path)
        super().delete_tree(path)


@pytest.fixture
def seen():
    """A board; a thread that still hangs is let go at the end."""
    others = lane_threads()
    made = new_board()
    yield made
    made.set("release")
    for thread in lane_threads(others):
        thread.join(DEADLINE)


class FailsOnDemand(MapFunction):
    """Fails once if the board says so."""

    def __init__(self, board_name):
        self.board_name = board_name

    def map(self, value):
        values = board(self.board_name).values
        if values.get("fail") and not values.get("failed"):
            board(self.board_name).set("failed")
            raise ValueError("on purpose")
        return value


def submit(seen, tmp_path, operation, ending, **settings):
    env = local_env({"task.cancellation.timeout": "100 ms", **settings})
    env.enable_checkpointing(10)
    config = env.get_checkpoint_config()
    config.set_tolerable_checkpoint_failure_number(1000)
    config.set_externalized_checkpoint_retention(ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION)
    config.set_checkpoint_storage(CustomCheckpointStorage(Hangs(seen, operation, ending), str(tmp_path)))
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 1))
    numbers = env.add_source(Numbers(seen.name, blocks=1000, bounded=False), type_info=Types.LONG())
    numbers.map(FailsOnDemand(seen.name), Types.LONG()).print()
    client = env.execute_async("hung storage")
    seen.wait(lambda made: any(event[0] == "complete" for event in made.events), "a completed checkpoint")
    return client


def while_hung(seen, what):
    """The result of `what()`, which must come while the storage still hangs."""
    answers = []
    thread = threading.Thread(target=lambda: answers.append(what()), daemon=True)
    thread.start()
    thread.join(DEADLINE / 2)
    assert answers, "no answer while the storage hangs"
    assert "returned" not in seen.events
    return answers[0]


def until(condition):
    for _ in range(DEADLINE * 100):
        if found := condition():
            return found
        threading.Event().wait(0.01)
    raise AssertionError("it did not happen in time")


@pytest.mark.parametrize(
    ("operation", "ending"),
    [("write", "_metadata"), ("size", "_metadata"), ("is_file", "_metadata"), ("delete", "_metadata")],
)
def test_a_job_is_shown_and_cancelled_while_its_storage_hangs(seen, tmp_path, operation, ending):
    client = submit(seen, tmp_path, operation, ending)
    seen.set("hang")
    seen.wait_set("hung")

    assert while_hung(seen, lambda: job_facts(client.runner))["status"] == "RUNNING"
    while_hung(seen, lambda: client.cancel().result(DEADLINE))

    while_hung(seen, lambda: client.runner.join(DEADLINE) or "ended")
    assert client.get_job_status().result() is JobStatus.CANCELED


def test_a_job_is_cancelled_while_the_snapshot_it_restarts_from_is_read(seen, tmp_path):
    client = submit(seen, tmp_path, "read", "_metadata")
    seen.set("hang")
    seen.set("fail")
    seen.wait_set("hung")

    while_hung(seen, lambda: client.cancel().result(DEADLINE))

    assert client.get_job_status().result() is JobStatus.CANCELED


def test_a_cancelled_job_ends_though_its_last_cleaning_hangs(seen, tmp_path):
    client = submit(seen, tmp_path, "list", "")
    seen.set("hang")

    while_hung(seen, lambda: client.cancel().result(DEADLINE))
    while_hung(seen, lambda: client.runner.join(DEADLINE) or "ended")

    assert seen.values["hung"]
    assert client.get_job_status().result() is JobStatus.CANCELED


def test_a_write_that_was_left_behind_completes_nothing(seen, tmp_path):
    others = lane_threads()
    client = submit(seen, tmp_path, "write", "_metadata")
    seen.set("hang")
    seen.wait_set("hung")
    left = lane_threads(others)
    while_hung(seen, lambda: client.cancel().result(DEADLINE))
    while_hung(seen, lambda: client.runner.join(DEADLINE) or "ended")
    told = [event for event in seen.events if event[0] == "complete"]

    seen.set("release")
    for thread in left:
        thread.join(DEADLINE)

    assert str(tmp_path) in seen.values["path"]
    assert not [path for path in tmp_path.rglob("_metadata") if str(path) == seen.values["path"]]
    assert [event for event in seen.events if event[0] == "complete"] == told


def test_metadata_that_takes_longer_to_write_than_the_timeout_completes_its_checkpoint(seen, tmp_path):
    timeout = 2000
    client = submit(
        seen, tmp_path, "write", "_metadata", **{"execution.checkpointing.timeout": f"{timeout} ms"}
    )
    coordinator, clock = client.runner.execution.coordinator, client.runner.execution.clock
    seen.set("hang")
    seen.wait_set("hung")
    hung_at = clock.now()
    until(lambda: clock.now() > hung_at + timeout + 100)
    (pending,) = coordinator.pending()

    seen.set("release")
    until(lambda: [r for r in coordinator.statistics.records() if r.checkpoint_id > pending])

    (record,) = [r for r in coordinator.statistics.records() if r.checkpoint_id == pending]
    assert record.is_completed
    client.cancel().result(DEADLINE)
