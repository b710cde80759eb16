"""A failure keeps what the restart decision needs on its way from a slot to the driver."""

from __future__ import annotations

import pickle

import pytest

from tidemark.errors import (
    ExecutionError,
    MissingClassError,
    RestoreError,
    StateMigrationException,
    StorageError,
    StorageVerdict,
)
from tidemark.protocol.failure import FailureInfo, is_curable


def travelled(exc: Exception) -> BaseException:
    """What the driver sees of an exception in a slot."""
    info: FailureInfo = pickle.loads(pickle.dumps(FailureInfo.of(exc, "op", "uid", 3)))
    return info.error(7, "job")


@pytest.mark.parametrize("kind", [RestoreError, StateMigrationException, MissingClassError])
@pytest.mark.parametrize("wrapped", [False, True])
def test_what_no_restart_cures_stays_so(kind: type[Exception], wrapped: bool) -> None:
    exc = kind("does not fit")
    error = travelled(ExecutionError.from_cause("Operator failed", exc) if wrapped else exc)

    assert not is_curable(error)
    assert "does not fit" in str(error)


def test_a_cause_that_cannot_travel_does_not_take_the_verdict_with_it() -> None:
    class Local(StateMigrationException):
        """Cannot be rebuilt from a pickle."""

        def __reduce__(self) -> tuple[object, ...]:
            raise TypeError("no pickles")

    assert not is_curable(travelled(Local("does not fit")))
    assert is_curable(travelled(ValueError(lambda: None)))


@pytest.mark.parametrize("verdict", StorageVerdict)
def test_the_verdict_about_the_bytes_travels(verdict: StorageVerdict) -> None:
    info = FailureInfo.of(StorageError("broken", path="/x", verdict=verdict))

    restored = pickle.loads(pickle.dumps(info)).exception()

    assert isinstance(restored, StorageError)
    assert restored.verdict is verdict
