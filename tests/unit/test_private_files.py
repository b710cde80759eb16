"""Only what is this user's own is used: other owners, links and open modes are refused with a remedy."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.full_disk import full_disk

from tidemark.errors import ConfigError
from tidemark.jobs import JobRecord, list_jobs, write_record
from tidemark.private_files import (
    directory_below,
    make_directories,
    open_private,
    private_directory,
    remove_tree_at,
)
from tidemark.runtime.history import EndedJob, read_history, remember

STRANGER = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_a_private_directory_is_made_for_its_owner_alone(tmp_path: Path, umask: int) -> None:
    made = private_directory(tmp_path / "a" / "b")

    assert [mode(made), mode(made.parent)] == [0o700, 0o700]
    assert private_directory(made) == made


def test_directories_get_the_mode_that_was_asked_for_whatever_the_umask_is(
    tmp_path: Path, umask: int
) -> None:
    tmp_path.chmod(0o711)

    make_directories(tmp_path / "a" / "b", 0o750)

    assert [mode(tmp_path), mode(tmp_path / "a"), mode(tmp_path / "a" / "b")] == [0o711, 0o750, 0o750]


SWAP = """
import os, pathlib, sys
from tidemark.private_files import UntrustedPathError, make_directories

base = pathlib.Path(sys.argv[1])

def swap(event, arguments):
    # Somebody who may write in the directory acts just before the mode is set.
    if event == "os.chmod" and not (base / "made").is_symlink():
        (base / "made").rename(base / "old")
        (base / "made").symlink_to(base / "precious")

os.umask(0o077)
sys.addaudithook(swap)
try:
    make_directories(base / "made" / "below", 0o755)
except UntrustedPathError:
    pass
