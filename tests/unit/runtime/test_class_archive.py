"""When the classes of Spark's JVM are kept, when they are used, and when neither."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidemark.runtime.class_archive import CLASS_ARCHIVE, class_archive_options

WRITES, USES = "-XX:ArchiveClassesAtExit=", "-XX:SharedArchiveFile="


@pytest.fixture
def java(tmp_path: Path) -> str:
    """A Java that has its own classes at hand, as JDKs have them."""
    (tmp_path / "jdk/lib/server").mkdir(parents=True)
    (tmp_path / "jdk/lib/server/classes.jsa").touch()
    (tmp_path / "jdk/bin").mkdir()
    (tmp_path / "jdk/bin/java").touch()
    return str(tmp_path / "jdk/bin/java")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """One with a cache of its own."""
    return {"XDG_CACHE_HOME": str(tmp_path / "cache")}


def file_of(options: str) -> Path:
    return Path(options.rpartition("=")[2].rstrip('"'))


def test_the_first_jvm_writes_its_classes_and_the_next_ones_use_them(
    java: str, environ: dict[str, str], tmp_path: Path
) -> None:
    first = class_archive_options(java, "", environ)
    file_of(first).write_bytes((0xF00BABA8).to_bytes(4, "little") + b"the classes")
    second = class_archive_options(java, "", environ)

    assert WRITES in first
    assert USES in second
    assert file_of(first) == file_of(second)
    assert file_of(first).is_relative_to(tmp_path / "cache/tidemark")
    assert file_of(first).parent.stat().st_mode & 0o777 == 0o700


def test_another_java_has_a_file_of_its_own(java: str, environ: dict[str, str]) -> None:
    before = file_of(class_archive_options(java, "", environ))
    os.utime(Path(java).parent.parent, (1, 1))

    assert file_of(class_archive_options(java, "", environ)) != before


def test_a_file_that_is_not_whole_is_left_to_its_jvm_and_written_again_when_that_must_be_dead(
    java: str, environ: dict[str, str]
) -> None:
    file = file_of(class_archive_options(java, "", environ))
    file.write_bytes(bytes(1000))
    meanwhile = class_archive_options(java, "", environ)
    os.utime(file, (1, 1))

    assert meanwhile == ""
    assert WRITES in class_archive_options(java, "", environ)


@pytest.mark.parametrize("options", ["-Xshare:off", "-XX:SharedArchiveFile=mine.jsa"])
def test_who_says_it_otherwise_is_left_alone(java: str, environ: dict[str, str], options: str) -> None:
    assert class_archive_options(java, options, environ) == ""


def test_it_can_be_turned_off_and_put_elsewhere(java: str, tmp_path: Path) -> None:
    assert class_archive_options(java, "", {CLASS_ARCHIVE: "off"}) == ""
    elsewhere = class_archive_options(java, "", {CLASS_ARCHIVE: str(tmp_path / "elsewhere")})
    assert file_of(elsewhere).parent == tmp_path / "elsewhere"


def test_a_place_where_others_write_is_not_used(java: str, environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "cache/tidemark/classes").mkdir(parents=True)
    (tmp_path / "cache/tidemark/classes").chmod(0o777)

    assert class_archive_options(java, "", environ) == ""


def test_a_java_without_classes_of_its_own_is_told_nothing(java: str, environ: dict[str, str]) -> None:
    Path(java).parent.parent.joinpath("lib/server/classes.jsa").unlink()

    assert class_archive_options(java, "", environ) == ""
