"""Watermarks across the graph, epoch by epoch."""

from __future__ import annotations

from typing import Any

from tidemark import Duration, SourceFunction, StreamExecutionEnvironment, WatermarkStrategy
from tidemark.plan.job_plan import JobPlan, build_plan
from tidemark.protocol.batch import MAX_WATERMARK, MIN_WATERMARK
from tidemark.protocol.reports import TaskReport
from tidemark.runtime.watermarks import WatermarkTracker

MONOTONOUS = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value)


class Numbers(SourceFunction):
    def run(self, ctx: Any) -> None:
        ctx.collect(1)

    def cancel(self) -> None:
        pass


class Job:
    """A plan under construction, and its tracker driven by hand."""

    def __init__(self, parallelism: int = 1) -> None:
        self.env = StreamExecutionEnvironment.get_execution_environment()
        self.env.set_parallelism(parallelism)
        self.now = 0

    def start(self) -> Job:
        graph, settings, _caches = self.env._prepared("job")
        self.plan: JobPlan = build_plan(graph, settings, "0" * 32)
        self.ids = {vertex.name: vertex.id for vertex in self.plan.vertices.values()}
        self.tracker = WatermarkTracker(self.plan)
        return self

    def epoch(self, *tasks: tuple[str, int, dict[str, int | None]]) -> dict[str, int]:
        """Run an epoch whose tasks (source, partition, observed) saw something; returns its watermarks."""
        directive = self.tracker.directive()
        self.tracker.epoch_done(directive)
        reports = []
        for source, partition, observed in tasks:
            report = TaskReport(self.ids[source], partition)
            report.observed = {self.ids[name]: newest for name, newest in observed.items()}
            reports.append(report)
        self.tracker.observe(reports, self.now)
        names = {key: name for name, key in self.ids.items()}
        return {names[key]: mark for key, mark in directive.items()}

    def mark(self, name: str) -> int:
        """Watermark the vertex has in the next epoch."""
        return self.tracker.directive().get(self.ids[name], MIN_WATERMARK)

    def end(self, *sources: str) -> None:
        for source in sources:
            self.tracker.source(self.ids[source], ended=True)

    def keyed(self, stream: Any, name: str) -> Any:
        return stream.key_by(lambda value: 0).map(lambda value: value).name(name)


def test_a_watermark_moves_one_slot_operator_per_epoch() -> None:
    job = Job()
    stamped = job.env.from_collection([1]).name("s").assign_timestamps_and_watermarks(MONOTONOUS).name("t")
    first = job.keyed(stamped, "first")
    job.keyed(first.map(lambda value: value), "second").print()
    job.start()

    assert job.epoch(("s", 0, {"t": 10})) == {}
    assert (job.mark("first"), job.mark("second")) == (9, MIN_WATERMARK)
    job.epoch()
    assert (job.mark("first"), job.mark("second")) == (9, 9)
    assert job.tracker.travelling()
    job.epoch()
    assert not job.tracker.travelling()


def test_the_end_of_input_travels_like_a_watermark_and_ends_the_job() -> None:
    job = Job()
    job.keyed(job.keyed(job.env.from_collection([1]).name("s"), "first"), "second").print()
    job.start()
    job.epoch(("s", 0, {}))

    job.end("s")
    job.epoch()
    assert not job.tracker.finished()
    job.epoch()

    assert job.tracker.finished()
    assert job.mark("second") == MAX_WATERMARK


def test_union_and_connect_take_the_minimum() -> None:
    job = Job()
    strategy = MONOTONOUS
    left = job.env.from_collection([1]).name("l").assign_timestamps_and_watermarks(strategy).name("tl")
    right = job.env.from_collection([1]).name("r").assign_timestamps_and_watermarks(strategy).name("tr")
    job.keyed(left.union(right), "both").print()
    job.start()

    job.epoch(("l", 0, {"tl": 100}))
    assert job.mark("both") == MIN_WATERMARK
    job.epoch(("r", 0, {"tr": 50}))
    assert job.mark("both") == 49
    job.end("r")
    assert job.mark("both") == 99


def test_an_assigner_behind_a_union_follows_the_newest_of_its_subtask() -> None:
    job = Job()
    left, right = job.env.add_source(Numbers()).name("l"), job.env.add_source(Numbers()).name("r")
    job.keyed(left.union(right).assign_timestamps_and_watermarks(MONOTONOUS).name("t"), "op").print()
    job.start()

    job.epoch(("r", 0, {"t": 5}))
    job.epoch(("l", 0, {"t": 100}))

    assert job.mark("op") == 99


def test_a_subtask_of_a_source_function_that_is_behind_holds_the_watermark_back() -> None:
    job = Job(parallelism=2)
    from tidemark import ParallelSourceFunction

    class Parallel(ParallelSourceFunction):
        def run(self, ctx: Any) -> None:
            ctx.collect(1)

        def cancel(self) -> None:
            pass

    stamped = job.env.add_source(Parallel()).name("s").assign_timestamps_and_watermarks(MONOTONOUS).name("t")
    job.keyed(stamped, "op").print()
    job.start()

    job.epoch(("s", 0, {"t": 10}), ("s", 1, {"t": 12}))
    assert job.mark("op") == 9
    job.epoch(("s", 1, {"t": 500}))
    assert job.mark("op") == 9
    job.epoch(("s", 0, {"t": 300}))
    assert job.mark("op") == 299