"""


def test_nobody_gets_the_mode_of_a_new_directory_onto_something_else(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir(mode=0o700)

    subprocess.run([sys.executable, "-c", SWAP, str(tmp_path)], check=True)

    assert (tmp_path / "made").is_symlink()
    assert mode(tmp_path / "precious") == 0o700
    assert list((tmp_path / "precious").iterdir()) == []


def test_an_existing_directory_that_only_its_owner_writes_is_used_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home").chmod(0o755)

    assert mode(private_directory(tmp_path / "home")) == 0o755


@as_root
def test_a_directory_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(mode=0o700)
    os.chown(tmp_path / "home", STRANGER, STRANGER)

    with pytest.raises(ConfigError, match=rf"home belongs to user {STRANGER}.*choose another directory"):
        private_directory(tmp_path / "home")


@pytest.mark.parametrize("bits", [0o770, 0o707, 0o777, 0o1777])
def test_a_directory_in_which_others_write_is_refused(tmp_path: Path, bits: int) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home").chmod(bits)

    with pytest.raises(ConfigError, match="chmod 700"):
        private_directory(tmp_path / "home")


def test_a_link_to_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "home").symlink_to(tmp_path / "real")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")

    for name in ("home", "dangling"):
        with pytest.raises((ConfigError, OSError)):
            private_directory(tmp_path / name)
    assert not (tmp_path / "nothing").exists()


def test_a_private_file_is_made_for_its_owner_alone_and_not_inherited(tmp_path: Path, umask: int) -> None:
    handle = open_private(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    try:
        assert mode(tmp_path / "file") == 0o600
        assert not os.get_inheritable(handle)
    finally:
        os.close(handle)


def test_links_and_pipes_are_not_opened(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(ConfigError, match="symbolic link"):
        open_private(tmp_path / "link", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    with pytest.raises(ConfigError, match="no regular file"):
        open_private(tmp_path / "pipe", os.O_RDWR)
    assert (tmp_path / "precious").read_text() == "mine"


@as_root
def test_a_file_of_somebody_else_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    os.chown(tmp_path / "file", STRANGER, STRANGER)

    with pytest.raises(ConfigError, match=f"belongs to user {STRANGER}"):
        open_private(tmp_path / "file", os.O_RDONLY)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="descriptors are counted in /proc")
def test_no_descriptor_is_left_open_whether_it_works_or_not(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path / "open")
    os.mkfifo(tmp_path / "pipe")
    at = os.open(tmp_path, os.O_RDONLY)
    before = len(os.listdir("/proc/self/fd"))

    make_directories(tmp_path / "a" / "b" / "c", 0o700)
    private_directory(tmp_path / "a" / "b")
    with directory_below(str(tmp_path), ["a", "b", "d"], make=0o700, owners=[os.geteuid()]):
        pass
    remove_tree_at(at, "a", str(tmp_path / "a"), owners=[os.geteuid()])
    refused = [
        lambda: private_directory(tmp_path / "open"),
        lambda: private_directory(tmp_path / "link"),
        lambda: open_private(tmp_path / "pipe", os.O_RDONLY),
        lambda: make_directories(tmp_path / "pipe" / "a", 0o700),
        lambda: remove_tree_at(at, "open", str(tmp_path / "open"), owners=[os.geteuid() + 1]),
    ]
    for action in refused:
        with pytest.raises((ConfigError, OSError)):
            action()

    assert len(os.listdir("/proc/self/fd")) == before
    os.close(at)


# The registry


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "home"
    monkeypatch.setenv("TIDEMARK_HOME", str(directory))
    return directory


def record() -> JobRecord:
    return JobRecord("a" * 32, "job", os.getpid(), "tcp:127.0.0.1:1", "00", None, 1 << 50)


def ended() -> EndedJob:
    return EndedJob("a" * 32, "job", "FINISHED", 0, 1, 1)


def test_everything_in_the_registry_is_private(home: Path, umask: int) -> None:
    write_record(record())
    remember(ended())

    assert mode(home) == 0o700
    assert {mode(path) for path in home.iterdir()} == {0o600}
    assert len(list_jobs()) == len(read_history()) == 1


@as_root
def test_a_registry_of_somebody_else_is_neither_read_nor_written(home: Path) -> None:
    write_record(record())
    os.chown(home, STRANGER, STRANGER)
    before = sorted(home.iterdir())

    for action in (list_jobs, read_history, lambda: write_record(record()), lambda: remember(ended())):
        with pytest.raises(ConfigError, match="belongs to user"):
            action()
    assert sorted(home.iterdir()) == before


@as_root
def test_a_record_that_somebody_else_put_there_is_not_believed(home: Path) -> None:
    path = write_record(record())
    os.chown(path, STRANGER, STRANGER)

    assert list_jobs() == []
    assert path.exists()


def test_the_lock_of_the_history_does_not_follow_a_link(home: Path, tmp_path: Path) -> None:
    private_directory(home)
    (tmp_path / "precious").write_text("mine")
    (home / "history.lock").symlink_to(tmp_path / "precious")

    with pytest.raises(ConfigError, match=r"history\.lock is a symbolic link"):
        remember(ended())
    assert (tmp_path / "precious").read_text() == "mine"


def test_a_job_does_not_start_when_others_may_write_in_the_registry(home: Path) -> None:
    from tidemark import Configuration, StreamExecutionEnvironment, Types

    home.mkdir()
    home.chmod(0o777)
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"execution.target": "local"})
    )
    env.from_collection([1], Types.LONG()).print()

    with pytest.raises(ConfigError, match="chmod 700"):
        env.execute()


def test_a_full_disk_leaves_registry_and_history_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path))
    record = JobRecord("job", "job", os.getpid(), "", "00", None, 0)
    ended = EndedJob("ended", "ended", "FINISHED", 0, 1, os.getpid())
    write_record(record)
    remember(ended)
    before = sorted(os.listdir(tmp_path))

    with full_disk():
        for write in (lambda: write_record(record), lambda: remember(ended)):
            with pytest.raises(OSError, match="too large"):
                write()

    assert sorted(os.listdir(tmp_path)) == before
    assert read_history() == [ended]
    assert (tmp_path / "job.json").stat().st_size > 0
