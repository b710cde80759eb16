from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidemark.checkpoint.layout import (
    JobLayout,
    new_savepoint_directory,
    resolve_snapshot_path,
    savepoint_location,
    table_path,
)
from tidemark.checkpoint.metadata import CheckpointMetadata, write_metadata
from tidemark.checkpoint.storage import FileSystemStorage
from tidemark.errors import ConfigError, SavepointNotFoundError
from tidemark.paths import absolute, join, name_of, parent
from tidemark.state.descriptors import StateKind
from tidemark.state.snapshot import StateMeta

JOB = "0123456789abcdef" * 2


def metadata(checkpoint_id: int, timestamp: int = 0) -> CheckpointMetadata:
    return CheckpointMetadata(checkpoint_id, timestamp, JOB)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/a/b", "/a"),
        ("/a/b/", "/a"),
        ("/a", "/"),
        ("a", "."),
        ("s3://bucket/a/b", "s3://bucket/a"),
        ("file:/a", "file:/"),
    ],
)
def test_parent_of_a_path(path: str, expected: str) -> None:
    assert parent(path) == expected


def test_paths_are_joined_with_single_slashes() -> None:
    assert join("s3://bucket/a/", "b", "/c/") == "s3://bucket/a/b/c"
    assert join("/", "a") == "/a"
    assert join("/a/") == "/a"
    assert name_of("/a/b/") == "b"


def test_relative_paths_become_absolute_and_uris_stay() -> None:
    assert absolute("checkpoints") == os.path.abspath("checkpoints")
    assert absolute("hdfs://name/a/") == "hdfs://name/a"
    assert absolute("file:///") == "file:///"


def test_a_job_has_its_directories() -> None:
    layout = JobLayout.create("s3://bucket/ck/", JOB)

    assert layout.directory == f"s3://bucket/ck/{JOB}"
    assert layout.checkpoint(7).directory == f"s3://bucket/ck/{JOB}/chk-7"
    assert layout.checkpoint(7).metadata_path == f"s3://bucket/ck/{JOB}/chk-7/_metadata"
    assert layout.checkpoint(7).shared == layout.shared == f"s3://bucket/ck/{JOB}/shared"
    assert savepoint_location(layout.checkpoint(7).directory) == layout.checkpoint(7)


def test_a_savepoint_directory_is_named_after_the_job_and_always_new() -> None:
    first, second = (new_savepoint_directory("/savepoints/", JOB) for _ in range(2))

    assert first != second
    prefix, tail = first.rsplit("-", 1)
    assert prefix == "/savepoints/savepoint-012345"
    assert len(bytes.fromhex(tail)) == 6


@pytest.mark.parametrize("target", [None, ""])
def test_a_savepoint_needs_a_target(target: str | None) -> None:
    with pytest.raises(ConfigError, match=r"state\.savepoints\.dir"):
        new_savepoint_directory(target, JOB)


def test_table_paths_are_readable_safe_and_distinct() -> None:
    def path(uid: str, name: str, kind: StateKind = StateKind.VALUE) -> str:
        return table_path(uid, StateMeta(name, kind, b"", b""), 3)

    assert path("my-op", "count") == "my-op/count/part-00003.parquet"
    odd = {path("op", name) for name in ("a b", "a/b", "a_b", "../b", "_b", ".b", "ä", "b", "~b", "x" * 300)}
    assert len(odd) == 10
    assert all(len(part) < 100 and part[0] not in "._" for p in odd for part in p.split("/"))
    assert all(p.count("/") == 2 for p in odd)
    assert path("op", "t", StateKind.TIMER) != path("op", "timer~t")


@pytest.mark.parametrize("suffix", ["", "/", "/_metadata"])
def test_a_snapshot_is_found_by_directory_or_metadata(tmp_path: Path, suffix: str) -> None:
    storage = FileSystemStorage()
    directory = str(tmp_path / "chk-3")
    write_metadata(storage, directory, metadata(3))

    assert resolve_snapshot_path(storage, directory + suffix) == directory
    assert resolve_snapshot_path(storage, f"file://{directory}{suffix}") == f"file://{directory}"


def test_a_directory_without_metadata_is_no_snapshot(tmp_path: Path) -> None:
    with pytest.raises(SavepointNotFoundError, match="_metadata is missing"):
        resolve_snapshot_path(FileSystemStorage(), str(tmp_path))


def test_a_path_to_nothing_is_no_snapshot(tmp_path: Path) -> None:
    with pytest.raises(SavepointNotFoundError, match="does not exist") as caught:
        resolve_snapshot_path(FileSystemStorage(), str(tmp_path / "nope"))

    assert caught.value.path == str(tmp_path / "nope")
