"""Event time over partitioned sources: whatever tasks Spark makes of partitions, nothing in order is late. No JVM."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark import Duration, FileSource, StreamExecutionEnvironment, StreamFormat, WatermarkStrategy
from tidemark.clock import ManualClock
from tidemark.errors import ConfigError, RestoreError
from tidemark.formats.files import FileFormat
from tidemark.plan.job_plan import build_plan
from tidemark.protocol.batch import MIN_WATERMARK
from tidemark.protocol.reports import TaskReport
from tidemark.runtime.sources import driver
from tidemark.runtime.sources.origins import by_origin
from tidemark.runtime.watermark_generators import Generator, Picture, Seen
from tidemark.runtime.watermarks import WatermarkTracker

MONOTONOUS = WatermarkStrategy.for_monotonous_timestamps()
IDLE_MS = 100


class Frame:
    """A streaming DataFrame as far as the API looks at it."""

    isStreaming = True

    def __init__(self, columns: list[str], *sources: str) -> None:
        long = SimpleNamespace(typeName=lambda: "long")
        self.schema = SimpleNamespace(fields=[SimpleNamespace(name=c, dataType=long) for c in columns])
        leaves = [
            SimpleNamespace(
                isStreaming=lambda: True,
                sourceName=lambda name=name: name,
                getClass=lambda: SimpleNamespace(getSimpleName=lambda: "StreamingRelationV2"),
            )
            for name in sources
        ]
        found = SimpleNamespace(size=lambda: len(leaves), apply=lambda at: leaves[at])
        plan = SimpleNamespace(analyzed=lambda: SimpleNamespace(collectLeaves=lambda: found))
        self._jdf = SimpleNamespace(queryExecution=lambda: plan)


class Job:
    """A stream behind an assigner, its tracker fed with the reports of made-up tasks."""

    def __init__(self, strategy: WatermarkStrategy = MONOTONOUS, **stream: Any) -> None:
        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_parallelism(2)
        frame = stream.pop("frame", None)
        if frame is not None:
            source = env.from_spark_stream(frame, **stream)
        else:
            files = FileSource.for_record_stream_format(StreamFormat.text_line_format(), stream["path"])
            source = env.from_source(files.build(), WatermarkStrategy.no_watermarks(), "files")
        stamped = source.name("s").uid("s").assign_timestamps_and_watermarks(strategy).name("t").uid("t")
        stamped.key_by(lambda value: 0).map(lambda value: value).name("op").uid("op").print()
        graph, settings, _caches = env._prepared("job")
        self.plan = build_plan(graph, settings, "0" * 32)
        self.ids = {vertex.name: vertex.id for vertex in self.plan.vertices.values()}
        self.tracker = WatermarkTracker(self.plan)
        self.now = 0

    def epoch(
        self, *stamps: int | None, origins: list[dict[tuple[Any, ...], int]] = (), splits: list[str] = ()
    ) -> int:
        """Tasks with these newest timestamps report; returns the watermark of the assigner."""
        reports = []
        for at in range(max(len(stamps), len(origins))):
            report = TaskReport(self.ids["s"], at)
            report.observed = {self.ids["t"]: stamps[at] if stamps else None}
            report.origins = {self.ids["t"]: origins[at]} if origins else {}
            report.split = splits[at] if splits else None
            reports.append(report)
        self.tracker.observe(reports, self.now)
        return self.mark

    @property
    def mark(self) -> int:
        return self.tracker.marks()["t"]

    def restarted(self) -> None:
        marks, partitions = self.tracker.marks(), self.tracker.partition_marks()
        self.tracker = WatermarkTracker(self.plan)
        self.tracker.restore(marks, partitions, self.now)


def kafka(**stream: Any) -> Job:
    return Job(frame=Frame(["topic", "partition", "value"], "kafka"), **stream)


def test_a_kafka_partition_without_new_data_holds_the_watermark_back() -> None:
    job = kafka()

    assert job.epoch(origins=[{("t", 0): 100}, {("t", 1): 40}]) == 39
    assert job.epoch(origins=[{("t", 0): 500}]) == 39, "partition 1 had no task"
    assert job.epoch(origins=[{("t", 1): 300}, {("t", 0): 600}]) == 299, "tasks in another order"


def test_a_quiet_kafka_partition_is_not_overtaken_after_a_restore() -> None:
    job = kafka()
    job.epoch(origins=[{("t", 0): 100, ("t", 1): 40}])

    job.restarted()

    assert job.epoch(origins=[{("t", 0): 500}]) == 39
    assert job.epoch(origins=[{("t", 1): 450}]) == 449


def test_a_checkpoint_without_marks_of_partitions_keeps_the_watermark() -> None:
    job = kafka()
    job.epoch(origins=[{("t", 0): 100, ("t", 1): 40}])
    marks = job.tracker.marks()

    job.tracker = WatermarkTracker(job.plan)
    job.tracker.restore(marks)

    assert job.mark == 39
    assert job.epoch(origins=[{("t", 0): 20}]) == 39
    assert job.epoch(origins=[{("t", 0): 70}]) == 69


@pytest.mark.parametrize("stored", [b"", b"\xc1", b"\x81\xa5named\x91\x93\xa1s\x80\x01"])
def test_damaged_marks_of_partitions_are_refused(stored: bytes) -> None:
    with pytest.raises(RestoreError, match="damaged"):
        Generator(MONOTONOUS).restore(0, stored, {"s": 1}, 0)


def test_an_idle_partition_is_released() -> None:
    job = kafka(strategy=MONOTONOUS.with_idleness(Duration.of_millis(IDLE_MS)))
    job.epoch(origins=[{("t", 0): 100, ("t", 1): 40}])

    job.now = IDLE_MS
    assert job.epoch(origins=[{("t", 0): 500}]) == 499


def test_columns_named_by_the_user_tell_partitions_apart() -> None:
    job = Job(frame=Frame(["shard", "value"], "my_source"), partition_by="shard")

    assert job.epoch(origins=[{(0,): 100}, {(1,): 40}]) == 39
    assert job.epoch(origins=[{(0,): 500}]) == 39


def test_partition_by_must_name_a_column() -> None:
    with pytest.raises(ConfigError, match=r"'shart'.*shard, value"):
        Job(frame=Frame(["shard", "value"], "my_source"), partition_by=["shart"])


@pytest.mark.parametrize("name", ["socket", "memory"])
def test_sources_that_cannot_be_replayed_are_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match=f"'{name}'.*not replayable"):
        Job(frame=Frame(["value"], "rate", name))


def test_files_that_were_read_hold_nothing_back() -> None:
    job = Job(frame=Frame(["value"], "FileSource[/in]", "FileSource[/other]"))

    assert job.epoch(100, 40) == 39
    assert job.epoch(None, 90) == 89, "a task without records says nothing"
    assert job.epoch(None) == 89
    assert job.epoch(50) == 89, "watermarks never go back"
    assert job.epoch(95) == 94, "but what was newest in task 0 earlier does not count"


def test_tasks_without_identity_hold_the_watermark_back_until_all_have_reported() -> None:
    job = Job(frame=Frame(["value"], "my_source"))

    assert job.epoch(100, None) == MIN_WATERMARK, "the second task is yet to report"
    assert job.epoch(200, 40) == 39
    assert job.epoch(300) == 39
    assert job.epoch(400, 350) == 349


def test_a_crowd_follows_what_was_reported_within_the_idle_timeout() -> None:
    strategy = MONOTONOUS.with_idleness(Duration.of_millis(IDLE_MS))
    job = Job(frame=Frame(["value"], "my_source"), strategy=strategy)

    assert job.epoch(10, 12) == 9
    job.now = 60
    assert job.epoch(100) == 9, "the other one is not idle yet"
    job.now = 90
    assert job.epoch(20) == 9
    job.now = 120
    job.tracker.tick(job.now)
    assert job.mark == 19, "whoever is not idle has reported 20 or more"
    job.now = 190
    job.tracker.tick(job.now)
    assert job.mark == 19, "all are idle"


def test_a_crowd_is_not_overtaken_after_a_restore() -> None:
    job = Job(frame=Frame(["value"], "my_source"))
    job.epoch(200, 40)

    job.restarted()

    assert job.epoch(500) == 39
    assert job.epoch(501, 450) == 449


@pytest.mark.parametrize("other", ["kafka", "rate"])
def test_a_stream_of_two_kinds_is_a_crowd(other: str) -> None:
    job = Job(frame=Frame(["topic", "partition"], "FileSource[/in]", other))

    job.epoch(100, 40)

    assert job.epoch(500) == 39


def test_a_file_that_was_begun_is_read_on_before_another(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(FileFormat, "units_per_epoch", 1)
    (tmp_path / "b").write_text("1\n" * 100_000)
    (tmp_path / "c").write_text("1\n" * 100_000)
    job = Job(path=str(tmp_path))
    source = driver.FilesSource(job.plan.vertices[job.ids["s"]], ManualClock())
    source.start(None)
    begun = source.poll()
    assert begun is not None
    source.advanced({at: (split.path, 1000) for at, split in begun.numbered()})

    (tmp_path / "a").write_text("1\n")
    source._list()

    polled = source.poll()
    assert polled is not None
    assert [split.path for split in polled.splits] == [str(tmp_path / "b"), str(tmp_path / "c")]


def test_files_keep_their_marks_when_their_numbers_change(tmp_path: Any) -> None:
    job = Job(path=str(tmp_path))

    assert job.epoch(500, 40, splits=["a", "b"]) == 39
    assert job.epoch(60, splits=["b"]) == 59, "b is number 0 now, and a is over"


@st.composite
def partitioned_streams(draw: Any) -> tuple[int, list[list[tuple[int, int]]]]:
    """Partitions and epochs; an epoch is a list of (partition, records), in the order of tasks."""
    count = draw(st.integers(1, 4))
    epoch = st.lists(
        st.tuples(st.integers(0, count - 1), st.integers(1, 3)),
        max_size=count,
        unique_by=lambda task: task[0],
    )
    return count, draw(st.lists(epoch, max_size=20))


@given(
    partitioned_streams(),
    st.lists(st.integers(0, 50), min_size=1, max_size=30),
    st.one_of(st.none(), st.just(IDLE_MS)),
    st.integers(0, 60),
)
def test_nothing_in_order_is_late_in_a_crowd(
    stream: tuple[int, list[list[tuple[int, int]]]], steps: list[int], timeout: int | None, pause: int
) -> None:
    count, epochs = stream
    strategy = MONOTONOUS if timeout is None else MONOTONOUS.with_idleness(Duration.of_millis(timeout))
    generator, now, drawn = Generator(strategy), 0, 0
    newest = dict.fromkeys(range(count), 0)
    active = dict.fromkeys(range(count), 0)
    overtaken: set[int] = set()
    # Every partition has a task once; whoever is left out of that epoch is not known to exist.
    whole = [(partition, 1) for partition in range(count)]
    for epoch in [whole, *epochs]:
        now += pause
        generator.update(now)
        # As in Flink, a partition that was idle may come back behind the watermark.
        overtaken |= {p for p in active if timeout is not None and now - active[p] >= timeout}
        stamps = []
        for partition, records in epoch:
            for _ in range(records):
                newest[partition] += steps[drawn % len(steps)]
                drawn += 1
                assert partition in overtaken or newest[partition] > generator.watermark
            active[partition] = now
            if newest[partition] > generator.watermark:
                overtaken.discard(partition)
            stamps.append((None, newest[partition]))
        generator.observe([Seen(1, Picture.CROWD, stamps)], now)
        if len(epoch) == count:
            assert generator.watermark >= min(newest.values()) - 1, "all have reported"
    if timeout is not None and newest:
        alone = max(newest.values()) + 1000
        for _ in range(2):
            now += timeout
            generator.observe([Seen(1, Picture.CROWD, [(None, alone)])], now)
        assert generator.watermark == alone - 1, "the others are idle"


def test_rows_are_taken_apart_by_origin_in_their_order() -> None:
    batch = pa.RecordBatch.from_pydict(
        {"topic": ["a", "b", "a", None, "a"], "p": [0, 0, 1, 0, 0], "v": [1, 2, 3, 4, 5]}
    )

    parts = {origin: part.column("v").to_pylist() for origin, part in by_origin(batch, [0, 1])}

    assert parts == {("a", 0): [1, 5], ("b", 0): [2], ("a", 1): [3], (None, 0): [4]}
    alike = batch.filter(pa.array([True, False, False, False, True]))
    assert [(origin, part.equals(alike)) for origin, part in by_origin(alike, [0, 1])] == [(("a", 0), True)]
    assert not list(by_origin(batch.slice(0, 0), [0]))


def test_a_watermark_follows_a_record_before_its_instance_is_called_idle() -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_idleness(Duration.of_millis(100))
    generator = Generator(strategy)

    # Asked only once per watermark interval, which is longer than the timeout.
    generator.take([Seen(1, Picture.PARTIAL, [("p", 500)])], 0)
    generator.update(200)
    followed = generator.watermark, generator.idle
    generator.update(400)

    assert followed == (499, False)
    assert (generator.watermark, generator.idle) == (499, True)
