"""Splits and readers of the built-in sources: what they read, and positions that mean the same in epochs."""

from __future__ import annotations

import os
import random
import select
import socket
from dataclasses import replace

import pytest

from tidemark import FileSource, NumberSequenceSource, StreamFormat, Types
from tidemark.api.graph import NodeKind
from tidemark.api.specs import (
    CollectionSourceSpec,
    FunctionSourceSpec,
    SocketSourceSpec,
    SparkBatchSourceSpec,
)
from tidemark.clock import ManualClock
from tidemark.errors import RestoreError
from tidemark.formats.files import TextLineFormat
from tidemark.plan.vertex import Placement, Vertex
from tidemark.protocol.failure import OperatorFailed
from tidemark.runtime.sources.driver import CollectionSource, FilesSource, SequenceSource
from tidemark.runtime.sources.enumerators import can_run_continuously, make_enumerator
from tidemark.runtime.sources.positions import pack, start_source
from tidemark.runtime.sources.readers import open_reader
from tidemark.runtime.sources.splits import read_split


def vertex(spec, parallelism=2, output_type=None):
    return Vertex(
        id=1,
        kind=NodeKind.SOURCE,
        name="numbers",
        uid="in",
        spec=spec,
        inputs=(),
        input_types=(),
        parallelism=parallelism,
        max_parallelism=128,
        placement=Placement.TASK,
        output_type=output_type,
        side_types={},
    )


class Continuous:
    """What a job does with an enumerator and its readers, in this thread."""

    def __init__(self, source, stored=None, clock=None):
        self.vertex, self.clock = source, clock or ManualClock(1000)
        self.enumerator = make_enumerator(source, self.clock)
        self.readers, self.positions, self.ended = {}, {}, set()
        self.open(start_source(self.enumerator, stored))

    def open(self, assigned):
        for split in assigned:
            assert split.id not in self.readers
            self.readers[split.id] = open_reader(self.vertex, split, 0)
            self.positions[split.id] = self.readers[split.id].position()

    def discover(self):
        self.open(self.enumerator.discover(self.clock.now()))

    def read(self, split_id, count):
        """Up to `count` records of a split."""
        records = self.readers[split_id].read(count, 0)
        self.positions[split_id] = self.readers[split_id].position()
        if records is None:
            self.ended.add(split_id)
            self.enumerator.split_ended(split_id, self.positions[split_id])
        return [] if records is None else records.values

    def rest(self, count=3):
        """Everything, split after split in turns."""
        values = []
        while live := self.readers.keys() - self.ended:
            for split_id in sorted(live):
                values += self.read(split_id, count)
        return values

    def stored(self):
        return pack(self.enumerator.position(dict(self.positions), set(self.ended)))


class Epochs:
    """The same with the driver side and the tasks of epochs."""

    MAKE = {"collection": CollectionSource, "sequence": SequenceSource}

    def __init__(self, source, stored=None, clock=None):
        self.vertex = source
        clock = clock or ManualClock(1000)
        make = self.MAKE.get(source.spec.kind)
        self.source = FilesSource(source, clock) if make is None else make(source)
        start_source(self.source, stored)

    def epoch(self):
        polled = self.source.poll()
        values, positions = [], {}
        if polled is not None:
            for number, split in polled.numbered():
                for records, position in read_split(self.vertex.spec, split, self.vertex.output_type, 0):
                    values += records.values
                    positions[number] = position
            self.source.advanced(positions)
        return values

    def rest(self):
        values = []
        while not self.source.ended and (more := self.epoch()):
            values += more
        return values

    def stored(self):
        return pack(self.source.position())


@pytest.fixture
def specs(tmp_path, monkeypatch):
    """Kind of source -> (spec, everything it has to give)."""
    monkeypatch.setattr("tidemark.runtime.sources.driver._ELEMENTS_PER_EPOCH", 4)
    monkeypatch.setattr("tidemark.runtime.sources.driver._NUMBERS_PER_EPOCH", 4)
    monkeypatch.setattr(TextLineFormat, "units_per_epoch", 4)
    monkeypatch.setattr("tidemark.formats.files.READ_BATCH", 1)
    for name in "abc":
        (tmp_path / name).write_text("".join(f"{name}{n}\n" for n in range(7)))
    files = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path)).build()
    return {
        "collection": (CollectionSourceSpec(list(range(10))), list(range(10))),
        "sequence": (NumberSequenceSource(5, 30).source_spec(), list(range(5, 31))),
        "files": (files.source_spec(), [f"{name}{n}" for name in "abc" for n in range(7)]),
    }


