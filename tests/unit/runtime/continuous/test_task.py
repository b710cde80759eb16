"""A task over links that only note what they are sent: barriers, reading, draining, timers."""

from __future__ import annotations

import pickle

import pytest
from tests.unit.runtime.continuous.links import FakeLink, plan_of

from tidemark import (
    Encoder,
    FileSink,
    OutputTag,
    ProcessFunction,
    SourceFunction,
    Split,
    SplitReader,
    SplitSource,
    Types,
    WatermarkStrategy,
)
from tidemark.api.graph import NodeKind
from tidemark.checkpoint.layout import savepoint_location
from tidemark.clock import ManualClock
from tidemark.protocol.batch import MAX_WATERMARK, MIN_WATERMARK
from tidemark.protocol.channels import FrameKind
from tidemark.protocol.failure import OperatorFailed
from tidemark.protocol.frames import CutRequest
from tidemark.protocol.tasks import (
    AbortBarrier,
    AddSplits,
    Drain,
    EndTask,
    InjectBarrier,
    NoMoreSplits,
    Pause,
    Resume,
    TaskAcknowledged,
    TaskDirective,
    TaskProgress,
    TaskRows,
    TaskStarted,
)
from tidemark.runtime.continuous.task import ContinuousTask
from tidemark.runtime.sinks.factory import make_part
from tidemark.runtime.sources.enumeration import AssignedSplit
from tidemark.runtime.sources.splits import IndexSplit

RECORDS, TOUCH, BARRIER = FrameKind.RECORDS, FrameKind.TOUCH, FrameKind.BARRIER


TAG = OutputTag("aside", Types.STRING())


class Never(SourceFunction):
    def run(self, ctx):
        pass

    def cancel(self):
        pass


def counted(env):
    env.from_collection(["a", "b"], Types.STRING()).key_by(lambda v: v, Types.STRING()).map(
        lambda v: v
    ).print()


def pulled(env):
    env.add_source(Never()).print()


def filed(env):
    sink = FileSink.for_row_format("/nowhere", Encoder.simple_string_encoder()).build()
    env.from_collection(["a", "b"], Types.STRING()).key_by(lambda v: v, Types.STRING()).map(
        lambda v: v
    ).sink_to(sink)


class Aside(ProcessFunction):
    """Every value, and once more beside."""

    def process_element(self, value, ctx):
        yield value
        yield TAG, value


def sided(env):
    env.from_collection(["a", "b"], Types.STRING()).process(Aside(), Types.STRING()).key_by(
        lambda v: v, Types.STRING()
    ).map(lambda v: v).print()


class Drops(SplitSource):
    """Splits with two records, one after the other, and then nothing for now."""

    bounded = False

    def enumerate(self):
        return [Split("0")]

    def open(self, split, position):
        return Drop()


class Drop(SplitReader):
    def __init__(self):
        self.left = [10, 20]
        self.last = []

    def read(self, max_records, timeout_ms):
        self.last, self.left = self.left[:1], self.left[1:]
        return self.last

    def timestamps(self):
        return self.last

    def position(self):
        return 0


def dropped(env):
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    env.from_source(Drops(), strategy, "drops", Types.LONG()).key_by(lambda v: v, Types.LONG()).map(
        lambda v: v
    ).print()


class Task:
    """The only task of a job with one slot."""

    def __init__(self, build=counted, **settings):
        self.plan = plan_of(build)
        self.links: list[FakeLink] = []
        self.told: list[object] = []
        self.clock = ManualClock()
        directive = TaskDirective(attempt=3, tasks=1, **settings)
        self.source = self.plan.of_kind(NodeKind.SOURCE)[0].id
        self.task = ContinuousTask(
            self.plan,
            directive,
            0,
            self.connect,
            lambda vertex, partition, part: make_part(self.plan, directive, vertex, partition, part),
            self.told.append,
            self.clock,
        )
        [self.link] = self.links
        self.settle()

    def connect(self, slot):
        self.links.append(FakeLink())
        return self.links[-1]

    def read(self):
        self.task.obey(AddSplits(self.source, [AssignedSplit("0", IndexSplit(0, 2), 0)]))
        self.task.obey(NoMoreSplits(self.source))

    def frames(self):
        """How many frames with records were sent."""
        return self.link.kinds().count(RECORDS)

    def inject(self, checkpoint):
        request = CutRequest(checkpoint, 0, savepoint_location(f"/sp{checkpoint}"), incremental=False)
        self.task.obey(InjectBarrier(request))

    def settle(self, rounds=10):
        """Answer everything that is asked, without any records, until nothing is asked any more."""
        for _ in range(rounds):
            if self.task.waiting():
                self.link.answer(watermark=MIN_WATERMARK)
            self.task.step()

    def of(self, kind):
        return [event for event in self.told if isinstance(event, kind)]

    def acknowledged(self):
        return [event.checkpoint_id for event in self.of(TaskAcknowledged)]


