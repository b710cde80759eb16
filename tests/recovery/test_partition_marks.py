"""How far each partition has come is part of a snapshot and of the job that starts from it. No JVM."""

from __future__ import annotations

import time

import pytest
from tests.recovery.local_jobs import DEADLINE, local_env

from tidemark import Duration, FileSource, StreamFormat, Types, WatermarkStrategy
from tidemark.checkpoint.metadata.registry import read_metadata
from tidemark.checkpoint.storage.filesystem import FileSystemStorage
from tidemark.runtime.watermark_generators import Generator

STRATEGY = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda line, _old: int(line))


def savepoint(tmp_path, before=None):
    """Run a job over monitored files until it has read what is there; returns its savepoint."""
    env = local_env({} if before is None else {"execution.savepoint.path": before}, parallelism=2)
    files = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path / "in"))
    lines = env.from_source(
        files.monitor_continuously(Duration.of_millis(10)).build(), WatermarkStrategy.no_watermarks(), "files"
    ).uid("files")
    stamped = lines.assign_timestamps_and_watermarks(STRATEGY).uid("stamped")
    stamped.key_by(lambda line: line, Types.STRING()).map(lambda line: line, Types.STRING()).uid(
        "last"
    ).print()
    client = env.execute_async("marks")
    deadline = time.monotonic() + DEADLINE
    while before is None and client.get_progress()["records"] < 4:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result(DEADLINE)


@pytest.mark.modes("epochs", reason="a split that has ended holds no mark in continuous execution")
def test_marks_of_partitions_are_stored_and_restored(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("5\n7\n")
    (tmp_path / "in" / "b").write_text("40\n50\n")

    first = savepoint(tmp_path)
    second = savepoint(tmp_path, first)

    stored = [read_metadata(FileSystemStorage(), path).partition_marks for path in (first, second)]
    assert stored[0].keys() == {"stamped"}
    assert stored[0] == stored[1], "the second job has read nothing: its marks are those it started from"
    generator = Generator(STRATEGY)
    generator.restore(0, stored[1]["stamped"], {"files": 1}, 0)
    generator.update(0)
    assert generator.watermark == 6, "the slower of both files"
