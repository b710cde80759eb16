"""`tidemark check` says beforehand what a restore would do to the state of an evolved program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.evolution.conftest import Define
from tests.evolution.jobs import savepoint_of
from tests.evolution.table import EVOLUTIONS

from tidemark.cli.main import cli

PROGRAM = """
import evolving_shop
from tests.evolution.jobs import Fill, Remember
from tests.recovery.local_jobs import Numbers, new_board
from tidemark import StreamExecutionEnvironment, Types, ValueStateDescriptor

env = StreamExecutionEnvironment.get_execution_environment()
numbers = env.add_source(Numbers(new_board().name), type_info=Types.LONG()).uid("numbers")
remembered = numbers.map(Remember(evolving_shop)).uid("remember")
keyed = remembered.key_by(lambda pair: pair[0], {key_type})
keyed.process(Fill(evolving_shop)).uid("{uid}").print()
env.execute()
"""

VERDICTS = {
    "the class stays": ("unchanged", ""),
    "a field with a default is added": ("migrated", "total: int) becomes DATACLASS"),
    "a field is removed": ("migrated", "becomes DATACLASS(evolving_shop.Cart: owner: str)"),
    "a field changes its type": ("incompatible", "total: float"),
    "the class is renamed": ("incompatible", "evolving_shop.Basket"),
    "a class is renamed, and says so": ("migrated", "becomes DATACLASS"),
    "a class is renamed, with a migration": ("migrated", "by the declared migration from DATACLASS"),
    "a field is renamed, with a migration": ("migrated", "by the declared migration from DATACLASS"),
    "a basic type changes, with a migration": ("migrated", "by the declared migration from LONG"),
    "no migration fits": ("incompatible", "LONG"),
    "avro: a field is removed": ("migrated", "AVRO"),
    "avro: the record is renamed": ("incompatible", "Person"),
    "tuple: a field is added": ("incompatible", "TUPLE(LONG, LONG)"),
    "custom: the serializer stays": ("unchanged", ""),
    "custom: after migration": ("migrated", "Text"),
    "custom: reconfigured": ("unchanged", ""),
    "custom: incompatible": ("incompatible", "Text"),
    "custom: the snapshot class is gone": ("incompatible", "evolving_shop.TextSnapshot"),
    "composite: another number of nested serializers": ("incompatible", "2 nested serializers"),
}


def check(
    tmp_path: Path, savepoint: str, *options: str, key_type: str = "Types.LONG()", uid: str = "fill"
) -> tuple[int, dict[str, tuple[str, str]]]:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(key_type=key_type, uid=uid))
    result = CliRunner().invoke(cli, ["--json", "check", str(program), "-s", savepoint, *options])
    report = json.loads(result.stdout)
    states = {f"{s['operator']}.{s['state']}": (s["verdict"], s["reason"]) for s in report["states"]}
    assert report["compatible"] == (result.exit_code == 0)
    return result.exit_code, states


@pytest.mark.parametrize("name", VERDICTS)
def test_every_state_gets_the_verdict_a_restore_would_give_it(
    define: Define, tmp_path: Path, name: str
) -> None:
    savepoint = savepoint_of(define(EVOLUTIONS[name].old), 2, None, tmp_path)
    define(EVOLUTIONS[name].new)
    expected, reason = VERDICTS[name]

    code, states = check(tmp_path, savepoint)

    assert states["fill.state"][0] == expected
    assert reason in states["fill.state"][1]
    assert states["numbers.offset"] == ("unchanged", "")
    assert code == (1 if expected == "incompatible" else 0)
    if "number of nested" not in name:
        # The number of nested serializers is a ValueError, which names no state.
        assert states["remember.state"][0] == expected


def test_keys_dropped_and_new_states(define: Define, tmp_path: Path) -> None:
    program = define(EVOLUTIONS["the class stays"].old)
    savepoint = savepoint_of(program, 1, None, tmp_path)

    code, states = check(tmp_path, savepoint, key_type="Types.STRING()")
    assert code == 1
    assert states["fill.state"][0] == "incompatible"
    assert "key of state 'state' was written as LONG but is read as STRING" in states["fill.state"][1]
    code, states = check(tmp_path, savepoint, "-n", uid="other")
    assert code == 0
    assert states["fill.state"][0] == "dropped"
    assert states["other.state"][0] == "new"
