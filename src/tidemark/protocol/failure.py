"""How a failure travels from a slot to the task and on to the driver, which one is the cause, which has no cure."""

from __future__ import annotations

import pickle
import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

import cloudpickle

from tidemark.errors import (
    ConfigError,
    ExecutionError,
    FencedError,
    RestoreError,
    SlotLostError,
    SparkLostError,
    StaleChannelError,
    StateMigrationException,
    StorageError,
    StorageVerdict,
)

__all__ = ["FailureInfo", "FailureKind", "OperatorFailed", "first_failure", "is_curable"]

_INCURABLE = (
    ConfigError, FencedError, SparkLostError, StateMigrationException, RestoreError, pickle.PicklingError,
)  # fmt: skip


class FailureKind(IntEnum):
    """What failed; the smaller, the nearer to the cause."""

    OPERATOR = 0
    """User code, or what runs it."""
    SLOT_LOST = 1
    """A process is gone."""
    REFUSED = 2
    """A slot refused records that do not belong to its attempt, epoch or sequence: a consequence."""


@dataclass(frozen=True, slots=True)
class FailureInfo:
    """What went wrong, where, in a form that survives any boundary."""

    summary: str
    """`ValueError: text` of the original exception."""
    trace: str
    """The traceback of the original exception, ours left out."""
    operator: str | None = None
    uid: str | None = None
    slot: int | None = None
    cause: bytes = b""
    """The pickled exception, empty if it cannot be pickled."""
    curable: bool = True
    """Whether another attempt can help, judged where the exception was whole."""
    kind: FailureKind = FailureKind.OPERATOR
    at: float = 0.0
    """When it was caught, in seconds since the epoch."""

    @classmethod
    def of(
        cls, exc: BaseException, operator: str | None = None, uid: str | None = None, slot: int | None = None
    ) -> FailureInfo:
        """Describe an exception where it was caught; an `OperatorFailed` keeps its own description."""
        if isinstance(exc, OperatorFailed):
            return exc.info
        try:
            cause = cloudpickle.dumps(exc)
            pickle.loads(cause)
        except Exception:
            cause = b""
        summary = f"{type(exc).__name__}: {exc}{_remedy(exc)}"
        curable = is_curable(exc)
        return cls(summary, _user_trace(exc), operator, uid, slot, cause, curable, _kind_of(exc), time.time())

    def exception(self) -> BaseException:
        """The original exception, or a stand-in that quotes it."""
        if self.cause:
            try:
                restored = pickle.loads(self.cause)
            except Exception:
                restored = None
            if isinstance(restored, BaseException):
                return restored
        return RuntimeError(self.summary) if self.curable else RestoreError(self.summary)

    def error(self, epoch: int | None = None, job_id: str | None = None) -> BaseException:
        """The error the driver raises: says where it happened, quotes and chains the cause."""
        cause = self.exception()
        if isinstance(cause, ExecutionError):
            return cause
        where = f"Operator '{self.operator}' (uid {self.uid})" if self.operator else "The job"
        place = "" if self.slot is None else f" on slot {self.slot}"
        when = "" if epoch is None else f" in epoch {epoch}"
        error = ExecutionError(
            f"{where} failed{when}{place}: {self.summary}\n{self.trace}",
            job_id=job_id,
            operator_uid=self.uid,
            epoch=epoch,
            slot=self.slot,
        )
        error.__cause__ = cause
        return error


def first_failure(failures: Iterable[FailureInfo]) -> FailureInfo:
    """The one that made the others happen: what is nearest to the cause, and of those the earliest."""
    return min(failures, key=lambda info: (info.kind, info.at))


def is_curable(error: BaseException) -> bool:
    """Whether trying again can help; state or a set-up that does not fit the job never fits by itself."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, _INCURABLE):
            return False
        if isinstance(seen, StorageError):
            # What lies behind it was judged when it was raised.
            return seen.verdict is not StorageVerdict.UNUSABLE
        seen = seen.__cause__
    return True


class OperatorFailed(Exception):
    """Raised between our own layers when an operator failed; carries the `FailureInfo`."""

    def __init__(self, info: FailureInfo) -> None:
        super().__init__(info.summary)
        self.info = info


def _kind_of(exc: BaseException) -> FailureKind:
    if isinstance(exc, StaleChannelError):
        return FailureKind.REFUSED
    return FailureKind.SLOT_LOST if isinstance(exc, SlotLostError) else FailureKind.OPERATOR


def _remedy(exc: BaseException) -> str:
    """What to do about a mistake that shows in our code instead of the user's."""
    frames = traceback.extract_tb(exc.__traceback__)
    ours = bool(frames) and "/tidemark/operators/" in frames[-1].filename.replace("\\", "/")
    if ours and isinstance(exc, TypeError) and str(exc).endswith("object is not iterable"):
        return ". The function has to yield its results, or return an iterable of them, or None"
    return ""


def _user_trace(exc: BaseException) -> str:
    frames = traceback.extract_tb(exc.__traceback__)
    users = [frame for frame in frames if "/tidemark/" not in frame.filename.replace("\\", "/")]
    lines = traceback.format_list(users or frames[-3:])
    return "".join(["Traceback (most recent call last):\n", *lines, *traceback.format_exception_only(exc)])
