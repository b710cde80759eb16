"""What stored state may name, and that looking at a snapshot runs nothing of it."""

from __future__ import annotations

import collections
import datetime
import decimal
import os
import pickle
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.property.hostile import nothing_is_unpickled
from tests.unit.rpc.strangers import until
from tests.unit.state_processor.test_diff_of_pickles import UNTYPED, Trap, savepoint

from tidemark import (
    Configuration,
    KeyedProcessFunction,
    Row,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)
from tidemark.checkpoint.inspection import describe, verify
from tidemark.cli.main import cli
from tidemark.errors import ConfigError, ForbiddenClassError
from tidemark.runtime.control import live_jobs
from tidemark.state.allowed_classes import allow_classes, loads, parse_allowed
from tidemark.state.serializers.compatibility import dump_serializer_snapshot, load_serializer_snapshot
from tidemark.state.serializers.registry import serializer_for

HERE = __name__
OPTION = "state.restore.allowed-classes"


class Order:
    """What a user keeps without a type."""

    def __init__(self, amount: int) -> None:
        self.amount = amount


class Last(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("s", UNTYPED))

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield self.state.value().amount


@pytest.fixture(autouse=True)
def _everything_again() -> Iterator[None]:
    yield
    allow_classes(None)


@pytest.mark.parametrize(
    "value",
    [
        {1: ("a", b"b", None, 1.5, {2}, frozenset({3}))},
        [datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), datetime.timedelta(1), decimal.Decimal("1.5")],
        [uuid.UUID(int=7), complex(1, 2), bytearray(b"x"), range(3)],
        [collections.OrderedDict(a=1), collections.deque([1]), collections.defaultdict(list, a=[1])],
        Row(1, "a"),
    ],
)
def test_plain_data_is_always_allowed(value: Any) -> None:
    allow_classes(())

    assert loads(pickle.dumps(value, 5)) == value


def test_a_name_that_is_not_on_the_list_is_refused_before_it_is_touched(tmp_path: Path) -> None:
    allow_classes([f"{HERE}.Order"])
    trap = pickle.dumps(Trap(tmp_path / "trap", 0o700))
    # The module is on the list, what it has imported is not; and a name is no beginning of another.
    reaching = b"\x80\x04\x8c" + bytes([len(HERE)]) + HERE.encode() + b"\x8c\x08os.mkdir\x93."
    for data in (
        trap,
        reaching,
        b"cbuiltins\neval\n.",
        f"c{HERE}\nOrderlies\n.".encode(),
        b"cnot.there\nX\n.",
    ):
        with pytest.raises(ForbiddenClassError, match=r"state\.restore\.allowed-classes does not allow"):
            loads(data)
    allow_classes([HERE])
    with pytest.raises(ForbiddenClassError, match=r"os|posix"):
        loads(reaching)

    assert not (tmp_path / "trap").exists()
    assert loads(pickle.dumps(Order(3), 5)).amount == 3


def test_functions_of_our_own_modules_are_no_values() -> None:
    allow_classes(())

    with pytest.raises(ForbiddenClassError):
        loads(b"ctidemark.state.serializers.compatibility\nfind_class\n.")


def test_descriptions_of_serializers_name_only_what_is_allowed() -> None:
    ours = dump_serializer_snapshot(serializer_for(Types.ROW([Types.LONG(), Types.STRING()])))
    name = b"antigravity.Snapshot"
    foreign = ours[:1] + len(name).to_bytes(4, "big") + name + bytes(8)
    allow_classes(())

    load_serializer_snapshot(ours)
    with pytest.raises(ForbiddenClassError, match="antigravity"):
        load_serializer_snapshot(foreign)


@pytest.mark.parametrize(
    ("text", "names"), [(None, None), ("", None), ("none", ()), ("a, b.C", ("a", "b.C"))]
)
def test_the_option(text: str | None, names: Any) -> None:
    assert parse_allowed(text) == names


def test_an_option_that_names_nothing_is_refused() -> None:
    for text in ("a.*", "a b", "a..b", "*"):
        with pytest.raises(ConfigError, match="no name of a module or class"):
            parse_allowed(text)


@pytest.fixture
def stored(tmp_path: Path) -> str:
    """A savepoint with a pickled object in it."""
    return savepoint(tmp_path / "savepoint", [(1, Order(7))], UNTYPED)


def run(stored: str, allowed: str) -> list[Any]:
    configuration = {
        "execution.target": "local",
        "execution.savepoint.path": stored,
        "restart-strategy": "none",
        OPTION: allowed,
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(configuration))
    env.set_max_parallelism(128)
    env.set_parallelism(1)
    keyed = env.from_collection([1], Types.LONG()).key_by(lambda n: n, Types.LONG())
    try:
        return list(keyed.process(Last(), Types.LONG()).uid("op").execute_and_collect())
    finally:
        # Results are there a moment before the job has ended.
        until(lambda: not live_jobs())


def test_a_job_restores_what_is_allowed_and_names_what_is_not(stored: str) -> None:
    assert run(stored, HERE) == [7]

    with pytest.raises(Exception, match=rf"{HERE}\.Order, which {OPTION} does not allow"):
        run(stored, "none")

    assert run(stored, "") == [7]


def test_looking_at_a_snapshot_unpickles_nothing(stored: str) -> None:
    with nothing_is_unpickled():
        assert describe(stored)["operators"]
        assert verify(stored) == []
        for command in ("inspect", "verify"):
            assert CliRunner().invoke(cli, [command, stored]).exit_code == 0
            assert CliRunner().invoke(cli, [command, stored, "--json"]).exit_code == 0

    with pytest.raises(AssertionError), nothing_is_unpickled():
        pickle.loads(pickle.dumps(Order(1)))
    assert os.path.exists(stored)