KINDS = ["collection", "sequence", "files"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_readers_give_everything_once(specs, kind, parallelism):
    spec, everything = specs[kind]

    job = Continuous(vertex(spec, parallelism))

    assert can_run_continuously(spec)
    assert sorted(job.rest()) == everything


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_position_of_readers_starts_epochs_at_any_parallelism(specs, kind, parallelism):
    spec, everything = specs[kind]
    job = Continuous(vertex(spec, 2))
    read = [value for split_id in list(job.readers)[:2] for value in job.read(split_id, 3)]

    read += Epochs(vertex(spec, parallelism), job.stored()).rest()

    assert sorted(read) == everything


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_position_of_epochs_starts_readers_at_any_parallelism(specs, kind, parallelism):
    spec, everything = specs[kind]
    job = Epochs(vertex(spec, 2))
    read = job.epoch()

    read += Continuous(vertex(spec, parallelism), job.stored()).rest()

    assert len(job.epoch()) > 0, "the epoch has left something"
    assert sorted(read) == everything


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(20))
def test_any_chain_of_modes_and_parallelisms_reads_everything_once(specs, kind, seed):
    spec, everything = specs[kind]
    rng = random.Random(seed)
    read, stored = [], None

    for _job in range(6):
        source = vertex(spec, rng.randint(1, 4))
        if rng.random() < 0.5:
            epochs = Epochs(source, stored)
            for _epoch in range(rng.randint(0, 1)):
                read += epochs.epoch()
            stored = epochs.stored()
        else:
            readers = Continuous(source, stored)
            for _read in range(rng.randint(0, 3) if readers.readers else 0):
                live = sorted(readers.readers.keys() - readers.ended)
                read += readers.read(rng.choice(live), rng.randint(1, 5)) if live else []
            stored = readers.stored()
    read += Continuous(vertex(spec, 2), stored).rest()

    assert sorted(read) == everything


@pytest.mark.parametrize("kind", KINDS)
def test_both_modes_store_the_same_position_at_the_end(specs, kind):
    spec, _everything = specs[kind]
    epochs, continuous = Epochs(vertex(spec)), Continuous(vertex(spec))

    epochs.rest()
    continuous.rest()

    ends = [continuous.stored(), epochs.stored()]
    if kind != "sequence":
        assert ends[0] == ends[1]
    for stored in ends:
        assert Continuous(vertex(spec), stored).rest() == []
        assert Epochs(vertex(spec), stored).rest() == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "stored",
    [b"\xc1", pack("here"), pack({"a": -1}), pack([[1]]), pack(-1), pack([["a", "b"]]), pack({"a": "b"})],
)
def test_what_is_no_position_is_refused(specs, kind, stored):
    enumerator = make_enumerator(vertex(specs[kind][0]), ManualClock())

    with pytest.raises(RestoreError, match="source 'in' cannot be read"):
        start_source(enumerator, stored)


def test_a_barrier_stores_what_was_read_before_it_though_splits_have_ended_since(tmp_path, monkeypatch):
    monkeypatch.setattr("tidemark.formats.files.READ_BATCH", 1)
    (tmp_path / "a").write_text("1\n2\n3\n")
    files = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path)).build()
    job = Continuous(vertex(files.source_spec()))
    path = str(tmp_path / "a")
    job.read("0", 1)
    at_barrier, ended = dict(job.positions), set(job.ended)
    job.rest()

    assert job.enumerator.position(at_barrier, ended) == {path: 2}
    assert job.enumerator.position({}, set()) == {path: 0}


def test_new_files_of_a_watched_directory_are_splits_and_appended_lines_become_another(tmp_path):
    clock = ManualClock(1000)
    (tmp_path / "a").write_text("1\n")
    watched = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path))
    spec = watched.monitor_continuously(100).build().source_spec()
    job = Continuous(vertex(spec), clock=clock)
    epochs = Epochs(vertex(spec), clock=clock)
    assert job.rest() == epochs.rest() == ["1"]

    (tmp_path / "b").write_text("2\n")
    with open(tmp_path / "a", "a") as stream:
        stream.write("3\n")
    job.discover()
    assert job.rest() == [], "it is too early to look"
    clock.advance(100)
    job.discover()

    assert sorted(job.rest()) == ["2", "3"]
    assert len(job.readers) == 3
    assert job.stored() == pack({str(tmp_path / "a"): 4, str(tmp_path / "b"): 2})

    clock.set(0)
    (tmp_path / "c").write_text("4\n")
    job.discover()
    assert job.rest() == ["4"], "a clock that was set back hides nothing"
    assert sorted(epochs.rest()) == ["2", "3", "4"]


