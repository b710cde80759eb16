"""Event time on the channels of one task: claims never overtake what could still come."""

from __future__ import annotations

import pytest
from tests.unit.runtime.continuous.links import plan_of

from tidemark import Duration, SourceFunction, Types, WatermarkStrategy
from tidemark.api.graph import NodeKind
from tidemark.protocol.batch import MAX_WATERMARK, MIN_WATERMARK
from tidemark.runtime.continuous.channel_time import ChannelTime
from tidemark.runtime.watermarks import Mark

MONOTONOUS = WatermarkStrategy.for_monotonous_timestamps()
OVER = Mark(MAX_WATERMARK)


class Never(SourceFunction):
    def run(self, ctx):
        pass

    def cancel(self):
        pass


def keyed(stream):
    return stream.key_by(lambda v: v, Types.LONG()).map(lambda v: v)


def chain(strategy):
    def build(env):
        source = env.from_collection([1], Types.LONG()).uid("numbers")
        stamped = (
            source if strategy is None else source.assign_timestamps_and_watermarks(strategy).uid("stamped")
        )
        keyed(keyed(stamped).uid("first")).uid("second").print()

    return plan_of(build, 2)


class Task:
    """The time of a task, by uid."""

    def __init__(self, plan, marks=None):
        self.plan = plan
        self.ids = {vertex.uid: vertex.id for vertex in plan.vertices.values()}
        self.time = ChannelTime(plan, marks or {}, {}, 0)
        self.source = plan.of_kind(NodeKind.SOURCE)[0].id

    def claim(self, uid):
        return self.time.claims()[self.ids[uid]]

    def stamped(self, split, newest, now=0):
        self.time.stamped(self.ids["stamped"], self.source, split, newest)
        self.time.tick(now)


def test_without_timestamps_time_stands_until_the_source_has_ended():
    task = Task(chain(None))
    task.time.open_split(task.source, "a")
    task.time.assigned(task.source)
    assert task.claim("first") == Mark(MIN_WATERMARK)

    task.time.complete(task.source)
    assert task.claim("first") == Mark(MIN_WATERMARK)
    task.time.close_split(task.source, "a")
    assert task.time.has_ended(task.source)
    assert task.claim("first") == OVER


def test_the_slowest_split_counts_and_one_without_records_holds_everything_back():
    task = Task(chain(MONOTONOUS))
    for split in ("a", "b"):
        task.time.open_split(task.source, split)
    task.stamped("a", 100)
    assert task.claim("first").time == MIN_WATERMARK

    task.stamped("b", 50)
    assert task.claim("first").time == 49
    task.stamped("b", 200)
    assert task.claim("first").time == 99


def test_a_split_that_has_ended_holds_nothing_back():
    task = Task(chain(MONOTONOUS))
    for split in ("a", "b"):
        task.time.open_split(task.source, split)
    task.stamped("a", 10)
    task.stamped("b", 50)
    task.time.close_split(task.source, "a")
    task.time.tick(0)

    assert task.claim("first").time == 49


def test_an_idle_split_holds_nothing_back_until_it_speaks_again():
    task = Task(chain(MONOTONOUS.with_idleness(Duration.of_millis(10))))
    for split in ("a", "b"):
        task.time.open_split(task.source, split)
    task.stamped("a", 10)
    task.stamped("b", 50, now=5)
    assert task.claim("first").time == 9
    task.stamped("b", 60, now=14)
    assert task.claim("first").time == 59

    task.stamped("a", 20, now=15)
    assert task.claim("first").time == 59, "time never goes back"


def test_a_task_without_splits_calls_its_channel_idle_once_it_knows():
    task = Task(chain(None))
    assert not task.claim("first").idle, "splits may be on their way"
    task.time.assigned(task.source)
    assert task.claim("first").idle


def test_a_claim_behind_a_slot_vertex_is_what_its_slowest_subtask_has_answered():
    task = Task(chain(MONOTONOUS))
    task.time.open_split(task.source, "a")
    task.stamped("a", 100)
    first = task.ids["first"]
    assert task.claim("first").time == 99
    assert task.claim("second").time == MIN_WATERMARK

    task.time.passed(first, 0, 99, False)
    assert task.claim("second").time == MIN_WATERMARK
    task.time.passed(first, 1, 40, False)
    assert task.claim("second").time == 40


