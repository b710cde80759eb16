"""What a power cut would leave: bytes that were synced, under names that were. Other tests run without syncs."""

from __future__ import annotations

import errno
import os
import stat
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tidemark.api.connectors.file_system import RollingPolicy
from tidemark.checkpoint.metadata import CheckpointMetadata, write_metadata
from tidemark.checkpoint.storage.filesystem import FileSystemStorage
from tidemark.errors import StorageError
from tidemark.protocol.reports import TaskReport
from tidemark.runtime.claim import Claim
from tidemark.runtime.places import open_place
from tidemark.runtime.records import Records
from tidemark.runtime.sinks.file_driver import FilesSink
from tidemark.runtime.sinks.file_task import FileTaskSink, LineWriter


class Disk:
    """Notes what reaches it."""

    def __init__(self) -> None:
        self._bytes: dict[int, tuple[int, str]] = {}
        """Inode of a file -> how much of it was synced last, and what it was called then."""
        self._names: dict[int, frozenset[str]] = {}
        """Inode of a directory -> the names that were synced last."""
        self.refuses_directories = 0
        """Error that syncing a directory gives."""

    def fsync(self, descriptor: int) -> None:
        found = os.fstat(descriptor)
        if not stat.S_ISDIR(found.st_mode):
            name = os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))
            self._bytes[found.st_ino] = (found.st_size, name)
        elif self.refuses_directories:
            raise OSError(self.refuses_directories, "refused")
        else:
            self._names[found.st_ino] = frozenset(os.listdir(descriptor))

    def has_bytes(self, path: Path) -> bool:
        """Whether the content outlives a power cut."""
        found = path.stat()
        return self._bytes.get(found.st_ino, (-1, ""))[0] == found.st_size > 0

    def has_name(self, path: Path) -> bool:
        """Whether it is found again under its name."""
        return path.name in self._names.get(path.parent.stat().st_ino, ())

    def name_when_synced(self, path: Path) -> str:
        return self._bytes[path.stat().st_ino][1]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(os, "fsync", disk.fsync)
    return disk


def test_a_file_of_a_snapshot_reaches_the_disk_before_it_gets_its_name(tmp_path: Path, disk: Disk) -> None:
    path = tmp_path / "chk-1" / "part"

    with FileSystemStorage().create(str(path)) as file:
        file.write(b"x" * 100_000)

    assert disk.has_bytes(path)
    assert disk.name_when_synced(path) != path.name


def test_metadata_is_there_after_a_power_cut_as_soon_as_it_is_written(tmp_path: Path, disk: Disk) -> None:
    """Sinks commit behind it: without its name they would have published what no snapshot covers."""
    directory = tmp_path / "chk-1"

    write_metadata(FileSystemStorage(), str(directory), CheckpointMetadata(1, 0, "ab" * 16))

    assert disk.has_bytes(directory / "_metadata")
    assert disk.name_when_synced(directory / "_metadata") != "_metadata"
    assert disk.has_name(directory / "_metadata")


@pytest.mark.parametrize(("code", "is_fatal"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_a_mount_that_syncs_no_directories_will_do_and_one_that_fails_to_will_not(
    tmp_path: Path, disk: Disk, code: int, is_fatal: bool
) -> None:
    disk.refuses_directories = code
    path = tmp_path / "file"

    if is_fatal:
        with pytest.raises(StorageError):
            FileSystemStorage().write(str(path), b"x")
    else:
        FileSystemStorage().write(str(path), b"x")
        assert path.read_bytes() == b"x"


def test_copies_that_only_save_time_are_not_waited_for(tmp_path: Path, disk: Disk) -> None:
    path = tmp_path / "copy"

    FileSystemStorage(sync=False).write(str(path), b"x")

    assert not disk.has_bytes(path)
    assert not disk.has_name(path)


def test_a_claim_is_there_after_a_power_cut_as_soon_as_it_is_made(tmp_path: Path, disk: Disk) -> None:
    Claim.acquire(open_place(str(tmp_path)), ".claim", "job", "The sink 'out'")

    [generation] = (tmp_path / ".claim").glob(".generation-*")
    assert disk.has_bytes(generation)
    assert disk.has_name(generation)


def test_output_is_on_the_disk_before_a_checkpoint_lists_it_and_its_names_before_that_is_noted(
    tmp_path: Path, disk: Disk
) -> None:
    vertex: Any = SimpleNamespace(id=3, uid="out")
    sink = FilesSink(vertex, str(tmp_path), "job")
    sink.claim("job", None)
    assert sink.staging is not None
    task = FileTaskSink(
        str(tmp_path),
        sink.staging,
        partial(LineWriter, str.encode),
        lambda value, _now: value,
        "p",
        ".txt",
        RollingPolicy(1),
        "u",
        3,
        check_every_ms=60_000,
    )
    for bucket in ("a", "b"):
        task.write(Records([bucket]))
    report = TaskReport(0, 0)
    task.close(report)
    staged = report.staged[3]
    assert [disk.has_bytes(Path(file.staged)) for file in staged] == [True, True]

    sink.take([], staged, 1)
    sink.prepare(1)
    sink.commit(1)

    assert [disk.has_name(Path(file.final)) for file in staged] == [True, True]
    sink.close()
