"""Keys change by a rewritten savepoint: every row and timer moves to the key group of its new key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.evolution.conftest import Define
from tests.evolution.jobs import found, savepoint_of
from tests.unit.state_processor.jobs import (
    LAST,
    LATER,
    PAIR,
    SEEN,
    TOTAL,
    environment,
    retained_checkpoint,
    take_savepoint,
)

from tidemark import EmbeddedRocksDBStateBackend, HashMapStateBackend, KeyedProcessFunction, Types
from tidemark.checkpoint.inspection import describe, verify
from tidemark.errors import ConfigError, JobExecutionException, StateMigrationException, UnknownStateError
from tidemark.state_processor import migrate_keys, rekeying

KEYS = 20
ELEMENTS = [(f"k{number % KEYS}", number) for number in range(5 * KEYS)]


class Report(KeyedProcessFunction):
    """Tells all that is stored under a key, and at the end which timers it had."""

    def open(self, runtime_context):
        self.total = runtime_context.get_state(TOTAL)
        self.last = runtime_context.get_map_state(LAST)
        self.seen = runtime_context.get_list_state(SEEN)

    def process_element(self, value, ctx):
        stored = self.total.value(), sorted(self.last.keys()), [n for n, _ in self.seen.get()]
        yield "state", ctx.get_current_key(), stored

    def on_timer(self, timestamp, ctx):
        yield "timer", ctx.get_current_key(), timestamp


def reported(
    path: str, keys: list[Any], key_type: Any, *, rocksdb: bool, parallelism: int = 3
) -> dict[Any, Any]:
    env = environment(parallelism, settings={"execution.savepoint.path": path})
    if rocksdb:
        env.set_state_backend(EmbeddedRocksDBStateBackend())
    source = env.from_collection([(str(at), at) for at in range(len(keys))], PAIR).uid("numbers")
    results = source.key_by(lambda pair: keys[pair[1]], key_type).process(Report()).uid("sum")
    with results.execute_and_collect() as iterator:
        return {(kind, key): what for kind, key, what in iterator}


def expected(keys: list[Any]) -> dict[Any, Any]:
    told: dict[Any, Any] = {}
    for at, key in enumerate(keys):
        numbers = [n for _, n in ELEMENTS if n % KEYS == at]
        told["state", key] = (sum(numbers), sorted({str(n % 3) for n in numbers}), numbers)
        told["timer", key] = LATER + len(f"k{at}")
    return told


@pytest.mark.parametrize("rocksdb", [False, True])
@pytest.mark.parametrize("take", [take_savepoint, retained_checkpoint])
def test_text_keys_become_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, take: Any, rocksdb: bool
) -> None:
    monkeypatch.setattr(rekeying, "_BUCKET_ROWS", 7)
    old = take(tmp_path / "old", ELEMENTS)

    new = migrate_keys(old, "sum", Types.LONG(), lambda key: int(key[1:]), str(tmp_path / "new"))

    assert verify(new) == []
    [operator] = [each for each in describe(new)["operators"] if each["uid"] == "sum"]
    assert operator["parallelism"] == 2
    keys = list(range(KEYS))
    assert reported(new, keys, Types.LONG(), rocksdb=rocksdb) == expected(keys)


POINT = "@dataclass(frozen=True)\nclass Point:\n    name: str\n"
POINTS = "TYPE = Types.LONG()\nVALUES = list(range(10))\nKEY_TYPE = Point\n"


def test_an_evolved_key_class_is_read_as_what_it_was(define: Define, tmp_path: Path) -> None:
    program = define(POINT + POINTS + "def KEY(number): return Point(f'k{number}')\n")
    old = savepoint_of(program, 2, None, tmp_path / "old")
    program = define(
        "@written_as('evolving_shop.Point')\n"
        + POINT.replace("Point", "PointV1")
        + POINT
        + "    z: int = 0\n"
        + POINTS
        + "def KEY(number): return Point(f'k{number}', 9)\n"
    )

    with pytest.raises(JobExecutionException, match="migrate_keys"):
        found(program, 3, EmbeddedRocksDBStateBackend(), old)
    new = migrate_keys(
        old,
        "fill",
        program.Point,
        lambda was: program.Point(was.name, 9),
        str(tmp_path / "new"),
        old_key_type=program.PointV1,
    )

    for backend in (EmbeddedRocksDBStateBackend(), HashMapStateBackend()):
        assert found(program, 3, backend, new) == {number: number for number in range(10)}


def test_keys_must_not_merge_and_nothing_is_left_of_the_attempt(tmp_path: Path) -> None:
    old = take_savepoint(tmp_path / "old", ELEMENTS)

    with pytest.raises(ConfigError, match=r"'sum' would become 'k'.*tell apart"):
        migrate_keys(old, "sum", Types.STRING(), lambda key: key[0], str(tmp_path / "new"))

    assert not (tmp_path / "new").exists()


def test_what_cannot_be_migrated_is_told(tmp_path: Path) -> None:
    old = take_savepoint(tmp_path / "old", ELEMENTS[:3])
    target = str(tmp_path / "new")

    with pytest.raises(UnknownStateError, match="numbers"):
        migrate_keys(old, "elsewhere", Types.LONG(), int, target)
    with pytest.raises(StateMigrationException, match="written as STRING but is read as LONG"):
        migrate_keys(old, "sum", Types.LONG(), int, target, old_key_type=Types.LONG())
    with pytest.raises(ConfigError, match="exists already"):
        migrate_keys(old, "sum", Types.STRING(), str, old)