@pytest.fixture
def task():
    return Task()


def test_a_task_says_that_it_runs_and_reads_what_it_is_given(task):
    assert task.told[0] == TaskStarted(0)
    task.read()
    task.task.step()

    assert task.link.kinds()[-1] == RECORDS


def test_a_barrier_waits_for_everything_under_way(task):
    task.read()
    task.task.step()
    task.inject(1)
    task.task.step()
    assert task.acknowledged() == []
    assert BARRIER not in task.link.kinds()

    task.link.answer("a", "b")
    task.task.step()

    assert task.acknowledged() == [1]
    assert task.link.kinds()[-1] == BARRIER
    assert pickle.loads(task.link.bodies[-1]).checkpoint_id == 1


def test_rows_in_front_of_a_barrier_are_told_before_it(task):
    task.read()
    task.task.step()
    task.inject(1)
    task.link.answer("a", "b")
    task.task.step()
    task.settle()

    kinds = [type(event) for event in task.told if isinstance(event, (TaskRows, TaskAcknowledged))]
    assert kinds == [TaskRows, TaskAcknowledged]


def test_an_acknowledgement_tells_where_the_readers_stand(task):
    task.inject(1)
    task.settle()
    task.read()
    task.settle()
    task.inject(2)
    task.settle()

    first, second = task.of(TaskAcknowledged)
    assert first.positions == {}
    assert second.positions == {task.source: {"0": 2}}
    assert second.ended == {task.source: ["0"]}


def test_nothing_is_read_while_a_barrier_waits(task):
    task.task.obey(Pause())
    task.read()
    task.task.step()
    task.inject(1)
    task.task.obey(Resume())
    task.task.step()

    assert task.acknowledged() == [1]
    assert RECORDS not in task.link.kinds()[: task.link.kinds().index(BARRIER)]


def test_several_barriers_are_sent_in_their_order(task):
    task.inject(1)
    task.inject(2)
    task.settle()

    assert task.acknowledged() == [1, 2]
    barriers = [
        pickle.loads(b) for h, b in zip(task.link.sent, task.link.bodies, strict=True) if h.kind == BARRIER
    ]
    assert [request.checkpoint_id for request in barriers] == [1, 2]


def test_a_barrier_that_was_given_up_is_not_sent(task):
    task.read()
    task.task.step()
    task.inject(1)
    task.inject(2)
    task.task.obey(AbortBarrier(1))
    task.settle()

    assert task.acknowledged() == [2]


def test_a_barrier_is_sent_though_every_answer_takes_longer_than_time_is_asked_for(task):
    """The input has ended here and not elsewhere: the task asks every few milliseconds how far time is."""
    task.read()
    task.settle()
    task.clock.advance(1000)
    task.task.step()
    assert task.task.waiting(), "a question is under way"

    task.inject(1)
    for _ in range(5):
        task.clock.advance(1000)
        if task.task.waiting():
            task.link.answer(watermark=MIN_WATERMARK)
        task.task.step()
        task.task.refresh()

    assert task.acknowledged() == [1]


def test_event_time_stands_still_while_a_barrier_waits():
    task = Task(dropped)
    task.task.obey(AddSplits(task.source, [AssignedSplit("0", Split("0"))]))
    task.task.step()
    task.inject(1)
    task.clock.advance(200)
    task.task.step()
    task.link.answer()
    task.task.step()

    assert task.link.kinds()[-1] == BARRIER, "nothing was put in front of it"


def test_a_barrier_is_sent_though_a_timer_sets_the_next_one_at_once(task):
    task.inject(1)
    task.task.step()
    for _ in range(5):
        if task.task.waiting():
            task.link.answer(watermark=MIN_WATERMARK, timer=task.clock.now())
        task.task.step()
    assert task.acknowledged() == [1]

    task.inject(2)
    for _ in range(5):
        task.link.answer(watermark=MIN_WATERMARK, timer=task.clock.now())
        task.task.step()
    assert task.acknowledged() == [1, 2]
    assert task.link.kinds()[-1] == TOUCH, "timers fire behind the barrier"


def test_a_paused_task_reads_nothing(task):
    task.task.obey(Pause())
    task.read()
    task.settle()
    assert RECORDS not in task.link.kinds()

    task.task.obey(Resume())
    task.settle()
    assert RECORDS in task.link.kinds()


