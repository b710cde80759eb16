"""Identifiers with types of their own, so that two ints that mean different things cannot be swapped."""

from __future__ import annotations

import re
import uuid
from typing import NewType

__all__ = [
    "AttemptNumber",
    "CheckpointId",
    "Epoch",
    "JobID",
    "KeyGroup",
    "OperatorUid",
    "SlotIndex",
    "is_job_id",
    "new_job_id",
]

CheckpointId = NewType("CheckpointId", int)
"""Number of a checkpoint or savepoint attempt; starts at 1, never reused within a job."""

OperatorUid = NewType("OperatorUid", str)
"""What matches an operator with its state across restores."""

KeyGroup = NewType("KeyGroup", int)
"""Smallest unit of keyed state that moves between slots; 0 <= group < max parallelism."""

SlotIndex = NewType("SlotIndex", int)
"""Subtask index, 0-based."""

Epoch = NewType("Epoch", int)
"""Number of one micro-batch over all sources; starts at 1 in each attempt."""

AttemptNumber = NewType("AttemptNumber", int)
"""0 on the first run, one more after each restart; doubles as the fencing token."""

_JOB_ID = re.compile(r"[0-9a-f]{32}\Z")


class JobID(str):
    """A job's id: 32 lower-case hex characters. It is a plain string to everyone who reads it."""

    __slots__ = ()

    def __new__(cls, value: str | None = None) -> JobID:
        """Wrap ``value`` or draw a random id.

        Raises:
            ValueError: ``value`` is not 32 lower-case hex characters.
        """
        text = uuid.uuid4().hex if value is None else value
        if _JOB_ID.match(text) is None:
            raise ValueError(f"{text!r} is not a job id. A job id has 32 lower-case hex characters.")
        return super().__new__(cls, text)


def new_job_id() -> JobID:
    """Return a fresh random job id."""
    return JobID()


def is_job_id(text: str) -> bool:
    """Tell whether ``text`` has the form of a job id."""
    return _JOB_ID.match(text) is not None