def test_a_file_that_is_being_read_is_not_handed_out_twice(tmp_path, monkeypatch):
    monkeypatch.setattr("tidemark.formats.files.READ_BATCH", 1)
    clock = ManualClock(1000)
    (tmp_path / "a").write_text("1\n2\n")
    watched = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path))
    job = Continuous(vertex(watched.monitor_continuously(100).build().source_spec()), clock=clock)
    job.read("0", 1)

    with open(tmp_path / "a", "a") as stream:
        stream.write("3\n")
    clock.advance(100)
    job.discover()
    assert len(job.readers) == 1
    values = job.rest()
    clock.advance(100)
    job.discover()

    assert values + job.rest() == ["2", "3"]


def test_any_number_of_files_makes_few_splits_and_a_reader_has_one_open(tmp_path):
    for n in range(300):
        (tmp_path / f"{n:03d}").write_text(f"{n}\n")
    files = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path)).build()
    job = Continuous(vertex(files.source_spec(), 3))
    assert len(job.readers) == 3
    descriptors = len(os.listdir("/proc/self/fd"))

    first = [value for split_id in job.readers for value in job.read(split_id, 10)]

    assert len(os.listdir("/proc/self/fd")) <= descriptors + 3
    assert sorted(map(int, first + job.rest())) == list(range(300))


def test_a_file_reader_goes_on_at_its_own_position(tmp_path):
    for name in "abc":
        (tmp_path / name).write_text(f"{name}1\n{name}2\n")
    files = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path)).build()
    source = vertex(files.source_spec(), 1)
    [assigned] = make_enumerator(source, ManualClock()).start(None)
    lines = []

    while (records := (reader := open_reader(source, assigned, 0)).read(1, 0)) is not None:
        lines += records.values
        assigned = replace(assigned, position=reader.position())
        reader.close()

    assert lines == ["a1", "a2", "b1", "b2", "c1", "c2"]


def test_a_file_that_became_shorter_ends_its_split(tmp_path):
    (tmp_path / "a").write_text("1\n2\n3\n")
    files = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path)).build()
    job = Continuous(vertex(files.source_spec()))

    (tmp_path / "a").write_text("1\n")

    assert job.rest() == ["1"]


def test_records_are_of_the_declared_type_and_errors_name_the_source():
    typed = Continuous(
        vertex(CollectionSourceSpec([(1, "a")], [77]), 1, Types.ROW([Types.INT(), Types.STRING()]))
    )
    records = typed.readers["0"].read(5, 0)
    assert type(records.values[0]).__name__ == "Row"
    assert records.timestamps == [77]

    wrong = Continuous(vertex(CollectionSourceSpec(["x"]), 1, Types.LONG()))
    with pytest.raises(OperatorFailed) as caught:
        wrong.readers["0"].read(5, 0)
    assert (caught.value.info.operator, caught.value.info.uid) == ("numbers", "in")


def test_a_file_that_is_gone_names_the_source(tmp_path):
    (tmp_path / "a").write_text("1\n")
    files = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path)).build()
    source = vertex(files.source_spec())
    [assigned] = make_enumerator(source, ManualClock()).start(None)
    (tmp_path / "a").unlink()

    with pytest.raises(OperatorFailed, match="FileNotFoundError") as caught:
        open_reader(source, assigned, 0).read(1, 0)
    assert caught.value.info.operator == "numbers"


def test_a_socket_reader_wakes_whoever_waits_and_has_no_position():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        source = vertex(SocketSourceSpec("127.0.0.1", listening.getsockname()[1]), 1)
        job = Continuous(source)
        with listening.accept()[0] as connection:
            reader = job.readers["0"]
            assert len(reader.read(5, 0)) == 0
            connection.sendall(b"1\n2\n")
            assert select.select([reader.wake_fd()], [], [], 60)[0]
            assert reader.read(5, 60).values == ["1", "2"]
        assert reader.read(5, 60) is None
        reader.close()

    assert can_run_continuously(source.spec)
    assert job.enumerator.position(job.positions, {"0"}) is None
    assert job.enumerator.bounded, "no other connection comes"


def test_a_socket_reader_without_a_server_names_the_source():
    with socket.create_server(("127.0.0.1", 0)) as free:
        source = vertex(SocketSourceSpec("127.0.0.1", free.getsockname()[1]), 1)
    [assigned] = make_enumerator(source, ManualClock()).start(None)

    with pytest.raises(OperatorFailed, match="cannot connect") as caught:
        open_reader(source, assigned, 0)
    assert caught.value.info.operator == "numbers"


def test_sources_of_spark_and_source_functions_have_no_readers():
    assert not can_run_continuously(SparkBatchSourceSpec(None))
    assert not can_run_continuously(FunctionSourceSpec(None))
