"""Positions of streaming queries: what is taken from Spark's directory, and what is let into a new one. No JVM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tidemark.errors import RestoreError
from tidemark.runtime.sources.spark_position import (
    pack_initial_position,
    pack_position,
    unpack_position,
)

HEADER = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}'


def write(directory: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return directory


def files_in(directory: Path) -> dict[str, str]:
    return {str(p.relative_to(directory)): p.read_text() for p in directory.rglob("*") if p.is_file()}


def seen(path: str, batch: int) -> str:
    return f'v1\n{{"path":"{path}","timestamp":1,"batchId":{batch}}}'


def restored(position: Any, directory: Path) -> dict[str, str]:
    unpack_position(position, str(directory), "in")
    files = files_in(directory)
    assert files.pop("metadata").startswith('{"id":')
    return files


def test_what_the_rate_source_keeps_is_copied_as_it_is(tmp_path: Path) -> None:
    query = write(tmp_path / "q", {"offsets/3": f"{HEADER}\n7", "sources/0/0": "v1\n1794836130866"})

    files = restored(pack_position(str(query), 3), tmp_path / "r")

    assert files == {
        "offsets/0": f"{HEADER}\n7",
        "commits/0": "v1\n{}",
        "sources/0/0": "v1\n1794836130866",
    }


def test_every_source_of_a_union_goes_by_its_own_line(tmp_path: Path) -> None:
    kafka = 'v1\n{"orders":{"0":5}}'
    query = write(
        tmp_path / "q",
        {
            "offsets/2": f'{HEADER}\n{{"logOffset":1}}\n{{"orders":{{"0":9}}}}\n-\n{{"logOffset":4}}',
            **{f"sources/0/{n}": seen("a", n) for n in range(3)},
            "sources/1/0": kafka,
            "sources/2/0": seen("ahead of its first batch", 0),
            **{f"sources/3/{n}": seen("d", n) for n in (0, 1, 3, 4, 5)},
            "sources/3/2.compact": seen("d", 2),
            "sources/3/.4.crc": "checksum",
        },
    )

    files = restored(pack_position(str(query), 2), tmp_path / "r")

    assert sorted(name for name in files if name.startswith("sources")) == [
        "sources/0/0",
        "sources/0/1",
        "sources/1/0",
        "sources/3/2.compact",
        "sources/3/3",
        "sources/3/4",
    ]
    assert files["sources/1/0"] == kafka


def test_before_the_first_batch_the_place_where_sources_begin_is_kept_and_nothing_else(
    tmp_path: Path,
) -> None:
    query = write(
        tmp_path / "q",
        {
            "offsets/0": f'{HEADER}\n{{"orders":{{"0":7}}}}\n{{"logOffset":0}}',
            "sources/0/0": 'v1\n{"orders":{"0":5}}',
            "sources/1/0": seen("a", 0),
        },
    )

    files = restored(pack_initial_position(str(query)), tmp_path / "r")

    assert files == {"sources/0/0": 'v1\n{"orders":{"0":5}}'}


def test_a_position_of_release_0_1_is_text_and_still_restorable(tmp_path: Path) -> None:
    files = restored({"offsets": f"{HEADER}\n5", "sources": {"0": {"0": "v1\n1"}}}, tmp_path / "r")

    assert files["sources/0/0"] == "v1\n1"


@pytest.mark.parametrize(
    ("position", "entry"),
    [
        ([1], "position"),
        ({"offsets": 5, "sources": {}}, "offsets"),
        ({"offsets": "v1", "sources": ["0"]}, "sources"),
        ({"offsets": "v1", "sources": {"..": {"0": ""}}}, "sources/.."),
        ({"offsets": "v1", "sources": {"0/../../..": {"0": ""}}}, "sources/0/../../.."),
        ({"offsets": "v1", "sources": {0: {"0": ""}}}, "sources/0"),
        ({"offsets": "v1", "sources": {"0": {"../../../../tmp/x": ""}}}, "sources/0/../../../../tmp/x"),
        ({"offsets": "v1", "sources": {"0": {"/etc/x": ""}}}, "sources/0//etc/x"),
        ({"offsets": "v1", "sources": {"0": {".bashrc": ""}}}, "sources/0/.bashrc"),
        ({"offsets": "v1", "sources": {"0": {"0\n": ""}}}, "sources/0/0\n"),
        ({"offsets": "v1", "sources": {"0": {"0": 5}}}, "sources/0/0"),
        ({"offsets": "v1", "sources": {"0": "text"}}, "sources/0"),
    ],
)
def test_a_hostile_position_writes_nothing_and_is_named(tmp_path: Path, position: Any, entry: str) -> None:
    target = tmp_path / "deep" / "er" / "query"
    target.mkdir(parents=True)

    with pytest.raises(RestoreError) as caught:
        unpack_position(position, str(target), "in")

    assert f"'{entry}'" in str(caught.value)
    assert caught.value.operator_uid == "in"
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


LOG = f'{HEADER}\n{{"logOffset":1}}'
ROOTS = ["file:/data/a b", "hdfs://nn:9000/in"]


def file_log(offsets: str | None = LOG, **entries: str) -> dict[str, Any]:
    return {
        "offsets": offsets,
        "sources": {"0": {name.removeprefix("at_"): text for name, text in entries.items()}},
    }


@pytest.mark.parametrize(
    ("position", "told"),
    [
        (file_log(at_2=seen("file:///etc/passwd", 2)), "behind the committed offset 1"),
        (file_log(at_1=seen("file:///data/a%20b/x", 2)), "of another look"),
        (file_log(at_1=seen("file:///data/a%20b/x", 1) + seen("x", 1)), "describes no file"),
        (file_log(at_1=seen("file:///data/a%20b/x", 1)[3:]), "begin with a version"),
        (
            file_log(at_1='v1\n{"path":"file:///data/a%20b/x","path":"/etc/x","batchId":1}'),
            "describes no file",
        ),
        (file_log(at_1="v1\n" + "[" * 100_000), "describes no file"),
        (file_log(latest=seen("file:///data/a%20b/x", 1)), "no entry of a log"),
        (file_log(f"{HEADER}\n-", at_0=seen("file:///data/a%20b/x", 0)), "no offset says"),
        (file_log(f"{HEADER}\n7", at_0=seen("file:///data/a%20b/x", 0)), "no offset says"),
        (file_log(None, at_0="v1\r" + seen("file:///etc/passwd", 0)[3:]), "no offset says"),
        (file_log(f'{HEADER}\n{{"logOffset":9,"logOffset":0}}', at_0=seen("/x", 0)), "no offset says"),
        (file_log(LOG.replace("\n", "\r\n")), "lines that end"),
        *[
            (file_log(at_1=seen(path, 1)), "where the source reads now")
            for path in (
                "file:///etc/passwd",
                "file:///data/a%20bc/x",
                "file:///data/a%20b/../x",
                "file:///data/a%20b/%2e%2e/x",
                "hdfs://other/in/x",
                "/in/x",
            )
        ],
    ],
)
def test_a_log_of_files_from_a_stranger_is_refused(tmp_path: Path, position: Any, told: str) -> None:
    with pytest.raises(RestoreError, match=told) as caught:
        unpack_position(position, str(tmp_path / "r"), "in", ROOTS)

    assert caught.value.operator_uid == "in"
    assert not (tmp_path / "r").exists()


def test_a_log_of_files_below_the_paths_of_the_source_is_let_in(tmp_path: Path) -> None:
    position = file_log(
        **{"0.compact": seen("file:///data/a%20b/c/x", 0), "1": seen("hdfs://nn:9000/in/y", 1)}
    )

    unpack_position(position, str(tmp_path / "r"), "in", ROOTS)

    assert (tmp_path / "r" / "sources" / "0" / "1").exists()
