from __future__ import annotations

import pickle
from typing import Any

import pytest

from tidemark import errors
from tidemark.errors import (
    CheckpointError,
    ConfigError,
    ExecutionError,
    FailureReason,
    IllegalStateError,
    MaxParallelismError,
    NoCurrentKeyError,
    QueryError,
    RestoreError,
    StateError,
    TidemarkError,
    UnmappedStateError,
    UnsupportedOperationException,
)


def family(root: type[TidemarkError]) -> list[type[TidemarkError]]:
    return [root, *(cls for child in root.__subclasses__() for cls in family(child))]


EVERY_CLASS = sorted(
    {cls for cls in family(TidemarkError) if cls.__module__ == errors.__name__}, key=lambda cls: cls.__name__
)


class TwoArguments(Exception):
    def __init__(self, first: str, second: int) -> None:
        super().__init__(first)
        self.second = second


@pytest.mark.parametrize("cls", EVERY_CLASS)
def test_every_error_survives_pickling_with_its_attributes(cls: type[TidemarkError]) -> None:
    error = cls("what happened")
    for name in vars(error):
        setattr(error, name, f"value of {name}")

    copy = pickle.loads(pickle.dumps(error))

    assert type(copy) is cls
    assert str(copy) == "what happened"
    assert vars(copy) == vars(error)


def test_every_error_has_its_own_code_and_a_docstring() -> None:
    codes = [cls.code for cls in EVERY_CLASS]

    assert len(set(codes)) == len(codes)
    assert all(cls.__doc__ for cls in EVERY_CLASS)


def test_every_error_is_exported() -> None:
    assert {cls.__name__ for cls in EVERY_CLASS} <= set(errors.__all__)
    assert all(hasattr(errors, name) for name in errors.__all__)
    assert errors.__all__ == sorted(errors.__all__)


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("SchemaIncompatibleError", "StateMigrationException"),
        ("IllegalArgumentException", "ConfigError"),
        ("IllegalStateException", "IllegalStateError"),
        ("JobExecutionException", "ExecutionError"),
        ("UnknownKeyOrNamespaceException", "UnknownKeyError"),
        ("UnknownKvStateError", "StateNotServedError"),
        ("UnknownKvStateLocation", "StateNotServedError"),
        ("UnknownKvStateIdException", "StateNotServedError"),
    ],
)
def test_flink_names_are_the_same_classes(alias: str, name: str) -> None:
    assert getattr(errors, alias) is getattr(errors, name)


def test_state_that_does_not_fit_fails_under_the_name_of_the_documents() -> None:
    assert errors.StateMigrationException.__name__ == "StateMigrationException"
    assert repr(errors.SchemaIncompatibleError("no")).startswith("StateMigrationException(")


@pytest.mark.parametrize(
    ("cls", "bases"),
    [
        (ConfigError, (TidemarkError, ValueError)),
        (IllegalStateError, (TidemarkError, RuntimeError)),
        (UnsupportedOperationException, (TidemarkError, NotImplementedError)),
        (NoCurrentKeyError, (StateError, RuntimeError)),
        (UnmappedStateError, (RestoreError, IllegalStateError, RuntimeError)),
        (MaxParallelismError, (RestoreError, IllegalStateError, RuntimeError)),
        (ExecutionError, (TidemarkError, RuntimeError)),
        (errors.UnknownKeyError, (QueryError,)),
        (errors.StateNotServedError, (QueryError,)),
    ],
)
def test_errors_can_be_caught_as_the_builtin_users_expect(cls: type, bases: tuple[type, ...]) -> None:
    assert all(issubclass(cls, base) for base in bases)


def test_execution_error_quotes_and_chains_the_users_exception() -> None:
    error = ExecutionError.from_cause("Job 'wc' failed", ZeroDivisionError("division by zero"), slot=3)

    assert str(error) == "Job 'wc' failed: ZeroDivisionError: division by zero"
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert error.slot == 3


def test_cause_travels_with_the_error() -> None:
    error = ExecutionError.from_cause("failed", KeyError("k"))

    copy = pickle.loads(pickle.dumps(error))

    assert repr(copy.__cause__) == repr(KeyError("k"))


def unpicklable() -> BaseException:
    error = RuntimeError("holds a lock")
    error.lock = __import__("threading").Lock()  # type: ignore[attr-defined]
    return error


@pytest.mark.parametrize("cause", [TwoArguments("cannot be rebuilt", 1), unpicklable()])
def test_cause_that_cannot_travel_is_dropped_but_still_quoted(cause: BaseException) -> None:
    copy = pickle.loads(pickle.dumps(ExecutionError.from_cause("failed", cause)))

    assert copy.__cause__ is None
    assert str(cause) in str(copy)


def test_facts_are_plain_data_without_unset_ones() -> None:
    error = CheckpointError("late", reason=FailureReason.EXPIRED)

    assert error.facts() == {"reason": "expired"}
    assert error.message == "late"


def test_aborts_of_a_stopping_job_do_not_count_as_checkpoint_failures() -> None:
    harmless = {reason for reason in FailureReason if not reason.counts_as_failure}

    assert harmless == {
        FailureReason.JOB_STOPPING,
        FailureReason.JOB_RESTARTING,
        FailureReason.NOT_RUNNING,
    }


@pytest.mark.parametrize(
    ("arguments", "uids"),
    [({"operator_uid": "a"}, ("a",)), ({"operator_uids": ["a", "b"]}, ("a", "b")), ({}, ())],
)
def test_unmapped_state_names_every_operator(arguments: dict[str, Any], uids: tuple[str, ...]) -> None:
    assert UnmappedStateError("no owner", **arguments).operator_uids == uids