def test_answers_out_of_order_never_take_time_back():
    task = Task(chain(None))
    task.time.passed(task.ids["first"], 0, 10, False)
    task.time.passed(task.ids["first"], 1, 10, False)
    task.time.passed(task.ids["first"], 0, 5, False)
    assert task.claim("second").time == 10


def test_changed_says_whether_a_claim_may_have_moved():
    task = Task(chain(None))
    task.time.claims()
    assert not task.time.changed
    task.time.passed(task.ids["first"], 0, MIN_WATERMARK, False)
    assert not task.time.changed, "it said nothing new"
    task.time.passed(task.ids["first"], 0, 3, False)
    assert task.time.changed


def test_it_is_over_when_the_end_has_passed_every_vertex():
    task = Task(chain(None))
    task.time.complete(task.source)
    assert task.time.has_ended_everywhere()
    assert not task.time.is_over()
    for uid in ("first", "second"):
        for slot in (0, 1):
            task.time.passed(task.ids[uid], slot, MAX_WATERMARK, False)
    assert task.time.is_over()


def test_a_restored_task_claims_what_the_snapshot_stood_at():
    task = Task(chain(MONOTONOUS), {"stamped": 70, "first": 70, "second": 30})
    task.time.open_split(task.source, "a")

    assert task.claim("first").time == 70
    assert task.claim("second").time == 70
    task.stamped("a", 50)
    assert task.claim("first").time == 70


def test_a_split_says_itself_how_far_time_is():
    task = Task(chain(None))
    task.time.open_split(task.source, "a")
    assert task.time.marked(task.source, "a", 10)
    assert not task.time.marked(task.source, "a", 10)
    assert task.claim("first").time == 10
    task.time.open_split(task.source, "b")
    assert task.claim("first").time == MIN_WATERMARK


@pytest.fixture
def pulling():
    task = Task(
        plan_of(lambda env: keyed(env.add_source(Never(), type_info=Types.LONG())).uid("first").print())
    )
    task.time.complete(task.source)
    return task


def test_a_source_function_ends_when_it_says_so(pulling):
    pulling.time.pull(pulling.source, 0)
    assert not pulling.time.has_ended(pulling.source)
    pulling.time.pulled(pulling.source, 0, 10, False)
    assert pulling.claim("first").time == 10
    pulling.time.pulled(pulling.source, 0, MAX_WATERMARK, False)
    assert pulling.time.has_ended(pulling.source)
    assert pulling.claim("first") == OVER


def test_a_task_that_pulls_from_no_function_has_nothing_to_say_of_it(pulling):
    assert pulling.time.has_ended(pulling.source)


def test_a_drain_ends_every_source_here(pulling):
    pulling.time.pull(pulling.source, 0)
    pulling.time.end_all()
    assert pulling.claim("first") == OVER

    task = Task(chain(MONOTONOUS))
    task.time.open_split(task.source, "a")
    task.time.end_all()
    assert task.time.has_ended_everywhere()
    assert task.claim("first") == OVER


def test_marks_of_a_snapshot_are_those_of_sources_assigners_and_slot_vertices():
    task = Task(chain(MONOTONOUS))
    task.time.open_split(task.source, "a")
    task.stamped("a", 100)

    marks = {task.plan.vertices[key].uid: mark for key, mark in task.time.marks().items()}

    assert marks["stamped"] == (99, False)
    assert marks["first"] == (99, False)
    assert marks["second"] == (MIN_WATERMARK, False)
    [(uid, split, newest)] = task.time.partition_marks()[task.ids["stamped"]]
    assert (uid, split, newest) == ("numbers", "a", 100)


def test_a_subtask_that_other_tasks_may_have_moved_is_asked():
    task = Task(chain(None))
    first = task.ids["first"]
    assert task.time.may_have_moved(first, 0, Mark(5))
    task.time.passed(first, 0, 5, False)
    assert not task.time.may_have_moved(first, 0, Mark(5))
    assert task.time.may_have_moved(first, 0, Mark(5, idle=True))
