"""The file sink's two phases: every element in exactly one visible file, whatever crashes in between."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from tests.campaign import seeds

from tidemark import (
    BucketAssigner,
    Configuration,
    Encoder,
    FileSink,
    JobStatus,
    OutputFileConfig,
    RollingPolicy,
    StreamExecutionEnvironment,
    Types,
)
from tidemark.runtime.execution import CRASH_POINTS
from tidemark.testing import CHECKPOINT, CRASH, CRASH_AT, END, RESCALE, SAVEPOINT, run_script

pytestmark = pytest.mark.modes("epochs", "continuous")


def file_sink(directory, **settings):
    builder = FileSink.for_row_format(str(directory), Encoder.simple_string_encoder())
    builder.with_bucket_assigner(settings.get("buckets", BucketAssigner.base_path_bucket_assigner()))
    builder.with_rolling_policy(settings.get("rolling", RollingPolicy.default_rolling_policy()))
    config = OutputFileConfig.builder().with_part_prefix("out").with_part_suffix(".txt").build()
    return builder.with_output_file_config(config).build()


def visible(directory):
    return [path for path in sorted(Path(directory).rglob("*")) if path.is_file() and path.name[0] != "."]


def lines(directory):
    return sorted(line for path in visible(directory) for line in path.read_text().splitlines())


def staged(directory):
    return list(Path(directory).rglob("*.inprogress"))


class OddOrEven(BucketAssigner):
    def get_bucket_id(self, element, processing_time):
        return "odd" if int(element) % 2 else "even"


def to_files(directory, **settings):
    def build(stream):
        texts = stream.map(str, Types.STRING())
        texts.sink_to(file_sink(directory, **settings)).uid("files")
        return texts

    return build


@pytest.mark.parametrize("point", CRASH_POINTS)
def test_files_hold_every_element_once_after_a_crash_at_any_point(tmp_path, point):
    elements = [str(number) for number in range(6)]
    for at in range(3):
        crashes = [[], [], []]
        crashes[at] = [CRASH_AT(point), CRASH_AT("epoch")] if point == "restore" else [CRASH_AT(point)]
        target = tmp_path / f"{point}-{at}"
        script = [0, 1, *crashes[0], CHECKPOINT, 2, 3, *crashes[1], CHECKPOINT, 4, *crashes[2], CHECKPOINT, 5]
        assert run_script(to_files(target), [*script, END], parallelism=2) == elements
        assert lines(target) == elements
        assert staged(target) == []


@pytest.mark.parametrize("seed", seeds(25))
def test_random_crashes_leave_every_line_once(tmp_path, seed):
    rng = random.Random(seed)
    events, count = [], 0
    for _ in range(rng.randint(4, 18)):
        kind = rng.choice("eeeecckkksr")
        if kind == "e":
            events.append(count)
            count += 1
        elif kind == "k":
            events.append(CRASH_AT(rng.choice(CRASH_POINTS)))
        else:
            events.append({"c": CHECKPOINT, "s": SAVEPOINT, "r": RESCALE(rng.randint(1, 3))}[kind])
        if rng.random() < 0.1:
            events.append(CRASH)
    run_script(to_files(tmp_path, buckets=OddOrEven()), [*events, END], parallelism=2)
    assert lines(tmp_path) == sorted(map(str, range(count)))
    assert staged(tmp_path) == []
    assert all(int(text) % 2 for path in visible(tmp_path / "odd") for text in path.read_text().split())


def test_nothing_is_visible_before_the_checkpoint_that_covers_it(tmp_path):
    seen = []

    def build(stream):
        stream.map(str, Types.STRING()).sink_to(file_sink(tmp_path))
        return stream.map(lambda value: seen.append(lines(tmp_path)) or value)

    run_script(build, [1, 2, CHECKPOINT, 3, CRASH, 4, END])
    assert seen == [[], [], ["1", "2"], ["1", "2"], ["1", "2"]]
    assert lines(tmp_path) == ["1", "2", "3", "4"]


def test_two_sinks_may_share_a_directory(tmp_path):
    def build(stream):
        stream.map(lambda n: f"a{n}", Types.STRING()).sink_to(file_sink(tmp_path)).uid("a")
        stream.map(lambda n: f"b{n}", Types.STRING()).sink_to(file_sink(tmp_path)).uid("b")
        return stream

    run_script(build, [1, CRASH_AT("after-metadata"), CHECKPOINT, 2, CRASH_AT("commit"), CHECKPOINT, 3, END])
    assert lines(tmp_path) == ["a1", "a2", "a3", "b1", "b2", "b3"]


def test_large_files_are_rolled_and_named_as_configured(tmp_path):
    rolling = RollingPolicy.default_rolling_policy(part_size=10)
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"execution.target": "local"})
    )
    env.set_parallelism(1)
    stream = env.from_collection([f"line {n}" for n in range(5)], Types.STRING())
    stream.sink_to(file_sink(tmp_path, rolling=rolling))
    env.execute()
    names = [path.name for path in visible(tmp_path)]
    assert lines(tmp_path) == [f"line {n}" for n in range(5)]
    assert all(name.startswith("out-") and name.endswith(".txt") for name in names)


class SleepyFileServer(MemoryFileSystem):
    """Renames nothing the first time."""

    protocol = "sleepy"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    troubles: ClassVar[list[OSError]] = []

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.replace("sleepy://", "memory://"))

    def mv(self, path1, path2, **options):
        if self.troubles:
            raise self.troubles.pop()
        super().mv(path1, path2, **options)


def test_a_job_that_fails_after_the_commit_point_still_commits_what_its_checkpoint_covers():
    fsspec.register_implementation("sleepy", SleepyFileServer, clobber=True)
    SleepyFileServer.store.clear()
    SleepyFileServer.troubles.append(OSError("the file server sleeps"))
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"execution.target": "local", "restart-strategy": "none"})
    )
    env.set_parallelism(1)
    env.enable_checkpointing(60_000)
    env.from_collection(["x", "y"], Types.STRING()).sink_to(file_sink("sleepy://out"))
    client = env.execute_async()

    assert "the file server sleeps" in str(client.get_job_execution_result().exception(30))
    assert client.get_job_status().result() is JobStatus.FAILED
    files = fsspec.filesystem("sleepy")
    assert sorted(b"".join(files.cat(files.find("/out")).values()).split()) == [b"x", b"y"]
    assert not [name for name in files.find("/") if "tidemark" in name or "inprogress" in name]


def test_output_is_as_readable_as_the_umask_says_and_staged_files_are_private(tmp_path):
    modes = []

    def build(stream):
        stream.map(str, Types.STRING()).sink_to(file_sink(tmp_path))
        return stream.map(
            lambda value: modes.extend(p.parent.stat().st_mode for p in staged(tmp_path)) or value
        )

    before = os.umask(0o027)
    try:
        run_script(build, [1, 2, CHECKPOINT, 3, END])
    finally:
        os.umask(before)

    assert {path.stat().st_mode & 0o777 for path in visible(tmp_path)} == {0o640}
    assert modes
    assert {mode & 0o777 for mode in modes} == {0o700}
