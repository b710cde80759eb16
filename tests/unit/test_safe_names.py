from __future__ import annotations

import pytest

from tidemark.safe_names import inner_path, plain_name

NO_NAMES = [
    "",
    ".",
    "..",
    "a/b",
    "/etc/passwd",
    "../x",
    "a\\b",
    "a\0b",
    "a\nb",
    "\x1b[2J",
    "\udc80",
    "x" * 256,
]
NO_PATHS = [
    "",
    "/",
    "/a",
    "a//b",
    "a/",
    "../a",
    "a/../b",
    "a/./b",
    "s3://bucket/a",
    "a/b\0",
    "a/" * 3000 + "a",
]


@pytest.mark.parametrize("name", ["a", "000012.sst", ".hidden", "a b", "größe", "...", "x" * 255])
def test_plain_names_pass_as_they_are(name: str) -> None:
    assert plain_name(name) == name


@pytest.mark.parametrize("name", NO_NAMES, ids=repr)
def test_what_is_no_plain_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"is|has"):
        plain_name(name)


@pytest.mark.parametrize("path", ["a", "count/part-00000.parquet", "a/b/c", "a..b/c"])
def test_paths_inside_of_a_directory_pass_as_they_are(path: str) -> None:
    assert inner_path(path) == path


@pytest.mark.parametrize("path", NO_PATHS, ids=lambda path: repr(path[:20]))
def test_paths_that_could_leave_are_refused(path: str) -> None:
    with pytest.raises(ValueError, match=r"is"):
        inner_path(path)
