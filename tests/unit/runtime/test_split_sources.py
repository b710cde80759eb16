"""A user's `SplitSource` seen from the driver: its splits, what is stored of them, who reads which when."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pytest
from tests.unit.runtime.test_enumerators import Continuous, vertex

from tidemark import Configuration, Split, SplitReader, SplitSource, Types
from tidemark.clock import ManualClock
from tidemark.errors import ConfigError, ExecutionError, RestoreError
from tidemark.protocol.failure import OperatorFailed
from tidemark.runtime.sources.enumerators import make_enumerator
from tidemark.runtime.sources.positions import pack, start_source
from tidemark.runtime.sources.readers import open_reader
from tidemark.runtime.sources.shares import read_share
from tidemark.runtime.sources.split_driver import SplitDriverSource
from tidemark.runtime.worker import Worker

WORLD: dict[str, dict] = {}
"""What there is to read: world -> split -> records. Copies of a source share it by name."""


class WorldReader(SplitReader):
    def __init__(self, world, split, position):
        self.world, self.id = world, split.id
        self.next = 0 if position is None else position[0]

    def read(self, max_records, timeout_ms):
        WORLD[self.world].setdefault("asked", []).append((self.id, timeout_ms))
        records = WORLD[self.world]["splits"][self.id]
        first, self.next = self.next, min(len(records), self.next + max_records)
        if first == len(records):
            return None if WORLD[self.world].get("final") else []
        return records[first : self.next]

    def position(self):
        return (self.next,)


class World(SplitSource):
    bounded = False
    discovery_interval_ms = 100

    def __init__(self, world):
        self.world = world

    def enumerate(self):
        return [Split(name, (name,)) for name in WORLD[self.world]["splits"]]

    def discover(self):
        WORLD[self.world]["discovered"] = WORLD[self.world].get("discovered", 0) + 1
        return self.enumerate()

    def open(self, split, position):
        assert split.data == [split.id], "as it comes out of a snapshot"
        return WorldReader(self.world, split, position)

    def notify_checkpoint_complete(self, checkpoint_id, positions):
        WORLD[self.world].setdefault("told", []).append((checkpoint_id, dict(positions)))


class Bounded(World):
    bounded = True
    discovery_interval_ms = None


@pytest.fixture
def world(request):
    WORLD[request.node.name] = {"splits": {"a": [1, 2, 3], "b": [10, 20]}}
    yield WORLD[request.node.name]
    del WORLD[request.node.name]


@pytest.fixture
def name(request, world):
    return request.node.name


@pytest.fixture
def worker():
    made = Worker("test")
    yield made
    made.close()


class Epochs:
    """The driver side with tasks that run here."""

    def __init__(self, source, worker, parallelism=2, stored=None):
        self.vertex, self.clock = vertex(source.source_spec(), parallelism), ManualClock(1000)
        self.source = SplitDriverSource(self.vertex, self.clock, worker)
        start_source(self.source, stored)

    def shares(self):
        polled = self.source.poll()
        return [] if polled is None else [[split.id for split in share.splits] for share in polled.splits]

    def epoch(self):
        polled = self.source.poll()
        if polled is None:
            return None
        values, reached = [], {}
        for number, share in polled.numbered():
            came = reached.setdefault(number, {})
            for _split, records in read_share(self.vertex, share, 0, came):
                values += records.values
        self.source.advanced(reached)
        return values


def test_a_position_of_either_mode_starts_the_other_at_another_parallelism(world, name, worker):
    world["final"] = True
    continuous = Continuous(vertex(Bounded(name).source_spec(), 3))
    read = continuous.read("a", 2)

    epochs = Epochs(Bounded(name), worker, 1, continuous.stored())
    assert pack(epochs.source.position()) == continuous.stored()
    world["splits"]["a"].append(4)
    read += epochs.epoch()

    again = Continuous(vertex(Bounded(name).source_spec(), 2), pack(epochs.source.position()))
    assert sorted(read + again.rest()) == [1, 2, 3, 4, 10, 20]


def test_epochs_end_when_every_split_has(world, name, worker):
    world["final"] = True
    epochs = Epochs(Bounded(name), worker)

    assert sorted(epochs.epoch()) == [1, 2, 3, 10, 20]

    assert epochs.source.ended
    assert epochs.epoch() is None
    stored = pack(epochs.source.position())
    assert Epochs(Bounded(name), worker, stored=stored).source.ended
    assert Continuous(vertex(Bounded(name).source_spec()), stored).readers == {}


def test_an_unbounded_source_that_looks_for_nothing_ends_with_its_splits(world, name, worker):
    world["final"] = True
    source = World(name)
    source.discovery_interval_ms = None
    epochs = Epochs(source, worker)
    assert not epochs.source.ended

    epochs.epoch()

    assert epochs.source.ended
    assert make_enumerator(vertex(source.source_spec()), ManualClock()).bounded
    assert not make_enumerator(vertex(World(name).source_spec()), ManualClock()).bounded


def test_splits_are_discovered_at_their_interval_and_after_a_restore(world, name, worker):
    job = Continuous(vertex(World(name).source_spec()))
    world["splits"]["c"] = [100]
    job.discover()
    assert job.readers.keys() == {"a", "b"}
    job.clock.advance(100)
    job.discover()
    assert job.readers.keys() == {"a", "b", "c"}
    job.read("c", 5)

    world["splits"]["d"] = [1000]
    restored = Continuous(vertex(World(name).source_spec()), job.stored())

    assert restored.readers.keys() == {"a", "b", "c", "d"}
    assert restored.positions["c"] == [1]

    world["splits"]["e"] = []
    restored.clock.set(0)
    restored.discover()
    assert "e" in restored.readers, "a clock that was set back hides nothing"


def test_an_ended_split_is_forgotten_when_it_is_gone_but_not_before_a_barrier_has_stored_its_end(world, name):
    world["final"] = True
    job = Continuous(vertex(World(name).source_spec()))
    job.read("a", 2)
    at_barrier, ended = dict(job.positions), set(job.ended)
    job.rest()
    del world["splits"]["a"]
    job.clock.advance(100)
    job.discover()

    first = job.enumerator.position(at_barrier, ended)
    assert first["splits"]["a"] == {"data": ["a"], "position": [2], "ended": False}
    assert job.enumerator.position(job.positions, job.ended)["splits"]["a"]["ended"]
    job.clock.advance(100)
    job.discover()

    assert job.enumerator.position(job.positions, job.ended)["splits"].keys() == {"b"}


def test_a_completed_checkpoint_tells_its_own_positions(world, name):
    job = Continuous(vertex(World(name).source_spec()))
    job.read("a", 1)
    job.enumerator.position(dict(job.positions), set(), 7)
    job.read("a", 1)
    job.enumerator.position(dict(job.positions), set(), 8)
    job.enumerator.position(dict(job.positions), set(), 9)

    job.enumerator.notify_checkpoint_complete(7)
    job.enumerator.notify_checkpoint_complete(9)
    job.enumerator.notify_checkpoint_complete(8)

    assert world["told"] == [(7, {"a": [1], "b": [0]}), (9, {"a": [2], "b": [0]})]


@pytest.mark.parametrize(
    "stored",
    [
        pack(3),
        pack({"splits": 3}),
        pack({"splits": {1: {}}}),
        pack({"splits": {"a": 5}}),
        pack({"splits": {"a": {"ended": "no"}}}),
        pack({}),
        b"\x93",
    ],
)
def test_what_is_no_position_of_splits_is_refused(name, worker, stored):
    with pytest.raises(RestoreError, match="source 'in' cannot be read"):
        start_source(make_enumerator(vertex(World(name).source_spec()), ManualClock()), stored)
    with pytest.raises(RestoreError, match="source 'in' cannot be read"):
        Epochs(World(name), worker, stored=stored)


@dataclass
class Odd:
    """Something a snapshot would turn into something else."""

    field: int = 1


@pytest.mark.parametrize(
    ("splits", "why"),
    [
        ([Split("a"), Split("a")], "Two splits have the id 'a'"),
        ([Split(7)], "ids are text"),
        (["a"], "ids are text"),
        ([Split("a", Odd())], "data of split 'a' holds a Odd"),
        ([Split("a", {"at": [datetime.now(UTC)]})], "holds a datetime"),
        ([Split("a", {(1, 2): 3})], "dict key"),
        ([Split("a", 1 << 70)], "cannot be stored"),
    ],
)
def test_splits_that_cannot_be_stored_are_refused_and_name_the_source(name, splits, why):
    class Wrong(World):
        def enumerate(self):
            return splits

    enumerator = make_enumerator(vertex(Wrong(name).source_spec()), ManualClock())

    with pytest.raises(ExecutionError, match=why) as caught:
        enumerator.start(None)
    assert "Operator 'numbers' (uid in)" in str(caught.value)


class Wrong(WorldReader):
    """Does one thing wrong."""

    def __init__(self, what):
        self.what = what

    def read(self, max_records, timeout_ms):
        if self.what == "read":
            raise OSError("no route")
        return ["x"] if self.what == "type" else [1]

    def timestamps(self):
        return [1, 2] if self.what == "timestamps" else None

    def position(self):
        return Odd() if self.what == "position" else 0

    def close(self):
        if self.what == "close":
            raise OSError("stuck")


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("open", "instead of a SplitReader"),
        ("read", "no route"),
        ("type", "SerializationError"),
        ("timestamps", "gave 2 for 1 records"),
        ("position", "position of split 'a' holds a Odd"),
        ("close", "stuck"),
    ],
)
def test_what_a_reader_does_wrong_names_the_source(name, what, why):
    class Source(World):
        def open(self, split, position):
            return what if what == "open" else Wrong(what)

    source = vertex(Source(name).source_spec(), 1, Types.LONG())
    assigned = make_enumerator(source, ManualClock()).start(None)[0]

    with pytest.raises(OperatorFailed, match=why) as caught:
        reader = open_reader(source, assigned, 0)
        reader.read(1, 0)
        reader.position()
        reader.close()
    assert (caught.value.info.operator, caught.value.info.uid) == ("numbers", "in")


class Remembers(World):
    def enumerate(self):
        assert not hasattr(self, "connection")
        self.connection = os.pipe  # something made where it is needed
        return super().enumerate()

    def close(self):
        WORLD[self.world]["closed"] = WORLD[self.world].get("closed", 0) + 1
        raise OSError("only the log hears of it")


def test_a_reader_of_the_user_wakes_and_waits_as_long_as_it_is_told(world, name):
    class Waking(World):
        def open(self, split, position):
            reader = super().open(split, position)
            reader.wake_fd = lambda: 17
            return reader

    source = vertex(Waking(name).source_spec())
    reader = open_reader(source, make_enumerator(source, ManualClock()).start(None)[0], 1)

    records = reader.read(2, 0.25)

    assert (records.values, records.subtask) == ([1, 2], 1)
    assert reader.wake_fd() == 17
    assert world["asked"] == [("a", 250)]


def test_the_drivers_copy_is_its_own_and_fresh_for_every_attempt(name):
    source = Remembers(name)
    enumerator = make_enumerator(vertex(source.source_spec()), ManualClock())

    enumerator.start(None)
    enumerator.start(None)
    enumerator.stop()
    enumerator.stop()

    assert WORLD[name]["closed"] == 2
    assert not hasattr(source, "connection")


@pytest.mark.parametrize(
    ("attributes", "why"),
    [
        ({"bounded": None}, "does not say whether it ends"),
        ({"bounded": False, "discovery_interval_ms": 0}, "must be positive"),
        ({"bounded": True, "discovery_interval_ms": 5}, "is bounded"),
    ],
)
def test_a_source_that_contradicts_itself_is_refused(name, attributes, why):
    source = World(name)
    for key, value in attributes.items():
        setattr(source, key, value)

    with pytest.raises(ConfigError, match=why):
        source.source_spec()


# Who reads which split when


def test_splits_are_dealt_to_tasks_by_number_and_stay_there(world, name, worker):
    world["splits"] = {key: [1] for key in "abcde"}
    epochs = Epochs(World(name), worker)
    assert epochs.shares() == [["a", "c", "e"], ["b", "d"]]
    assert epochs.source.live_splits() == {"a": 0, "b": 1, "c": 0, "d": 1, "e": 0}

    world["splits"]["f"] = [1]
    epochs.clock.advance(100)

    assert epochs.shares() == [["a", "c", "e"], ["b", "d", "f"]]


def test_quiet_splits_rest_longer_and_are_asked_more_patiently_each_time(world, name, worker):
    world["splits"] = {"a": []}
    epochs = Epochs(World(name), worker)
    asked = []
    for _ms in range(10_000):
        if epochs.epoch() is not None:
            asked.append(epochs.clock.now() - 1000)
        epochs.clock.advance(1)

    assert asked[:6] == [0, 200, 600, 1400, 3000, 4600]
    assert [timeout for _id, timeout in world["asked"]][:6] == [50, 100, 200, 400, 400, 400]

    world["splits"]["a"].append(5)
    epochs.clock.set(0)
    assert epochs.epoch() == [5], "it does not rest until a clock that was set back is there again"
    assert epochs.epoch() == [], "it is asked again at once"
    assert epochs.shares() == []
    assert world["asked"][-1] == ("a", 50)


def test_more_splits_than_a_task_takes_have_their_turn(world, name, worker):
    world["splits"] = {f"{n:03d}": [n] for n in range(40)}
    epochs = Epochs(World(name), worker, 1)

    assert sorted(epochs.epoch() + epochs.epoch() + epochs.epoch()) == list(range(40))


def test_splits_that_an_epoch_had_no_room_for_come_first_in_the_next(world, name, worker):
    limited = Configuration.from_dict({"execution.epochs.max-records-per-task": "2"})
    world["splits"] = {"a": list(range(10)), "b": [100]}
    epochs = Epochs(World(name), worker, 1)
    epochs.vertex = replace(epochs.vertex, spec=epochs.vertex.spec.configured(limited))

    assert epochs.epoch() == [0, 1]
    assert epochs.epoch() == [100, 2]


def test_an_error_while_splits_are_looked_for_names_the_source(world, name, worker):
    epochs = Epochs(World(name), worker)
    del WORLD[name]["splits"]
    epochs.clock.advance(100)

    with pytest.raises(ExecutionError, match="Operator 'numbers'"):
        epochs.source.poll()
