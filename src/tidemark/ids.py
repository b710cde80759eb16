"""The id of a job."""

from __future__ import annotations

import re
import uuid

__all__ = ["JobID", "new_job_id"]

_JOB_ID = re.compile(r"[0-9a-f]{32}\Z")


class JobID(str):
    """A job's id: 32 lower-case hex characters. It is a plain string to everyone who reads it."""

    __slots__ = ()

    def __new__(cls, value: str | None = None) -> JobID:
        """Wrap `value` or draw a random id.

        Raises:
            ValueError: `value` is not 32 lower-case hex characters.
        """
        text = uuid.uuid4().hex if value is None else value
        if _JOB_ID.match(text) is None:
            raise ValueError(f"{text!r} is not a job id. A job id has 32 lower-case hex characters.")
        return super().__new__(cls, text)


def new_job_id() -> JobID:
    """Return a fresh random job id."""
    return JobID()
