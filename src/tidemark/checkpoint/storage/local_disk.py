"""Files of snapshots on local disks, or on anything mounted.

A file reaches the disk (`fsync`) before it gets its name, so that `_metadata`, written last, never names bytes a
power cut lost; its own name reaches it before anybody relies on it. Files and the directories made for them are for
their owner alone unless the user asks otherwise.

Others may write in the directory that the user chose for checkpoints. Below such a root no symbolic link is
followed, and nothing is made, replaced or deleted in a directory of somebody else. Nor does a job read there what
is somebody else's: checksums tell damage, not who wrote something.
"""

from __future__ import annotations

import errno
import os
import stat
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from tidemark.checkpoint.storage.mapping import mapped
from tidemark.private_files import UntrustedPathError, check_owner, directory_below, remove_tree_at

__all__ = ["LocalDisk", "temporary_name"]

_OTHERS_WRITE = 0o022


class LocalDisk:
    """What `FileSystemStorage` does with paths of the operating system; raises `OSError` unless it says otherwise.

    Args:
        roots: Directories the user chose, absolute; where several hold a path, the deepest counts.
        umask: Permissions that new files and directories do not have. One that lets others write means that the
            directories below a root may be theirs as well.
        sync: Force files to disk before they are published.
        authors: Users besides this one and root whose files below a root are read; None for any.
    """

    def __init__(
        self, roots: tuple[str, ...], umask: int, *, sync: bool, authors: Collection[int] | None = None
    ) -> None:
        self._roots = sorted(roots, key=len, reverse=True)
        self._umask = umask
        self._sync = sync
        private = umask & _OTHERS_WRITE == _OTHERS_WRITE
        self._writers = frozenset({os.geteuid()}) if private else None
        self._authors = frozenset({os.geteuid(), 0, *authors}) if private and authors is not None else None

    def is_below_root(self, path: str) -> bool:
        """Whether the path lies below a directory the user chose."""
        return bool(self._below_root(path)[1])

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        """Stream into a file that appears at `path` when the block ends; its errors are mapped."""
        temporary = temporary_name(os.path.basename(path))
        make = 0o777 & ~self._umask
        with mapped("written", path), self._directory_of(path, make=make, owners=self._writers) as (at, _):
            file = os.fdopen(self._open_new(temporary, at), "wb", buffering=1 << 16)
        try:
            with mapped("written", path, OSError), file:
                yield file
                file.flush()
                if self._sync:
                    os.fsync(file.fileno())
            # Entered anew: in a directory that was moved away meanwhile nothing may be published.
            with mapped("written", path), self._directory_of(path, owners=self._writers) as (at, name):
                os.replace(temporary, name, src_dir_fd=at, dst_dir_fd=at)
        except BaseException:
            with suppress(OSError), self._directory_of(path, owners=self._writers) as (at, _):
                os.unlink(temporary, dir_fd=at)
            raise

    def write(self, path: str, data: bytes) -> None:
        """Put a whole file that a power cut takes neither the bytes nor the name from; its errors are mapped."""
        with self.create(path) as file:
            file.write(data)
        if self._sync:
            with mapped("written", path), self._directory_of(path, owners=self._writers) as (at, _):
                try:
                    os.fsync(at)
                except OSError as exc:
                    # Some mounts know no such thing, and keep names in a way of their own.
                    if exc.errno != errno.EINVAL:
                        raise

    def names(self, path: str) -> list[str]:
        """Names directly inside a directory, sorted; none if there is no such directory."""
        root, names = self._below_root(path)
        try:
            with directory_below(root, names, owners=self._authors) as at:
                return sorted(os.listdir(at))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def delete(self, path: str) -> None:
        """Remove one file."""
        with self._directory_of(path, owners=self._writers) as (at, name):
            os.unlink(name, dir_fd=at)

    def delete_tree(self, path: str) -> None:
        """Remove a directory and all in it."""
        with self._directory_of(path, owners=self._writers) as (at, name):
            remove_tree_at(at, name, path, owners=self._writers)

    def _open_new(self, name: str, at: int) -> int:
        mode = 0o666 & ~self._umask
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(name, flags, mode, dir_fd=at)
        # The umask of the process may have taken away what was asked for.
        os.fchmod(handle, mode)
        return handle

    def open_file(self, path: str) -> int:
        """Open a regular file and nothing else: a pipe in its place would let the reader wait for ever."""
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        if not self.is_below_root(path):
            handle = os.open(path, flags)
        else:
            with self._directory_of(path, owners=self._authors) as (at, name):
                try:
                    handle = os.open(name, flags | os.O_NOFOLLOW, dir_fd=at)
                except OSError as exc:
                    if exc.errno != errno.ELOOP:
                        raise
                    raise _link(path) from None
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise IsADirectoryError(errno.EISDIR, "Not a regular file", path)
            if self.is_below_root(path):
                check_owner(status, path, self._authors)
        except BaseException:
            os.close(handle)
            raise
        return handle

    def stat(self, path: str) -> os.stat_result:
        """What is at the path."""
        if not self.is_below_root(path):
            return os.stat(path)
        with self._directory_of(path, owners=self._authors) as (at, name):
            found = os.stat(name, dir_fd=at, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            raise _link(path)
        check_owner(found, path, self._authors)
        return found

    def look_up(self, path: str) -> os.stat_result | None:
        """What is at the path, None if nothing; unlike `os.path.exists` an I/O error is no "nothing"."""
        try:
            return self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _below_root(self, path: str) -> tuple[str, tuple[str, ...]]:
        """The root that holds a path, and the way from there; without one the path itself."""
        text = os.path.abspath(path)
        for root in self._roots:
            start = root.rstrip("/") + "/"
            if text.startswith(start):
                return root, tuple(text[len(start) :].split("/"))
        return text, ()

    @contextmanager
    def _directory_of(
        self, path: str, *, make: int | None = None, owners: Collection[int] | None = None
    ) -> Iterator[tuple[int, str]]:
        """Descriptor of the directory that something is in, and its name there."""
        root, names = self._below_root(path)
        if not names:
            root, name = os.path.split(root)
        else:
            names, name = names[:-1], names[-1]
        with directory_below(root, names, make=make, owners=owners) as at:
            yield at, name


def temporary_name(path: str) -> str:
    """A name beside `path` for a file that is not complete yet."""
    # A leading dot hides it from Spark and DuckDB, should somebody read the directory just now.
    head, slash, name = path.rpartition("/")
    return f"{head}{slash}.{name}.{uuid.uuid4().hex[:8]}.tmp"


def _link(path: str) -> UntrustedPathError:
    return UntrustedPathError(errno.EPERM, "is a symbolic link, which is not followed", path)
