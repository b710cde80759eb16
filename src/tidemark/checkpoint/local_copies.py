"""Copies of a slot's keyed state on its own disk, so that a restart on the same machine reads nothing remote.

The durable checkpoint is written in any case and decides; a copy is a shortcut that is used only if every
byte of it verifies. Whatever goes wrong with a copy is logged, never raised.

::

    <root>/tidemark-copies-<uid>/<job id>/slot-<i>/chk-<n>/<operator>/<state>/part-<subtask>.parquet   tables
                                                          /native/<checksum>           hard links of native files

The first directory is this user's alone; copies in it are not believed if it is somebody else's. The processes of
a job's slots share its directory. When none is left on this machine, because the job ended or all of them were
killed, the directory goes: with the last one that ends in order, or with the next start of a job.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import xxhash

from tidemark.checkpoint.format.read import verify_table
from tidemark.checkpoint.metadata.model import FileHandle, TableHandle
from tidemark.checkpoint.storage.filesystem import FileSystemStorage
from tidemark.errors import ConfigError, StorageError
from tidemark.private_files import make_directories, open_private, private_directory
from tidemark.scratch import leave_directory, share_directory, sweep_scratch

__all__ = ["LocalCopies", "copies_root", "sweep_copies"]

_log = logging.getLogger(__name__)


class LocalCopies:
    """The copies one slot keeps. Safe to use from the snapshot threads of the slot."""

    def __init__(self, root: Path, job_id: str, slot: int) -> None:
        """Keep copies below `root`, which others may use as well; those of jobs that are gone are removed.

        Raises:
            ConfigError: This user's directory below `root` is somebody else's; the message names it.
            OSError: It cannot be made.
        """
        self._job = private_directory(_of_this_user(root)) / job_id
        share_directory(self._job)
        sweep_copies(root)
        self._root = private_directory(self._job / f"slot-{slot}")
        self.storage = FileSystemStorage(sync=False)

    def directory(self, checkpoint_id: int) -> Path:
        """Where the copies of one checkpoint are."""
        return self._root / f"chk-{checkpoint_id}"

    @contextmanager
    def tee(self, file: BinaryIO, checkpoint_id: int, path: str) -> Iterator[BinaryIO]:
        """A file that writes to `file` and to the copy of table `path`."""
        target = self.directory(checkpoint_id) / path
        try:
            make_directories(target.parent, 0o700)
            copy = open(open_private(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb")  # noqa: SIM115
        except (OSError, ConfigError) as exc:
            _log.warning("No local copy of %s: %s", path, exc)
            yield file
            return
        with copy:
            yield _Tee(file, copy)  # type: ignore[misc]

    def link(self, checkpoint_id: int, source: Path, handle: FileHandle) -> None:
        """Keep a native file that was, or had been, uploaded as `handle`."""
        target = self.native_path(checkpoint_id, handle)
        try:
            make_directories(target.parent, 0o700)
            with suppress(FileExistsError):
                os.link(source, target)
        except OSError as exc:
            _log.warning("No local copy of %s: %s", source, exc)

    def has_table(self, checkpoint_id: int, handle: TableHandle) -> bool:
        """Whether an intact copy of the table is here."""
        if handle.path is None or not (self.directory(checkpoint_id) / handle.path).is_file():
            return False
        try:
            verify_table(handle, self.storage, str(self.directory(checkpoint_id)))
        except StorageError as exc:
            _log.warning("A local copy is not used: %s", exc)
            return False
        return True

    def native_file(self, checkpoint_id: int, handle: FileHandle) -> Path | None:
        """An intact copy of a native file, if there is one."""
        path = self.native_path(checkpoint_id, handle)
        try:
            with path.open("rb") as file:
                hasher = xxhash.xxh3_128()
                while chunk := file.read(1 << 20):
                    hasher.update(chunk)
        except OSError:
            return None
        if hasher.digest() != handle.checksum:
            _log.warning("The local copy %s is damaged and not used.", path)
            return None
        return path

    def completed(self, checkpoint_id: int) -> None:
        """A checkpoint is complete: older copies will not be needed."""
        if not self._root.is_dir():
            return
        for entry in self._root.iterdir():
            number = entry.name.removeprefix("chk-")
            if number.isdigit() and int(number) < checkpoint_id:
                shutil.rmtree(entry, ignore_errors=True)

    def aborted(self, checkpoint_id: int) -> None:
        """A checkpoint will never complete: its copies are useless."""
        shutil.rmtree(self.directory(checkpoint_id), ignore_errors=True)

    def close(self) -> None:
        """Delete all copies: the job has ended."""
        shutil.rmtree(self._root, ignore_errors=True)
        leave_directory(self._job)

    def native_path(self, checkpoint_id: int, handle: FileHandle) -> Path:
        """Where the copy of a native file is, if there is one."""
        return self.directory(checkpoint_id) / "native" / handle.checksum.hex()


def copies_root(directories: str | None) -> Path:
    """Where copies are kept on this machine, given `taskmanager.state.local.root-dirs`."""
    return Path((directories or tempfile.gettempdir()).split(",")[0])


def sweep_copies(root: Path) -> list[str]:
    """Remove copies below `root` of this user's jobs no slot of which is alive here; return their paths. Never raises.

    A job that is about to start its slots again may be among them: it reads the durable checkpoint instead.
    """
    mine = _of_this_user(root)
    try:
        return sweep_scratch(private_directory(mine), prefix="") if os.path.lexists(mine) else []
    except (OSError, ConfigError):
        # Somebody else's: nothing in it is ours.
        return []


def _of_this_user(root: Path) -> Path:
    return root / f"tidemark-copies-{os.geteuid()}"


class _Tee:
    """Writes to a file and, until that fails, to a copy of it."""

    def __init__(self, file: BinaryIO, copy: BinaryIO) -> None:
        self._file = file
        self._copy: BinaryIO | None = copy

    def write(self, data: bytes) -> int:
        self._file.write(data)
        if self._copy is not None:
            try:
                self._copy.write(data)
            except OSError as exc:
                _log.warning("A local copy is given up: %s", exc)
                self._copy = None
        return len(data)
