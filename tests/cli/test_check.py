"""`check`: verdicts about every state before anything is deployed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Command, until_processed

from tidemark.runtime.history import read_history

Write = Callable[..., Path]

PAIR = "@dataclass\nclass Pair:\n    left: int\n    right: str\n"
WIDER = "@dataclass\nclass Pair:\n    left: int\n    right: str\n    more: int = 5\n"
OTHER = "@dataclass\nclass Pair:\n    left: str\n    right: str\n"
PAIRS = 'self.pairs = runtime_context.get_state(ValueStateDescriptor("pairs", Types.DATACLASS(Pair)))'


@pytest.fixture
def savepoint(tide: Command, running_job: str, tmp_path: Path) -> Path:
    until_processed(running_job, 50)
    return Path(tide("stop", "-p", tmp_path / "sp", running_job).stdout.strip())


def _verdicts(
    tide: Command, path: Path, savepoint: Path, *options: str
) -> tuple[int, dict[str, tuple[str, str]]]:
    result = tide("--json", "check", path, "-s", savepoint, *options)
    report = json.loads(result.stdout)
    assert report["compatible"] == (result.exit_code == 0)
    return result.exit_code, {
        f"{state['operator']}.{state['state']}": (state["verdict"], state["reason"])
        for state in report["states"]
    }


def test_the_same_program_finds_everything_unchanged(tide: Command, program: Write, savepoint: Path) -> None:
    code, verdicts = _verdicts(tide, program(), savepoint)

    assert code == 0
    assert {verdict for verdict, _reason in verdicts.values()} == {"unchanged"}
    assert {"count.count", "numbers.offset"} <= set(verdicts)


def test_text_ends_with_the_verdict(tide: Command, program: Write, savepoint: Path) -> None:
    lines = tide("check", program(), "-s", savepoint).stdout.splitlines()

    assert lines[0].split() == ["OPERATOR", "STATE", "KIND", "VERDICT", "REASON"]
    assert lines[-1] == "The program can start from this snapshot."


def test_nothing_runs_even_if_the_program_names_its_target(
    tide: Command, program: Write, savepoint: Path
) -> None:
    before = len(read_history())
    target = 'Configuration.from_dict({"execution.target": "local"})'

    result = tide(
        "check", program(configuration=target, afterwards="raise ValueError('later')"), "-s", savepoint
    )

    assert result.exit_code == 0
    assert len(read_history()) == before


def test_a_state_of_another_type_is_incompatible(tide: Command, program: Write, savepoint: Path) -> None:
    path = program(descriptor='ValueStateDescriptor("count", Types.STRING())')

    code, verdicts = _verdicts(tide, path, savepoint)

    assert code == 1
    assert verdicts["count.count"][0] == "incompatible"
    assert "'count' was written as LONG but is read as STRING" in verdicts["count.count"][1]
    assert "cannot start" in tide("check", path, "-s", savepoint).stdout


def test_an_operator_state_of_another_type_does_not_hide_the_others(
    tide: Command, program: Write, savepoint: Path
) -> None:
    code, verdicts = _verdicts(tide, program(offset_type="Types.STRING()"), savepoint)

    assert code == 1
    assert verdicts["numbers.offset"][0] == "incompatible"
    assert verdicts["count.count"][0] == "unchanged"


def test_a_declared_migration_counts(tide: Command, program: Write, savepoint: Path) -> None:
    path = program(
        descriptor='ValueStateDescriptor("count", Types.STRING())',
        declared="descriptor.migrate_from(Types.LONG(), str)",
    )

    code, verdicts = _verdicts(tide, path, savepoint)

    assert code == 0
    assert verdicts["count.count"] == ("migrated", "by the declared migration from LONG")


def test_a_new_state_and_one_nobody_registers_any_more(
    tide: Command, program: Write, savepoint: Path
) -> None:
    code, verdicts = _verdicts(
        tide, program(descriptor='ValueStateDescriptor("total", Types.LONG())'), savepoint
    )

    assert code == 0
    assert verdicts["count.total"] == ("new", "")
    assert verdicts["count.count"] == ("unchanged", "not registered in open(); kept as it is")


def test_state_of_a_missing_operator_is_dropped_only_if_allowed(
    tide: Command, program: Write, savepoint: Path
) -> None:
    path = program(uid="renamed")

    refused, verdicts = _verdicts(tide, path, savepoint)
    allowed, dropped = _verdicts(tide, path, savepoint, "-n")

    assert (refused, allowed) == (1, 0)
    assert verdicts["count.count"][0] == "incompatible"
    assert dropped["count.count"][0] == "dropped"
    assert dropped["renamed.count"][0] == "new"


def test_another_key_type_is_incompatible(tide: Command, program: Write, savepoint: Path) -> None:
    code, verdicts = _verdicts(tide, program(key_type="Types.STRING()"), savepoint)

    assert code == 1
    assert verdicts["count.count"][0] == "incompatible"
    assert verdicts["count._timers/event"][0] == "incompatible"


def test_an_evolving_dataclass_is_migrated_and_a_changed_one_refused(
    tide: Command, program: Write, tmp_path: Path
) -> None:
    original = program(
        classes=PAIR,
        more_states=PAIRS,
        execute="client = env.execute_async",
        afterwards=f"client.stop_with_savepoint(False, {str(tmp_path / 'kept')!r}).result()",
    )
    assert tide("run", "-D", "execution.target=local", original).exit_code == 0
    (savepoint,) = (tmp_path / "kept").iterdir()

    wider = _verdicts(tide, program(classes=WIDER, more_states=PAIRS), savepoint)
    other = _verdicts(tide, program(classes=OTHER, more_states=PAIRS), savepoint)

    assert wider[1]["count.pairs"][0] == "migrated"
    assert wider[0] == 0
    assert other[1]["count.pairs"][0] == "incompatible"
    assert other[0] == 1


def test_a_function_that_cannot_be_opened_is_told(tide: Command, program: Write, savepoint: Path) -> None:
    code, verdicts = _verdicts(tide, program(more_states="raise OSError('no database')"), savepoint)

    assert code == 1
    assert "OSError: no database" in verdicts["count.-"][1]


def test_a_program_without_a_job_cannot_be_checked(tide: Command, program: Write, savepoint: Path) -> None:
    nothing = tide("check", program("x = 1\n"), "-s", savepoint)
    failing = tide("check", program("raise OSError('early')\n"), "-s", savepoint)

    assert nothing.exit_code == 9
    assert "executed no job" in nothing.stderr
    assert failing.exit_code == 1


def test_a_snapshot_must_be_given_and_be_there(tide: Command, program: Write, tmp_path: Path) -> None:
    assert tide("check", program()).exit_code == 2
    assert tide("check", program(), "-s", tmp_path / "nowhere").exit_code == 5