def test_the_end_of_the_input_is_claimed_behind_the_last_record(task):
    task.read()
    task.settle()

    marks = [(header.kind, header.watermark) for header in task.link.sent]
    records = marks.index((RECORDS, MIN_WATERMARK))
    assert (TOUCH, MAX_WATERMARK) in marks[records:]


def test_a_task_is_finished_when_slots_have_said_so(task):
    task.read()
    task.settle()
    assert not any(event.finished for event in task.of(TaskProgress))

    for _ in range(5):
        if task.task.waiting():
            task.link.answer(watermark=MAX_WATERMARK)
        task.task.step()
        task.clock.advance(300)
    assert task.of(TaskProgress)[-1].finished


def test_a_timer_that_is_due_touches_its_slot(task):
    task.read()
    task.task.step()
    task.link.answer(timer=task.clock.now() + 50)
    task.settle()
    sent = len(task.link.sent)
    task.clock.advance(60)
    task.task.step()

    assert task.link.kinds()[sent:] == [TOUCH]


def test_a_drain_lets_time_end_behind_what_a_source_function_was_asked_for():
    task = Task(pulled)
    task.task.step()
    assert task.task.waiting(), "it is asked for what it has"
    task.task.obey(Drain())
    task.task.step()
    assert not task.task._time.has_ended_everywhere()

    task.link.answer("late", status={"watermark": 5, "idle": False, "barred": False, "ended": False})
    task.task.step()

    assert task.of(TaskRows), "what it gave is not lost"
    assert task.task._time.has_ended_everywhere()


def test_a_failure_in_a_slot_fails_the_task(task):
    task.read()
    task.task.step()
    task.link.fail(ValueError("poisoned"))
    with pytest.raises(OperatorFailed, match="poisoned"):
        task.task.step()


def test_an_ended_task_closes_its_links(task):
    task.task.obey(EndTask())
    assert task.task.ended
    task.task.close()
    assert task.link.closed


def test_without_a_buffer_timeout_what_is_there_is_sent_at_once():
    task = Task(dropped)
    task.task.obey(AddSplits(task.source, [AssignedSplit("0", Split("0"))]))
    task.settle()

    assert task.frames() == 2


def test_a_buffer_timeout_lets_records_wait_for_others():
    task = Task(dropped, buffer_timeout_ms=50)
    task.task.obey(AddSplits(task.source, [AssignedSplit("0", Split("0"))]))
    task.settle()
    task.clock.advance(49)
    task.settle()
    assert task.frames() == 1, "the second record waits"

    task.clock.advance(1)
    task.settle()
    assert task.frames() == 2


def test_generators_are_asked_once_per_watermark_interval():
    task = Task(dropped, watermark_interval_ms=100)
    task.task.obey(AddSplits(task.source, [AssignedSplit("0", Split("0"))]))
    task.settle()
    task.clock.advance(99)
    task.settle()
    assert {header.watermark for header in task.link.sent} == {MIN_WATERMARK}

    task.clock.advance(1)
    task.settle()
    assert task.link.sent[-1].watermark == 19, "of the newest record"


def test_a_watermark_interval_of_zero_switches_generators_off():
    task = Task(dropped, watermark_interval_ms=0)
    task.task.obey(AddSplits(task.source, [AssignedSplit("0", Split("0"))]))
    for _ in range(5):
        task.settle()
        task.clock.advance(1000)

    assert {header.watermark for header in task.link.sent} == {MIN_WATERMARK}


def finish(task):
    """Let every slot say that time is over; it is asked every few milliseconds."""
    for _ in range(5):
        task.clock.advance(5)
        if task.task.waiting():
            task.link.answer(watermark=MAX_WATERMARK)
        task.task.step()


def test_the_driver_is_told_once_per_interval_what_was_read_and_sent_since():
    task = Task(sided)
    task.told.clear()
    task.read()
    task.settle()
    assert not task.of(TaskProgress)

    task.clock.advance(200)
    task.settle()
    task.clock.advance(199)
    task.settle()
    [progress] = task.of(TaskProgress)
    assert progress.records_in == 2
    assert sum(progress.records_out.values()) == 6, "twice of the source, twice each of the function"
    assert sum(progress.side_records.values()) == 2
    assert progress.ended == {task.source: {"0": 2}}

    task.clock.advance(1)
    task.settle()
    _, progress = task.of(TaskProgress)
    assert progress.records_in == 0
    assert progress.records_out == progress.side_records == progress.ended == {}

    task.inject(1)
    task.settle()
    assert task.of(TaskAcknowledged)[0].records_in == 2, "in all of the attempt"


