"""Storage in file systems: local disks directly, everything else (HDFS, S3, …) through fsspec.

A whole file is published atomically: on local disks and HDFS-like systems by a temporary name and a
rename, on object stores by a single put, which they do atomically themselves, as `webhdfs.py` does. Local disks are in
`local_disk.py`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, cast

from tidemark.checkpoint.storage.base import Storage
from tidemark.checkpoint.storage.local_disk import LocalDisk, temporary_name
from tidemark.checkpoint.storage.mapping import mapped
from tidemark.errors import StorageError, StorageVerdict
from tidemark.paths import abandon, is_local, local_path, name_of, parent, remote

__all__ = ["PRIVATE", "FileSystemStorage", "within"]

PRIVATE = 0o077
"""Umask of what nobody but its owner may read."""

# These publish an object when it is complete and cannot rename cheaply. On all others a half-written
# file can be seen, so it gets a temporary name first.
_ATOMIC_PUT = frozenset(
    {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "cos", "obs", "memory", "webhdfs"}
)


class FileSystemStorage:
    """Files under any path or URI; the scheme of each path chooses the file system.

    Args:
        sync: Force local files to disk before they are published.
        umask: Permissions that new local files and directories do not have; existing directories stay as they are.
            One that lets others write means that the directories below a root may be theirs as well.
        roots: Directories the user chose. The way to them is followed, links included; below them no link is.
            Where several hold a path, the deepest counts.
        authors: Users besides this one and root whose local files below a root are read; None for any. Without
            meaning if the umask lets others write.
    """

    def __init__(
        self,
        *,
        sync: bool = True,
        umask: int = PRIVATE,
        roots: Iterable[str] = (),
        authors: Iterable[int] | None = None,
    ) -> None:
        self._sync = sync
        self._umask = umask
        self._roots = tuple(os.path.abspath(local_path(root)) for root in roots if root and is_local(root))
        self._authors = None if authors is None else tuple(authors)
        self._disk = LocalDisk(self._roots, umask, sync=sync, authors=self._authors)

    def for_job(self, umask: int, roots: Iterable[str], authors: Iterable[int] | None) -> FileSystemStorage:
        """The same storage with the permissions and the authors of a job, and further roots."""
        return FileSystemStorage(
            sync=self._sync,
            umask=umask,
            roots=(*self._roots, *roots),
            authors=authors,
        )

    def within(self, directory: str) -> FileSystemStorage:
        """The same storage for files below `directory`, which is a root unless it lies below one."""
        if not is_local(directory) or self._disk.is_below_root(local_path(directory)):
            return self
        return self.for_job(self._umask, [directory], self._authors)

    def write(self, path: str, data: bytes) -> None:
        """Put a whole file atomically."""
        if is_local(path):
            self._disk.write(local_path(path), data)
            return
        with mapped("written", path):
            fs, remote = self._remote(path)
            if _protocol(fs) in _ATOMIC_PUT:
                fs.pipe_file(remote, data)
                return
            temporary = temporary_name(remote)
            fs.makedirs(parent(remote), exist_ok=True)
            fs.pipe_file(temporary, data)
            fs.mv(temporary, remote)

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        """Stream into a file that appears at `path` when the block ends."""
        if is_local(path):
            with self._disk.create(local_path(path)) as file:
                yield file
        else:
            with self._create_remote(path) as file:
                yield file

    def read(self, path: str) -> bytes:
        """The whole file."""
        with mapped("read", path):
            if is_local(path):
                with open(self._disk.open_file(local_path(path)), "rb") as file:
                    return file.read()
            fs, remote = self._remote(path)
            return cast(bytes, fs.cat_file(remote))

    def open(self, path: str) -> BinaryIO:
        """Open for reading and seeking."""
        with mapped("read", path):
            if is_local(path):
                # Unbuffered: readers here fetch whole verified spans, so a buffer would only copy.
                return cast(BinaryIO, open(self._disk.open_file(local_path(path)), "rb", buffering=0))
            fs, remote = self._remote(path)
            return cast(BinaryIO, fs.open(remote, "rb"))

    def exists(self, path: str) -> bool:
        """Whether anything is there."""
        with mapped("looked up", path):
            if is_local(path):
                return self._disk.look_up(local_path(path)) is not None
            return self._info(path) is not None

    def is_file(self, path: str) -> bool:
        """Whether a file is there."""
        with mapped("looked up", path):
            if is_local(path):
                found = self._disk.look_up(local_path(path))
                return found is not None and stat.S_ISREG(found.st_mode)
            info = self._info(path)
            return info is not None and info["type"] == "file"

    def list(self, path: str) -> list[str]:
        """Names directly inside `path`."""
        with mapped("listed", path):
            if is_local(path):
                return self._disk.names(local_path(path))
            fs, remote = self._remote(path)
            fs.invalidate_cache()
            try:
                entries = fs.ls(remote, detail=False)
            except FileNotFoundError:
                return []
            # Object stores list the directory marker itself; a path that is a file lists itself.
            mine = remote.strip("/")
            return sorted({name_of(entry) for entry in entries if entry.strip("/") != mine})

    def size(self, path: str) -> int:
        """Length of the file."""
        with mapped("read", path):
            if is_local(path):
                return self._disk.stat(local_path(path)).st_size
            fs, remote = self._remote(path)
            return int(fs.size(remote))

    def delete(self, path: str) -> None:
        """Remove one file."""
        with mapped("deleted", path), suppress(FileNotFoundError):
            if is_local(path):
                self._disk.delete(local_path(path))
                return
            fs, remote = self._remote(path)
            fs.rm_file(remote)

    def delete_tree(self, path: str) -> None:
        """Remove a directory and all in it."""
        with mapped("deleted", path), suppress(FileNotFoundError):
            if is_local(path):
                self._disk.delete_tree(local_path(path))
                return
            fs, remote = self._remote(path)
            fs.rm(remote, recursive=True)

    def _info(self, path: str) -> dict[str, Any] | None:
        """What is at a remote path, None if nothing; fsspec's `exists` takes every error for "nothing"."""
        fs, remote = self._remote(path)
        fs.invalidate_cache()
        try:
            return cast("dict[str, Any]", fs.info(remote))
        except FileNotFoundError:
            return None

    def _remote(self, path: str) -> tuple[Any, str]:
        try:
            return remote(path)
        except (ImportError, ValueError) as exc:
            raise StorageError(
                f"No file system is known for {path}: {exc}. Install the fsspec driver of that scheme "
                "(tidemark[s3], tidemark[gcs], tidemark[hdfs] ...) or choose another checkpoint directory.",
                path=path,
                verdict=StorageVerdict.UNUSABLE,
            ) from exc

    @contextmanager
    def _create_remote(self, path: str) -> Iterator[BinaryIO]:
        with mapped("written", path):
            fs, remote = self._remote(path)
            atomic = _protocol(fs) in _ATOMIC_PUT
            target = remote if atomic else temporary_name(remote)
            if not atomic:
                fs.makedirs(parent(remote), exist_ok=True)
            file = cast(BinaryIO, fs.open(target, "wb"))
        try:
            with mapped("written", path, OSError):
                yield file
            with mapped("written", path):
                file.close()
                if not atomic:
                    fs.mv(target, remote)
        except BaseException:
            # Some publish on close even after an error, so what they published must go again.
            abandon(file)
            with suppress(Exception):
                fs.rm_file(target)
            raise


def _protocol(fs: Any) -> str:
    protocol = fs.protocol
    return protocol if isinstance(protocol, str) else str(protocol[0])


def within(storage: Storage, directory: str) -> Storage:
    """`storage` for files below `directory`: on local disks no link below it is followed.

    Other storages know no links and stay as they are.
    """
    return storage.within(directory) if isinstance(storage, FileSystemStorage) else storage
