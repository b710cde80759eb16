"""Whose lines a traceback shows."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidemark
from tidemark.api.brief_errors import brief

OURS = Path(tidemark.__file__).parent


@pytest.mark.parametrize(
    ("file", "is_shown"),
    [
        (OURS / "runtime" / "runner.py", False),
        (Path(f"{OURS}_jobs") / "program.py", True),
        (Path("/home/user/program.py"), True),
    ],
)
def test_only_errors_with_a_line_of_the_program_keep_their_frames(file: Path, is_shown: bool) -> None:
    raises = compile("raise ValueError", str(file), "exec")
    try:
        exec(raises)
    except ValueError as exc:
        error = exc
    # The frame of this test is one of a program, too.
    assert error.__traceback__ is not None
    error.__traceback__ = error.__traceback__.tb_next

    assert (brief(error).__traceback__ is not None) is is_shown
