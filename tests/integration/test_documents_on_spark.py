"""What the documents ask for, on Spark: details that other tests try in the local executor, here in few jobs."""

from __future__ import annotations

import functools
import importlib
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.evolution.conftest import HEADER
from tests.evolution.jobs import KEYS, Fill
from tests.evolution.test_config_snapshots import AFTER, BEFORE, BETWEEN, STATE
from tests.integration.test_jobs_on_spark import DEADLINE, Discard, wait_for
from tests.integration.test_recovery_on_spark import SlowNumbers
from tests.recovery.test_file_formats import READERS, WRITERS, source_of, to_files
from tests.recovery.test_first_failure import Both, Fails, assert_names_the_cause, failure_of

from tidemark import (
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryStrategy,
    EmbeddedRocksDBStateBackend,
    ExpiredState,
    HashMapStateBackend,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapFunction,
    MapStateDescriptor,
    NumberSequenceSource,
    Row,
    SourceFunction,
    StateTtlConfig,
    Time,
    TwoInputStreamOperator,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from tidemark.datastream import async_retry_predicates
from tidemark.errors import JobExecutionException, StateMigrationException
from tidemark.state.serializers import NullableSerializer, serializer_for

pytestmark = pytest.mark.spark

MODES = pytest.mark.parametrize("mode", ["epochs", "continuous"])
PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


@MODES
def test_the_first_failure_names_its_operator(make_env: Callable[..., Any], mode: str) -> None:
    env = make_env(2)
    one = env.from_collection([1, 2, 3], Types.LONG())
    two = one.map(lambda n: n + 1, Types.LONG())
    joined = one.connect(two).flat_map(Both(), Types.LONG())
    joined.connect(two).map(Fails(), Types.LONG()).name("culprit").print()

    assert_names_the_cause(failure_of(env), "culprit")


class Visits(SourceFunction):
    """Visits with their times; the last ones come when the expiry of the first was told, which `told` shows."""

    def __init__(self, told: Path) -> None:
        self.told, self.running = told, True

    def run(self, ctx: Any) -> None:
        for name, at in (("ann", 0), ("bob", 500), ("ann", 1_000)):
            ctx.collect_with_timestamp((name, at), at)
        ctx.emit_watermark(11_000)
        while self.running and not self.told.exists():
            time.sleep(0.01)
        for name in ("ann", "cid"):
            ctx.collect_with_timestamp((name, 12_000), 12_000)

    def cancel(self) -> None:
        self.running = False


class Flaky(AsyncFunction):
    """Gives an element back when it is called with it for the second time."""

    def open(self, runtime_context: Any) -> None:
        self.calls: Counter[Any] = Counter()

    async def async_invoke(self, value: Any) -> list[Any]:
        self.calls[value] += 1
        if self.calls[value] == 1:
            raise ConnectionError("refused")
        return [value]


class Remember(KeyedProcessFunction):
    """Counts visits until ten seconds of event time pass without one, and keeps a map with holes for longer."""

    def __init__(self, told: Path) -> None:
        self.told = told

    def open(self, runtime_context: Any) -> None:
        visits = ValueStateDescriptor("visits", Types.LONG())
        visits.enable_time_to_live(
            StateTtlConfig.new_builder(Time.seconds(10)).use_event_time().on_expiry(self.ended).build()
        )
        self.visits = runtime_context.get_state(visits)
        holes = MapStateDescriptor("holes", Types.LONG(), NullableSerializer(serializer_for(Types.STRING())))
        holes.enable_time_to_live(
            StateTtlConfig.new_builder(Time.days(1)).cleanup_incrementally(2, True).build()
        )
        self.holes = runtime_context.get_map_state(holes)

    def ended(self, expired: ExpiredState) -> Any:
        yield "ended", expired.key, expired.value, expired.expired_at
        if expired.key == "ann":
            self.told.touch()

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.holes.put(value.f1, None)
        self.holes.put(-value.f1, "a")
        self.holes.remove(0)
        yield "visit", value.as_dict(), self.visits.value(), sorted(self.holes.items())
        self.visits.update((self.visits.value() or 0) + 1)


class Meeting(TwoInputStreamOperator):
    """An operator of one's own: both inputs in managed state, told at the end of time."""

    def initialize_state(self, context: Any) -> None:
        store = context.get_keyed_state_store()
        self.seen = store.get_list_state(ListStateDescriptor("seen", Types.LONG()))

    def process_element1(self, element: Any) -> None:
        self.seen.add(element.get_timestamp())
        self.get_timer_service().register_event_time_timer(10**9)

    def process_element2(self, element: Any) -> None:
        self.seen.add(-element.value.f1)

    def on_event_time(self, timer: Any) -> Any:
        yield "met", timer.get_key(), sorted(self.seen.get())


class ToRow(MapFunction):
    def map(self, value: Any) -> Any:
        return Row(*value)


@pytest.mark.parametrize("backend", [HashMapStateBackend, EmbeddedRocksDBStateBackend])
@MODES
def test_expiring_state_nullable_maps_unnamed_rows_asynchronous_calls_and_own_operators(
    make_env: Callable[..., Any], tmp_path: Path, mode: str, backend: Callable[[], Any]
) -> None:
    again = AsyncRetryStrategy.fixed_delay(
        3,
        1,
        None,
        functools.partial(
            async_retry_predicates.exception_type_predicate, expected_error_type=ConnectionError
        ),
    )
    env = make_env(2)
    env.set_state_backend(backend())
    visits = env.add_source(Visits(tmp_path / "told"), type_info=PAIR)
    asked = AsyncDataStream.ordered_wait_with_retry(visits, Flaky(), Time.minutes(10), again, 10, PAIR)
    unnamed = Types.ROW([Types.STRING(), Types.LONG()])
    rows = asked.set_parallelism(1).map(ToRow(), unnamed).set_parallelism(1)
    remembered = rows.key_by(lambda row: row.f0, Types.STRING()).process(Remember(tmp_path / "told"))

    both = rows.connect(rows).key_by(lambda row: row.f0, lambda row: row.f0, Types.STRING())
    met = both.transform("Meet", Types.PICKLED_BYTE_ARRAY(), Meeting())

    results = list(remembered.union(met).execute_and_collect())

    def visit(name: str, at: int, count: int | None, *before: int) -> Any:
        holes = [
            (sign * stamp, hole) for stamp in (*before, at) if stamp for sign, hole in ((1, None), (-1, "a"))
        ]
        return "visit", {"f0": name, "f1": at}, count, sorted(holes)

    assert sorted(results, key=repr) == sorted(
        [
            visit("ann", 0, None),
            visit("bob", 500, None),
            visit("ann", 1_000, 1),
            ("ended", "bob", 1, 10_500),
            ("ended", "ann", 2, 11_000),
            visit("ann", 12_000, None, 1_000),
            visit("cid", 12_000, None),
            ("ended", "ann", 1, 22_000),
            ("ended", "cid", 1, 22_000),
            ("met", "ann", [-12_000, -1_000, 0, 0, 1_000, 12_000]),
            ("met", "bob", [-500, 500]),
            ("met", "cid", [-12_000, 12_000]),
        ],
        key=repr,
    )
    of_ann = [each[1]["f1"] for each in results if each[0] == "visit" and each[1]["f0"] == "ann"]
    assert of_ann == [0, 1_000, 12_000]


@MODES
def test_bulk_files_of_every_format_are_written_and_read(
    make_env: Callable[..., Any], tmp_path: Path, mode: str
) -> None:
    env = make_env(2)
    numbers = env.from_source(NumberSequenceSource(0, 99), WatermarkStrategy.no_watermarks(), "numbers")
    for name in WRITERS:
        to_files(tmp_path / name, name)(numbers)
    env.execute("write")

    env = make_env(2)
    streams = [
        env.from_source(source_of(tmp_path / name, name), WatermarkStrategy.no_watermarks(), name).map(
            lambda record, name=name: (name, record["n"]), PAIR
        )
        for name in READERS
    ]
    found = list(streams[0].union(*streams[1:]).execute_and_collect())

    assert Counter(found) == Counter((name, n) for name in WRITERS for n in range(100))


STUB = "words_of_documents"


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a module that runs the text beside it: Spark ships a file of a name once in a session."""
    directory = tmp_path_factory.mktemp("shipped")
    text = str(directory / "version.txt")
    stub = f"exec(compile(open({text!r}).read(), {STUB!r}, 'exec', 0, True), globals())\n"
    (directory / f"{STUB}.py").write_text(stub)
    return directory


@pytest.fixture
def program(shipped: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Deploys a version of a program: gives its module, and the file to be shipped."""
    monkeypatch.syspath_prepend(str(shipped))

    def deploy(source: str) -> tuple[ModuleType, str]:
        (shipped / "version.txt").write_text(HEADER + source + STATE.format(separator="-"))
        sys.modules.pop(STUB, None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return importlib.import_module(STUB), str(shipped / f"{STUB}.py")

    yield deploy
    sys.modules.pop(STUB, None)


@pytest.mark.parametrize(
    ("mode", "backends"),
    [
        ("epochs", (HashMapStateBackend, EmbeddedRocksDBStateBackend)),
        ("continuous", (EmbeddedRocksDBStateBackend, HashMapStateBackend)),
    ],
)
def test_four_steps_leave_an_old_serializer_snapshot_behind(
    make_env: Callable[..., Any],
    program: Any,
    tmp_path: Path,
    mode: str,
    backends: tuple[Callable[[], Any], Callable[[], Any]],
) -> None:
    def job(source: str, backend: Callable[[], Any], path: str | None) -> tuple[Any, Any]:
        module, file = program(source)
        env = make_env(
            2,
            **{"restart-strategy": "none", **({} if path is None else {"execution__savepoint__path": path})},
        )
        env.set_state_backend(backend())
        env.add_python_file(file)
        numbers = env.add_source(SlowNumbers(200, tmp_path / "go"), type_info=Types.LONG()).uid("numbers")
        keyed = numbers.map(lambda n: (n, None)).key_by(lambda pair: pair[0] % KEYS, Types.LONG())
        return env, keyed.process(Fill(module)).uid("fill")

    def savepoint(source: str, backend: Callable[[], Any], path: str | None = None) -> str:
        env, filled = job(source, backend, path)
        filled.add_sink(Discard())
        client = env.execute_async("words")
        wanted = KEYS if path is None else 0
        wait_for(
            lambda: (
                client.get_progress()["status"] == "RUNNING" and client.get_progress()["records"] >= wanted
            )
        )
        return str(client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result(DEADLINE))

    first, second = backends
    old = savepoint(BEFORE, first)
    new = savepoint(BETWEEN, second, old)
    (tmp_path / "go").touch()
    _env, filled = job(AFTER, first, new)
    assert dict(filled.execute_and_collect()) == {key: [["a", "b"], ["c"]][key % 2] for key in range(KEYS)}

    env, filled = job(AFTER, first, old)
    filled.add_sink(Discard())
    with pytest.raises(JobExecutionException, match="WordConfig") as failure:
        env.execute("too early")
    assert isinstance(failure.value.__cause__, StateMigrationException)
    printed = "".join(traceback.format_exception(failure.value))
    assert "tidemark.errors.StateMigrationException: " in printed
