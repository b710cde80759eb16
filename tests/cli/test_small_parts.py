"""Parts behind the commands: keys as text, errors over the wire, the history of jobs, exit codes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tidemark import Row, errors
from tidemark.cli.exit_codes import ExitCode, exit_code_of
from tidemark.errors import CheckpointError, ConfigError, FailureReason, TidemarkError, UnmappedStateError
from tidemark.queryablestate.plain_values import parse_key
from tidemark.rpc.codecs import describe_error, restore_error
from tidemark.runtime.history import LIMIT, EndedJob, read_history, remember


@pytest.mark.parametrize(
    ("text", "job_type", "key_type", "key"),
    [
        ("7", "LONG", "auto", 7),
        ("7", "STRING", "auto", "7"),
        ("7.5", "DOUBLE", "auto", 7.5),
        ("TRUE", "BOOLEAN", "auto", True),
        ('["a", [1]]', "TUPLE(STRING, TUPLE(LONG))", "auto", ("a", (1,))),
        ('["a", 1]', "ROW(f0: STRING, f1: LONG)", "auto", Row("a", 1)),
        ("7", "PICKLED", "auto", 7),
        ("('a', 1)", "PICKLED", "auto", ("a", 1)),
        ("seven", "PICKLED", "auto", "seven"),
        ("7", "PICKLED", "string", "7"),
        ('["a", 1]', "PICKLED", "json", ("a", 1)),
    ],
)
def test_a_key_is_read_by_its_type(text: str, job_type: str, key_type: str, key: Any) -> None:
    assert parse_key(text, job_type, key_type) == key


@pytest.mark.parametrize(
    ("text", "job_type"), [("x", "LONG"), ("x", "DOUBLE"), ("yes", "BOOLEAN"), ("{", "TUPLE(LONG)")]
)
def test_a_text_that_is_no_key_is_refused(text: str, job_type: str) -> None:
    with pytest.raises(ConfigError, match="--key-type"):
        parse_key(text, job_type)


def test_an_error_keeps_class_message_and_facts_over_the_wire() -> None:
    error = restore_error(
        describe_error(CheckpointError("late", reason=FailureReason.EXPIRED, checkpoint_id=3))
    )

    assert isinstance(error, CheckpointError)
    assert (str(error), error.reason, error.checkpoint_id) == ("late", FailureReason.EXPIRED, 3)


def test_a_foreign_error_arrives_as_one_of_ours() -> None:
    error = restore_error(describe_error(KeyError("x")))

    assert type(error) is TidemarkError
    assert str(error) == "KeyError: 'x'"
    assert type(restore_error({"type": "annotations", "message": "m"})) is TidemarkError


def test_every_error_of_the_tree_survives_the_wire() -> None:
    for name in errors.__all__:
        found = getattr(errors, name)
        if isinstance(found, type) and issubclass(found, TidemarkError):
            assert type(restore_error(describe_error(found("m")))) is found


def test_an_error_of_two_families_counts_for_the_first() -> None:
    assert exit_code_of(UnmappedStateError("x")) is ExitCode.SNAPSHOT
    assert exit_code_of(RuntimeError("x")) is ExitCode.FAILED


def _ended(number: int) -> EndedJob:
    return EndedJob(f"{number:032x}", f"job {number}", "FINISHED", number, number + 1, 1)


def test_the_history_keeps_the_newest_jobs() -> None:
    for number in range(LIMIT + 5):
        remember(_ended(number))

    assert read_history() == [_ended(number) for number in range(5, LIMIT + 5)]


def test_a_damaged_line_of_the_history_is_left_out(home: Path) -> None:
    remember(_ended(1))
    with open(home / "history.jsonl", "a") as file:
        file.write('{"job_id": 5}\nnonsense\n')

    assert read_history() == [_ended(1)]


def test_there_is_no_history_before_the_first_job() -> None:
    assert read_history() == []