def test_partitions_that_are_gone_hold_nothing_back() -> None:
    job = Job(parallelism=4)
    stamped = job.env.from_collection([1]).name("s").assign_timestamps_and_watermarks(MONOTONOUS).name("t")
    job.keyed(stamped, "op").print()
    job.start()

    job.epoch(("s", 0, {"t": 10}), ("s", 1, {"t": 12}))
    job.epoch(("s", 0, {"t": 200}))

    assert job.mark("op") == 199


def test_an_epoch_without_input_moves_nothing() -> None:
    job = Job(parallelism=2)
    stamped = job.env.from_collection([1]).name("s").assign_timestamps_and_watermarks(MONOTONOUS).name("t")
    job.keyed(stamped, "op").print()
    job.start()
    job.epoch(("s", 0, {"t": 500}), ("s", 1, {"t": 10}))

    report = TaskReport(-1, 0)
    report.observed = {job.ids["t"]: None}
    job.tracker.observe([report], 0)

    assert job.mark("op") == 9


def test_idle_inputs_are_left_out_until_they_speak_again() -> None:
    job = Job()
    strategy = MONOTONOUS.with_idleness(Duration.of_millis(100))
    left = job.env.add_source(Numbers()).name("l").assign_timestamps_and_watermarks(strategy).name("tl")
    right = job.env.add_source(Numbers()).name("r").assign_timestamps_and_watermarks(strategy).name("tr")
    job.keyed(left.union(right), "op").print()
    job.start()
    job.epoch(("l", 0, {"tl": 10}), ("r", 0, {"tr": 20}))
    assert job.mark("op") == 9

    job.now = 150
    job.epoch(("r", 0, {"tr": 300}))
    job.tracker.tick(150)
    assert job.mark("op") == 299
    job.epoch(("l", 0, {"tl": 50}))

    assert job.mark("op") == 299, "watermarks never go back"


def test_when_all_inputs_are_idle_nobody_holds_the_fastest_back() -> None:
    """Otherwise it would depend on which of two inputs that went quiet together was noticed first."""
    job = Job()
    strategy = MONOTONOUS.with_idleness(Duration.of_millis(100))
    left = job.env.add_source(Numbers()).name("l").assign_timestamps_and_watermarks(strategy).name("tl")
    right = job.env.add_source(Numbers()).name("r").assign_timestamps_and_watermarks(strategy).name("tr")
    job.keyed(left.union(right), "op").print()
    job.start()
    job.epoch(("l", 0, {"tl": 10}), ("r", 0, {"tr": 300}))
    assert job.mark("op") == 9

    job.now = 150
    job.tracker.tick(150)

    assert job.mark("op") == 299


def test_an_input_stays_idle_behind_functions_that_only_pass_records() -> None:
    job = Job()
    strategy = MONOTONOUS.with_idleness(Duration.of_millis(100))
    left = job.env.add_source(Numbers()).name("l").assign_timestamps_and_watermarks(strategy).name("tl")
    right = job.env.add_source(Numbers()).name("r").assign_timestamps_and_watermarks(strategy).name("tr")
    job.keyed(left.map(lambda value: value).union(right), "op").print()
    job.start()
    job.epoch(("l", 0, {"tl": 10}), ("r", 0, {"tr": 20}))

    job.now = 150
    job.epoch(("r", 0, {"tr": 300}))
    job.tracker.tick(150)

    assert job.mark("op") == 299


def test_watermarks_of_a_source_function_are_its_own() -> None:
    job = Job()
    job.keyed(job.env.add_source(Numbers()).name("s"), "op").print()
    job.start()

    job.tracker.source(job.ids["s"], 70)
    assert job.mark("op") == 70
    job.tracker.source(job.ids["s"], 30)
    assert job.mark("op") == 70


def test_stop_with_drain_ends_every_source() -> None:
    job = Job()
    job.keyed(job.env.add_source(Numbers()).name("s"), "op").print()
    job.start()

    job.tracker.end_all()

    assert job.mark("op") == MAX_WATERMARK


def test_a_restored_tracker_stands_where_it_stood() -> None:
    job = Job()
    stamped = job.env.from_collection([1]).name("s").assign_timestamps_and_watermarks(MONOTONOUS).name("t")
    job.keyed(stamped, "op").print()
    job.start()
    job.epoch(("s", 0, {"t": 10}))
    job.epoch()
    marks = job.tracker.marks()

    job.tracker = WatermarkTracker(job.plan)
    assert job.tracker.restore(marks) == marks
    assert job.mark("op") == 9
    assert not job.tracker.travelling()


def test_a_source_the_checkpoint_does_not_know_starts_time_again() -> None:
    job = Job()
    job.keyed(job.env.from_collection([1]).name("s"), "op").print()
    job.start()

    assert job.tracker.restore({"somebody else": 7}) == {}
    assert job.mark("op") == MIN_WATERMARK