def test_the_driver_is_told_at_once_that_a_task_has_finished_and_only_once(task):
    task.read()
    task.settle()
    task.told.clear()
    finish(task)

    assert [progress.finished for progress in task.of(TaskProgress)] == [True]


def test_a_task_is_not_finished_while_something_is_under_way_again(task):
    task.read()
    task.settle()
    finish(task)
    task.told.clear()
    task.inject(1)
    task.task.step()
    assert [progress.finished for progress in task.of(TaskProgress)] == [False]

    finish(task)
    assert task.of(TaskProgress)[-1].finished


def test_a_barrier_lets_the_driver_know_at_once_what_was_read_in_front_of_it(task):
    task.read()
    task.settle()
    task.told.clear()
    task.inject(1)
    task.settle()

    assert [progress.records_in for progress in task.of(TaskProgress)] == [2]
    assert [acknowledged.records_in for acknowledged in task.of(TaskAcknowledged)] == [2]


class FileTask(Task):
    """A task whose slot gives records for a file sink with every answer."""

    def __init__(self, directory, **settings):
        area = directory / "claim" / "area"
        area.mkdir(0o700, parents=True)
        self.sink = plan_of(filed).of_kind(NodeKind.SINK)[0].id
        super().__init__(filed, staging={self.sink: str(area)}, **settings)

    def write(self, at):
        """Set the clock; what the slot is asked then it answers with a record."""
        self.clock.set(at)
        for _ in range(5):
            if self.task.waiting():
                self.link.answer("out")
            self.task.step()

    def published(self):
        """Which of the reports to the driver had files with them."""
        return [bool(progress.staged.get(self.sink)) for progress in self.of(TaskProgress)]


def test_files_of_a_job_without_checkpoints_are_published_once_a_second_and_at_the_end(tmp_path):
    task = FileTask(tmp_path, publish_at_once=True)
    task.read()
    for at in range(0, 2400, 400):
        task.write(at)
    assert task.published() == [False, False, True, False, False]  # At 400, 800, 1200, 1600 and 2000.

    task.write(2100)
    finish(task)
    assert task.of(TaskProgress)[-1].finished
    assert task.published()[-1]


def test_files_of_a_job_with_checkpoints_wait_for_a_barrier(tmp_path):
    task = FileTask(tmp_path)
    task.read()
    for at in range(0, 2400, 400):
        task.write(at)
    finish(task)
    assert task.of(TaskProgress)[-1].finished
    assert not any(task.published())

    task.inject(1)
    task.settle()
    [acknowledged] = task.of(TaskAcknowledged)
    assert len(acknowledged.staged[task.sink]) == 1


def test_a_clock_that_is_set_back_holds_no_files_up(tmp_path):
    task = FileTask(tmp_path, publish_at_once=True)
    task.read()
    task.write(3_600_000)
    task.write(3_600_200)
    task.told.clear()

    task.clock.set(0)
    assert task.task.patience() <= 0.2
    task.write(0)

    assert task.published() == [True]


def test_a_clock_that_is_set_back_holds_neither_records_nor_watermarks_up():
    task = Task(dropped, buffer_timeout_ms=50)
    task.clock.set(3_600_000)
    task.task.obey(AddSplits(task.source, [AssignedSplit("0", Split("0"))]))
    task.settle()
    assert task.frames() == 1

    task.clock.set(0)
    assert task.task.patience() <= 0.2
    task.settle()
    assert task.frames() == 2
    task.clock.advance(200)
    task.settle()
    assert task.link.sent[-1].watermark == 19


def test_a_task_is_patient_until_the_next_thing_is_due():
    task = Task(dropped, buffer_timeout_ms=60)
    assert task.task.patience() == 0.2, "the watermark interval"
    task.clock.advance(150)
    assert task.task.patience() == 0.05

    task.task.obey(AddSplits(task.source, [AssignedSplit("0", Split("0"))]))
    task.clock.set(200)
    task.task.step()
    task.link.answer(timer=230)
    task.task.step()
    assert task.task.patience() == 0.03, "a timer"

    task.task._timers.clear()
    assert task.task.patience() == 0.06, "a reader that cannot wake its task"
    task.task.obey(Pause())
    assert task.task.patience() == 0.2, "which is not read now"

    task.clock.set(1000)
    assert task.task.patience() == 0, "overdue"
    task.inject(1)
    assert task.task.patience() == 0.2, "only answers bring a barrier on"


def test_time_is_looked_at_often_once_the_input_has_ended(task):
    task.read()
    task.settle()

    assert task.task.patience() == 0.005
