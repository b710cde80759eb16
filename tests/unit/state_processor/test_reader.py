from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.state_processor import windows
from tests.unit.state_processor.jobs import LAST, LATER, SEEN, TOTAL, environment

from tidemark import (
    EmbeddedRocksDBStateBackend,
    EventTimeSessionWindows,
    Row,
    StateTtlConfig,
    Time,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
)
from tidemark.checkpoint.metadata import read_metadata
from tidemark.checkpoint.storage.filesystem import FileSystemStorage
from tidemark.errors import (
    ConfigError,
    SavepointNotFoundError,
    StateMigrationException,
    UnknownStateError,
    UnsupportedOperationException,
)
from tidemark.state_processor import (
    KeyedStateBootstrapFunction,
    KeyedStateReaderFunction,
    OperatorTransformation,
    SavepointReader,
    SavepointWriter,
    WindowReaderFunction,
)
from tidemark.state_processor.open_snapshot import OpenSnapshot
from tidemark.state_processor.tables import canonical_tables


class Everything(KeyedStateReaderFunction):
    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(TOTAL)
        self.last = runtime_context.get_map_state(LAST)
        self.seen = runtime_context.get_list_state(SEEN)

    def read_key(self, key: Any, ctx: Any) -> Any:
        timers = (ctx.registered_event_time_timers(), ctx.registered_processing_time_timers())
        yield key, self.total.value(), dict(self.last.items()), self.seen.get(), timers


def collected(stream: Any) -> list[Any]:
    with stream.execute_and_collect() as iterator:
        return list(iterator)


@pytest.mark.parametrize("backend", [None, EmbeddedRocksDBStateBackend()])
def test_every_key_is_read_once_with_all_its_state_and_timers(
    snapshot: str, totals: dict[str, int], backend: Any
) -> None:
    reader = SavepointReader.read(environment(3), snapshot, backend)

    rows = collected(reader.read_keyed_state("sum", Everything(), Types.STRING()))

    assert {row[0]: row[1] for row in rows} == totals
    assert len(rows) == len(totals)
    found = next(row for row in rows if row[0] == "k7")
    numbers = range(7, 200, 20)
    assert found[2] == {str(number % 3): Row(n=number % 7, text="k7") for number in numbers}
    assert found[3] == [(number, "k7") for number in numbers]
    assert found[4] == ({LATER + 2}, set())


def test_the_type_of_keys_may_be_left_out(savepoint: str, totals: dict[str, int]) -> None:
    rows = collected(SavepointReader.read(environment(), savepoint).read_keyed_state("sum", Everything()))

    assert {row[0] for row in rows} == set(totals)


def test_keys_of_another_type_are_refused(savepoint: str) -> None:
    reader = SavepointReader.read(environment(), savepoint)

    with pytest.raises(StateMigrationException):
        reader.read_keyed_state("sum", Everything(), Types.LONG())


def _writes() -> list[Callable[[Any], None]]:
    return [
        lambda f: f.total.update(1),
        lambda f: f.total.clear(),
        lambda f: f.last.put("a", None),
        lambda f: f.last.put_all({}),
        lambda f: f.last.remove("a"),
        lambda f: f.last.__setitem__("a", None),
        lambda f: f.last.__delitem__("a"),
        lambda f: f.seen.add((1, "a")),
        lambda f: f.seen.add_all([]),
        lambda f: f.seen.update([]),
    ]


@pytest.mark.parametrize("write", _writes())
def test_writing_state_is_refused(savepoint: str, write: Callable[[Any], None]) -> None:
    class Writer(Everything):
        def read_key(self, key: Any, ctx: Any) -> Any:
            write(self)

    with pytest.raises(UnsupportedOperationException, match="read-only"):
        collected(SavepointReader.read(environment(), savepoint).read_keyed_state("sum", Writer()))


def test_a_function_without_states_sees_the_keys_that_have_timers(
    savepoint: str, totals: dict[str, int]
) -> None:
    class Timers(KeyedStateReaderFunction):
        def read_key(self, key: Any, ctx: Any) -> Any:
            return [(key, min(ctx.registered_event_time_timers()))]

    rows = collected(SavepointReader.read(environment(), savepoint).read_keyed_state("sum", Timers()))

    assert dict(rows) == {key: LATER + len(key) for key in totals}


def test_list_and_union_state_are_read_once(snapshot: str) -> None:
    reader = SavepointReader.read(environment(), snapshot)

    assert collected(reader.read_list_state("sum", "list", Types.LONG())) == [0, 1]
    assert collected(reader.read_union_state("sum", "union", Types.STRING())) == ["u0", "u1"]
    assert collected(reader.read_union_state("sum", "union")) == ["u0", "u1"]


def test_the_wrong_accessor_is_told_the_right_one(savepoint: str) -> None:
    reader = SavepointReader.read(environment(), savepoint)

    with pytest.raises(ConfigError, match=r"Use read_union_state\(\)"):
        reader.read_list_state("sum", "union")


def test_what_is_not_there_is_named_with_what_is(savepoint: str, tmp_path: Path) -> None:
    reader = SavepointReader.read(environment(), savepoint)

    with pytest.raises(SavepointNotFoundError):
        SavepointReader.read(environment(), str(tmp_path))
    with pytest.raises(UnknownStateError, match="It has: 'numbers', 'sum'"):
        reader.read_keyed_state("nobody", Everything())
    with pytest.raises(UnknownStateError, match="no keyed state"):
        reader.read_keyed_state("numbers", Everything())
    with pytest.raises(UnknownStateError, match=r"no state 'nothing'.*'list'"):
        reader.read_list_state("sum", "nothing")
    with pytest.raises(TypeError, match="KeyedStateReaderFunction"):
        reader.read_keyed_state("sum", print)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="StateBackend"):
        SavepointReader.read(environment(), savepoint, "rocksdb")  # type: ignore[arg-type]


