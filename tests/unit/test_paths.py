"""What a path is, is said in one module."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tidemark
from tidemark.errors import ConfigError
from tidemark.paths import absolute, is_local, local_path, remote
from tidemark.runtime.sources.files import expand_path, file_size, open_binary

SOURCES = Path(tidemark.__file__).parent


def test_only_the_path_module_knows_fsspec_and_file_uris():
    # Strings and imports; what documentation says about fsspec does not count.
    knows = re.compile(r"^\s*(import|from) fsspec|fsspec\.\w+\(|\(\"file:", re.MULTILINE)
    found = {
        path.relative_to(SOURCES).as_posix()
        for path in SOURCES.rglob("*.py")
        if knows.search(path.read_text())
    }

    # A file system of fsspec is one, whoever makes it.
    assert found <= {"paths.py", "webhdfs.py"}


@pytest.mark.parametrize("path", ["/a/b", "a/b", "file:///a/b", "file:/a/b"])
def test_bare_paths_and_file_uris_are_local(path: str):
    assert is_local(path)
    assert local_path(path) == ("a/b" if path == "a/b" else "/a/b")


@pytest.mark.parametrize("path", ["s3://bucket/a", "hdfs://host/a", "memory://a"])
def test_other_schemes_are_not(path: str):
    assert not is_local(path)
    assert absolute(path) == path


def test_a_path_relative_to_a_directory_that_was_deleted_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()

    with pytest.raises(ConfigError, match="'chk-7' is relative"):
        absolute("chk-7")
    assert absolute("/a/chk-7") == "/a/chk-7"


@pytest.mark.parametrize("scheme", ["", "file://", "file:"])
def test_a_file_source_takes_every_spelling_of_a_local_path(tmp_path: Path, scheme: str):
    (tmp_path / "in").write_bytes(b"1\n")

    (found,) = expand_path(f"{scheme}{tmp_path}")

    assert (found, file_size(f"{scheme}{found}")) == (f"{tmp_path}/in", 2)
    with open_binary(f"{scheme}{found}") as stream:
        assert stream.read() == b"1\n"


@pytest.fixture
def web_hdfs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without Hadoop's native client."""
    monkeypatch.setattr("tidemark.paths._native_hdfs", lambda: False)


def test_hdfs_without_a_native_client_is_the_web_server_of_the_name_node(web_hdfs: None) -> None:
    filesystem, path = remote("hdfs://namenode:40010/flink/checkpoints")

    assert path == "/flink/checkpoints"
    assert filesystem.unstrip_protocol(path) == "hdfs://namenode:40010/flink/checkpoints"
    assert filesystem.storage_options["addresses"] == ("http://namenode:9870",)


def test_hdfs_without_a_host_needs_an_address(web_hdfs: None) -> None:
    with pytest.raises(ValueError, match=r"hdfs\.webhdfs\.address"):
        remote("hdfs:///flink/checkpoints")


def test_a_name_with_a_question_mark_stays_whole(web_hdfs: None) -> None:
    assert remote("hdfs://namenode/a/what?/b#c d")[1] == "/a/what?/b#c d"
