"""Rolling sinks, shares of time, and sources whose splits go to tasks."""

from __future__ import annotations

from tests.unit.runtime.continuous.links import plan_of

from tidemark.api.graph import NodeKind
from tidemark.plan.vertex import Vertex
from tidemark.protocol.reports import TaskReport
from tidemark.runtime.continuous.latency import LatencyProbe
from tidemark.runtime.continuous.shares import Shares
from tidemark.runtime.continuous.sinks import RollingSink
from tidemark.runtime.continuous.source import EnumeratedSource
from tidemark.runtime.records import Records
from tidemark.runtime.sources.enumeration import AssignedSplit, Enumerator
from tidemark.runtime.worker import Worker


class Part:
    def __init__(self, number, log):
        self.number, self.log, self.written = number, log, []

    def write(self, records):
        self.written += records.values

    def rows(self):
        taken, self.written = self.written, []
        return taken

    def close(self, report):
        report.staged.setdefault(0, []).append((self.number, self.written))


def rolling(log):
    return RollingSink(None, 3, lambda vertex, partition, part: Part((partition, part), log))


def test_every_barrier_closes_a_part_and_the_next_record_begins_another():
    sink, report = rolling([]), TaskReport(-1, 0)
    sink.write(Records([1]))
    sink.write(Records([2]))
    sink.close(report)
    sink.write(Records([3]))
    sink.close(report)

    assert report.staged == {0: [((3, 0), [1, 2]), ((3, 1), [3])]}


def test_nothing_is_left_behind_where_nothing_was_written_between_two_barriers():
    sink, report = rolling([]), TaskReport(-1, 0)
    sink.close(report)
    sink.close(report)

    assert report.staged == {}
    assert sink.rows() == []


def test_rows_are_those_since_the_last_call():
    sink = rolling([])
    sink.write(Records(["a"]))
    assert sink.rows() == ["a"]
    assert sink.rows() == []


def test_time_is_busy_within_a_step_and_waiting_or_idle_between_them():
    now = [0.0]
    shares = Shares(lambda: now[0])

    def passes(seconds):
        now[0] += seconds

    passes(1)
    shares.begin()
    passes(2)
    shares.end(waiting=True)
    passes(4)
    shares.begin()
    passes(8)
    shares.end(waiting=False)
    passes(16)
    shares.begin()

    assert shares.take() == (10_000, 4_000, 17_000)
    assert shares.take() == (0, 0, 0)


def test_a_read_is_followed_through_all_its_hops_and_one_at_a_time():
    now = [0.0]
    probe = LatencyProbe(lambda: now[0])
    probe.begin()
    assert probe.sent()
    probe.pushed()
    assert not probe.sent(), "that frame is of something else"

    now[0] = 1.0
    probe.resume()
    assert probe.sent(), "the answer goes on to another slot"
    probe.answered()
    probe.begin()
    assert not probe.sent(), "one is still followed"
    probe.pushed()
    assert probe.take() is None

    now[0] = 1.5
    probe.resume()
    probe.answered()
    assert (probe.take(), probe.take()) == (1500.0, None)


def test_a_read_that_goes_nowhere_is_over_when_it_is_pushed():
    now = [0.0]
    probe = LatencyProbe(lambda: now[0])
    probe.begin()
    now[0] = 0.25
    probe.pushed()
    probe.begin()
    now[0] = 9.0
    probe.pushed()

    assert probe.take() == 250.0, "no other one is followed before this one is told"
    assert probe.take() is None


WORKER = Worker("test")


class Listed(Enumerator):
    """Two splits at first; `discover` gives what the test has put there."""

    def __init__(self, vertex: Vertex, *, bounded: bool) -> None:
        super().__init__(vertex)
        self.bounded = bounded
        self.found: list[AssignedSplit] = []
        self.told: list[object] = []

    def start(self, position):
        self.told.append(("start", position))
        return [AssignedSplit("a", None), AssignedSplit("b", None)]

    def discover(self, now_ms):
        found, self.found = self.found, []
        return found

    def split_ended(self, split_id, position):
        self.told.append(("ended", split_id, position))

    def position(self, positions, ended, checkpoint_id=None):
        return {"at": positions, "ended": sorted(ended), "id": checkpoint_id}

    def notify_checkpoint_complete(self, checkpoint_id):
        self.told.append(("complete", checkpoint_id))

    def stop(self):
        self.told.append("stop")


def enumerated(*, bounded=False):
    plan = plan_of(lambda env: env.from_collection([1]).print())
    enumerator = Listed(plan.of_kind(NodeKind.SOURCE)[0], bounded=bounded)
    return EnumeratedSource(enumerator.vertex, enumerator, WORKER), enumerator


def test_splits_are_numbered_in_the_order_in_which_they_are_found():
    source, enumerator = enumerated()
    source.start(None)
    assert [(n, s.id) for n, s in source.take_new()] == [(0, "a"), (1, "b")]
    assert source.take_new() == []

    enumerator.found = [AssignedSplit("c", None)]
    assert [(n, s.id) for n, s in source.discover(0)] == [(2, "c")]

    source.start("again")
    assert [n for n, _s in source.take_new()] == [0, 1], "a new attempt counts anew"


def test_a_bounded_source_is_complete_and_looks_for_nothing_new():
    source, enumerator = enumerated(bounded=True)
    source.start(None)
    source.take_new()
    enumerator.found = [AssignedSplit("c", None)]

    assert source.is_complete
    assert source.discover(0) == []


def test_a_split_ends_once_however_often_tasks_say_so():
    source, enumerator = enumerated()
    source.start(None)
    source.ended_splits({"a": 7})
    source.ended_splits({"a": 7, "b": 9})

    assert enumerator.told[1:] == [("ended", "a", 7), ("ended", "b", 9)]


def test_a_snapshot_stores_what_tasks_said_at_the_barrier():
    source, enumerator = enumerated()
    source.start(None)

    source.read_out({"b": 9})
    assert source.position_at(3, {}) == {"at": {"b": 9}, "ended": ["b"], "id": 3}
    assert source.position_at(4, {"a": 1}) == {"at": {"a": 1, "b": 9}, "ended": ["b"], "id": 4}
    source.notify_checkpoint_complete(4)
    source.stop()
    WORKER.call(lambda: None)
    assert enumerator.told[1:] == [("complete", 4), "stop"]


def test_a_function_in_slots_has_no_splits_and_no_position():
    plan = plan_of(lambda env: env.from_collection([1]).print())
    source = EnumeratedSource(plan.of_kind(NodeKind.SOURCE)[0], None, WORKER)
    source.start(b"old")

    assert source.is_complete
    assert source.take_new() == source.discover(0) == []
    assert source.position_at(1, {}) is None
    source.notify_checkpoint_complete(1)
    source.stop()
