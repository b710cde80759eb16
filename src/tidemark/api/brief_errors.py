"""Errors of ours as somebody who wrote a program wants to see them: with the lines of the program, without ours.

Python shows every frame between the program and the place where an error was found, and again for each cause: sixty
lines of our code, and the sentence that says what to do at the end of them.
"""

from __future__ import annotations

import logging
import os
import sysconfig
from pathlib import Path
from types import TracebackType
from typing import TypeVar

__all__ = ["FULL_TRACEBACKS", "brief"]

E = TypeVar("E", bound=BaseException)

FULL_TRACEBACKS = "tidemark.tracebacks"
"""The logger at whose level DEBUG errors keep all frames."""
_NOT_THE_USERS = tuple(
    # With what ends a directory: another one may begin with its name.
    f"{place}{os.sep}"
    for place in (
        Path(__file__).parents[1],
        *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")),
    )
)


def brief(error: E) -> E:
    """The error without frames that show no line of the user's, and so each of its causes."""
    if logging.getLogger(FULL_TRACEBACKS).isEnabledFor(logging.DEBUG):
        return error
    told: BaseException | None = error
    seen: set[int] = set()
    while told is not None and id(told) not in seen:
        seen.add(id(told))
        if not _shows_the_program(told.__traceback__):
            told.__traceback__ = None
        told = told.__cause__ or told.__context__
    return error


def _shows_the_program(frames: TracebackType | None) -> bool:
    while frames is not None:
        file = frames.tb_frame.f_code.co_filename
        if not file.startswith((*_NOT_THE_USERS, "<frozen")):
            return True
        frames = frames.tb_next
    return False
