"""One bad read condemns no snapshot, and one that was not written as it should be never completes."""

from __future__ import annotations

import io
import threading

import pytest
from tests.recovery.test_restoring import Job, expected, until

from tidemark import EmbeddedRocksDBStateBackend, HashMapStateBackend
from tidemark.checkpoint.retention import QUARANTINE_FILE
from tidemark.checkpoint.storage import FileSystemStorage


def flipped(data):
    return data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]


def missing(data):
    raise FileNotFoundError("not there just now")


FAULTS = {"flipped": flipped, "short": lambda data: data[:-7], "missing": missing}


class Misreads(FileSystemStorage):
    """Gives wrong content once, of a file with this in its path, when armed; what is stored is intact."""

    def __init__(self, part, fault):
        super().__init__(sync=False)
        self.part, self.fault, self.armed, self.bad = part, fault, threading.Event(), []

    def spoil(self, path, data):
        if self.armed.is_set() and not self.bad and self.part in path:
            self.bad.append(path)
            return self.fault(data)
        return data

    def read(self, path):
        return self.spoil(path, super().read(path))

    def open(self, path):
        with super().open(path) as stream:
            return io.BytesIO(self.spoil(path, stream.read()))


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    ("part", "backend"),
    [
        ("_metadata", HashMapStateBackend()),
        (".sst", EmbeddedRocksDBStateBackend(True)),
    ],
    ids=["metadata", "native"],
)
def test_one_bad_read_of_an_intact_snapshot_costs_nothing(tmp_path, part, backend, fault):
    storage = Misreads(part, FAULTS[fault])
    job = Job(tmp_path, storage=storage, retained=2, backend=backend).start()
    job.release(1)
    job.release(2)
    newest = []

    def arm():
        newest.append(int(job.newest().name[4:]))
        storage.armed.set()

    job.fail_at(25, arm)

    assert job.finish() is None
    assert storage.bad, "the fault was met"
    assert job.lines() == expected()
    assert not list(job.directory.rglob(QUARANTINE_FILE))
    assert job.runner.execution.attempt == 1
    assert job.runner.execution.progress.restored_from == newest[0]


class WritesHalf(FileSystemStorage):
    """Writes only half of one `_metadata`, and does not say so."""

    def __init__(self):
        super().__init__(sync=False)
        self.armed, self.halved = threading.Event(), []

    def write(self, path, data):
        half = self.armed.is_set() and not self.halved and path.endswith("_metadata")
        super().write(path, data[: len(data) // 2] if half else data)
        if half:
            self.halved.append(path)


def test_a_checkpoint_whose_metadata_was_written_in_part_fails_and_the_one_before_stays(tmp_path):
    storage = WritesHalf()
    job = Job(tmp_path, storage=storage)
    job.env.get_checkpoint_config().set_tolerable_checkpoint_failure_number(1)
    job.start()
    job.release(1)
    storage.armed.set()
    until(lambda: storage.halved)
    number = int(storage.halved[0].split("chk-")[1].split("/")[0])
    record = until(lambda: ended(job, number))
    job.release(2)
    job.fail_at(25)

    assert job.finish() is None
    assert job.lines() == expected()
    assert not record.is_completed
    assert "bytes after" in record.message


def ended(job, number):
    records = job.runner.execution.coordinator.statistics.records()
    return next((r for r in records if r.checkpoint_id == number and r.ended_at is not None), None)