def test_broadcast_state_is_read_from_one_copy(tmp_path: Path) -> None:
    path = windows.broadcast_savepoint(tmp_path)
    reader = SavepointReader.read(environment(), path)

    pairs = collected(reader.read_broadcast_state("rules", "rules", Types.STRING(), Types.LONG()))

    assert sorted(pairs) == [("a", 1), ("b", 2)]
    assert sorted(collected(reader.read_broadcast_state("rules", "rules"))) == [("a", 1), ("b", 2)]


def test_expired_state_is_invisible(target: str) -> None:
    ttl = StateTtlConfig.new_builder(Time.milliseconds(1)).build()
    short, long = ValueStateDescriptor("short", Types.LONG()), ValueStateDescriptor("long", Types.LONG())
    short.enable_time_to_live(ttl)
    long.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())

    class Fill(KeyedStateBootstrapFunction):
        def open(self, runtime_context: Any) -> None:
            self.states = [runtime_context.get_state(short), runtime_context.get_state(long)]

        def process_element(self, value: Any, ctx: Any) -> None:
            for state in self.states:
                state.update(value)

    class Read(KeyedStateReaderFunction):
        def __init__(self, *descriptors: Any) -> None:
            self.descriptors = descriptors

        def open(self, runtime_context: Any) -> None:
            self.states = [runtime_context.get_state(descriptor) for descriptor in self.descriptors]

        def read_key(self, key: Any, ctx: Any) -> Any:
            yield key, [state.value() for state in self.states]

    env = environment()
    data = OperatorTransformation.bootstrap_with([1, 2]).key_by(lambda n: n, Types.LONG()).transform(Fill())
    SavepointWriter.new_savepoint(env, None, 16).with_operator("ttl", data).write(target)
    # The file is older than a millisecond by now: writing it took longer than that.
    reader = SavepointReader.read(env, target)

    assert sorted(collected(reader.read_keyed_state("ttl", Read(short, long)))) == [
        (1, [None, 1]),
        (2, [None, 2]),
    ]
    assert collected(reader.read_keyed_state("ttl", Read(short))) == []


def test_windows_are_read_with_their_elements_timers_and_results(tmp_path: Path) -> None:
    class Reader(WindowReaderFunction):
        def read_window(self, key: Any, ctx: Any, elements: Any) -> Any:
            window = ctx.window()
            yield key, window.start, window.end, list(elements), ctx.registered_event_time_timers()

    path = windows.window_savepoint(tmp_path)
    reader = SavepointReader.read(environment(), path)
    tumbling = reader.window(TumblingEventTimeWindows.of(Time.milliseconds(10)))

    assert sorted(collected(tumbling.process("lists", Reader()))) == [
        ("a", 0, 10, [("a", 1), ("a", 5)], {9}),
        ("a", 20, 30, [("a", 22)], {29}),
        ("b", 0, 10, [("b", 3)], {9}),
    ]
    assert sorted(collected(tumbling.reduce("sums", windows.add, Reader()))) == [
        ("a", 0, 10, [("a", 6)], {9}),
        ("a", 20, 30, [("a", 22)], {29}),
        ("b", 0, 10, [("b", 3)], {9}),
    ]
    assert sorted(collected(tumbling.aggregate("counts", windows.Count()))) == [1, 1, 2]


def test_merged_sessions_are_read_as_the_windows_they_have_become(tmp_path: Path) -> None:
    class Reader(WindowReaderFunction):
        def read_window(self, key: Any, ctx: Any, elements: Any) -> Any:
            yield (
                key,
                ctx.window().start,
                ctx.window().end,
                sorted(elements),
                ctx.registered_event_time_timers(),
            )

    path = windows.window_savepoint(tmp_path)
    sessions = SavepointReader.read(environment(), path).window(
        EventTimeSessionWindows.with_gap(Time.milliseconds(5))
    )

    assert sorted(collected(sessions.process("sessions", Reader()))) == [
        ("a", 1, 10, [("a", 1), ("a", 5)], {9}),
        ("a", 22, 27, [("a", 22)], {26}),
        ("b", 3, 8, [("b", 3)], {7}),
    ]
    with pytest.raises(TypeError, match="WindowReaderFunction"):
        sessions.process("sessions", print)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [1, 3, 128])
def test_splits_cover_every_row_of_a_state_once(snapshot: str, totals: dict[str, int], count: int) -> None:
    opened = OpenSnapshot.open(snapshot)
    keys = []
    for split in opened.splits(opened.keyed_operator("sum"), count):
        with canonical_tables(split, wanted=lambda meta: meta.name == "total") as tables:
            for _meta, batches in tables:
                for batch in batches:
                    groups = batch.column("key_group").to_pylist()
                    assert split.key_groups[0] <= min(groups) <= max(groups) <= split.key_groups[1]
                    keys += batch.column("key").to_pylist()

    assert sorted(keys) == sorted(totals)


@pytest.mark.parametrize(("which", "kind"), [("incremental", "rocksdb"), ("chains", "heap")])
def test_the_incremental_snapshot_really_is_native(
    which: str, kind: str, request: pytest.FixtureRequest
) -> None:
    metadata = read_metadata(FileSystemStorage(), request.getfixturevalue(which))

    natives = [subtask.native for operator in metadata.operators for subtask in operator.subtasks]
    assert {native.kind for native in natives if native is not None} == {kind}
