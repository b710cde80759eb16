"""Storage in file systems: local disks directly, everything else (HDFS, S3, …) through fsspec.

A whole file is published atomically: on local disks and HDFS-like systems by a temporary name and a
rename, on object stores by a single put, which they do atomically themselves. Local files reach the disk
(`fsync`) before they get their name, so that `_metadata`, written last, never names bytes a power cut lost.
Local files and the directories made for them are for their owner alone unless the user asks otherwise.

Others may write in the directory that the user chose for checkpoints. Below such a root no symbolic link is
followed, and nothing is made, replaced or deleted in a directory of somebody else.
"""

from __future__ import annotations

import errno
import os
import stat
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, cast

from tidemark.checkpoint.storage.base import Storage
from tidemark.checkpoint.storage.mapping import mapped
from tidemark.errors import StorageError, StorageVerdict
from tidemark.paths import is_local, local_path, name_of, parent, remote
from tidemark.private_files import UntrustedPathError, directory_below, remove_tree_at

__all__ = ["PRIVATE", "FileSystemStorage", "within"]

PRIVATE = 0o077
"""Umask of what nobody but its owner may read."""

_OTHERS_WRITE = 0o022

# These publish an object when it is complete and cannot rename cheaply. On all others a half-written
# file can be seen, so it gets a temporary name first.
_ATOMIC_PUT = frozenset(
    {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "cos", "obs", "memory"}
)


class FileSystemStorage:
    """Files under any path or URI; the scheme of each path chooses the file system.

    Args:
        sync: Force local files to disk before they are published.
        options: Passed to fsspec for non-local paths (credentials, endpoints).
        umask: Permissions that new local files and directories do not have; existing directories stay as they are.
            One that lets others write means that the directories below a root may be theirs as well.
        roots: Directories the user chose. The way to them is followed, links included; below them no link is.
            Where several hold a path, the deepest counts.
    """

    def __init__(
        self,
        *,
        sync: bool = True,
        options: dict[str, Any] | None = None,
        umask: int = PRIVATE,
        roots: Iterable[str] = (),
    ) -> None:
        self._sync = sync
        self._options = dict(options or {})
        self._umask = umask
        self._owned = umask & _OTHERS_WRITE == _OTHERS_WRITE
        local = {os.path.abspath(local_path(root)) for root in roots if root and is_local(root)}
        self._roots = tuple(sorted(local, key=len, reverse=True))

    def with_umask(self, umask: int) -> FileSystemStorage:
        """The same storage with other permissions for what it makes."""
        return FileSystemStorage(sync=self._sync, options=self._options, umask=umask, roots=self._roots)

    def with_roots(self, roots: Iterable[str]) -> FileSystemStorage:
        """The same storage with further directories that the user chose."""
        roots = (*self._roots, *roots)
        return FileSystemStorage(sync=self._sync, options=self._options, umask=self._umask, roots=roots)

    def within(self, directory: str) -> FileSystemStorage:
        """The same storage for files below `directory`, which is a root unless it lies below one."""
        if not is_local(directory) or self._below_root(directory)[1]:
            return self
        return self.with_roots([directory])

    def write(self, path: str, data: bytes) -> None:
        """Put a whole file atomically."""
        if is_local(path):
            with self.create(path) as file:
                file.write(data)
            return
        with mapped("written", path):
            fs, remote = self._remote(path)
            if _protocol(fs) in _ATOMIC_PUT:
                fs.pipe_file(remote, data)
                return
            temporary = _temporary(remote)
            fs.makedirs(parent(remote), exist_ok=True)
            fs.pipe_file(temporary, data)
            fs.mv(temporary, remote)

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        """Stream into a file that appears at `path` when the block ends."""
        if is_local(path):
            with self._create_local(path) as file:
                yield file
        else:
            with self._create_remote(path) as file:
                yield file

    def read(self, path: str) -> bytes:
        """The whole file."""
        with mapped("read", path):
            if is_local(path):
                with open(self._open_file(path), "rb") as file:
                    return file.read()
            fs, remote = self._remote(path)
            return cast(bytes, fs.cat_file(remote))

    def open(self, path: str) -> BinaryIO:
        """Open for reading and seeking."""
        with mapped("read", path):
            if is_local(path):
                # Unbuffered: readers here fetch whole verified spans, so a buffer would only copy.
                return cast(BinaryIO, open(self._open_file(path), "rb", buffering=0))
            fs, remote = self._remote(path)
            return cast(BinaryIO, fs.open(remote, "rb"))

    def exists(self, path: str) -> bool:
        """Whether anything is there."""
        with mapped("looked up", path):
            if is_local(path):
                return self._look_up(path) is not None
            return self._info(path) is not None

    def is_file(self, path: str) -> bool:
        """Whether a file is there."""
        with mapped("looked up", path):
            if is_local(path):
                found = self._look_up(path)
                return found is not None and stat.S_ISREG(found.st_mode)
            info = self._info(path)
            return info is not None and info["type"] == "file"

    def list(self, path: str) -> list[str]:
        """Names directly inside `path`."""
        with mapped("listed", path):
            if is_local(path):
                root, names = self._below_root(path)
                try:
                    with directory_below(root, names) as at:
                        return sorted(os.listdir(at))
                except (FileNotFoundError, NotADirectoryError):
                    return []
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
                return self._stat(path).st_size
            fs, remote = self._remote(path)
            return int(fs.size(remote))

    def delete(self, path: str) -> None:
        """Remove one file."""
        with mapped("deleted", path), suppress(FileNotFoundError):
            if is_local(path):
                with self._directory_of(path, owned=self._owned) as (at, name):
                    os.unlink(name, dir_fd=at)
                return
            fs, remote = self._remote(path)
            fs.rm_file(remote)

    def delete_tree(self, path: str) -> None:
        """Remove a directory and all in it."""
        with mapped("deleted", path), suppress(FileNotFoundError):
            if is_local(path):
                with self._directory_of(path, owned=self._owned) as (at, name):
                    remove_tree_at(at, name, local_path(path), owned=self._owned)
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
            return remote(path, **self._options)
        except (ImportError, ValueError) as exc:
            raise StorageError(
                f"No file system is known for {path}: {exc}. Install the fsspec driver of that scheme "
                "or choose another checkpoint directory.",
                path=path,
                verdict=StorageVerdict.UNUSABLE,
            ) from exc

    @contextmanager
    def _create_local(self, path: str) -> Iterator[BinaryIO]:
        temporary = _temporary(name_of(path))
        make = 0o777 & ~self._umask
        with mapped("written", path), self._directory_of(path, make=make, owned=self._owned) as (at, _):
            file = os.fdopen(self._open_new(temporary, at), "wb", buffering=1 << 16)
        try:
            with mapped("written", path, OSError), file:
                yield file
                file.flush()
                if self._sync:
                    os.fsync(file.fileno())
            # Entered anew: in a directory that was moved away meanwhile nothing may be published.
            with mapped("written", path), self._directory_of(path, owned=self._owned) as (at, name):
                os.replace(temporary, name, src_dir_fd=at, dst_dir_fd=at)
        except BaseException:
            with suppress(OSError), self._directory_of(path, owned=self._owned) as (at, _):
                os.unlink(temporary, dir_fd=at)
            raise

    def _open_new(self, name: str, at: int) -> int:
        mode = 0o666 & ~self._umask
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(name, flags, mode, dir_fd=at)
        # The umask of the process may have taken away what was asked for.
        os.fchmod(handle, mode)
        return handle

    def _open_file(self, path: str) -> int:
        """Open a regular file and nothing else: a pipe in its place would let the reader wait for ever."""
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        if not self._below_root(path)[1]:
            handle = os.open(local_path(path), flags)
        else:
            with self._directory_of(path) as (at, name):
                try:
                    handle = os.open(name, flags | os.O_NOFOLLOW, dir_fd=at)
                except OSError as exc:
                    if exc.errno != errno.ELOOP:
                        raise
                    raise _link(path) from None
        if stat.S_ISREG(os.fstat(handle).st_mode):
            return handle
        os.close(handle)
        raise IsADirectoryError(errno.EISDIR, "Not a regular file", path)

    def _stat(self, path: str) -> os.stat_result:
        if not self._below_root(path)[1]:
            return os.stat(local_path(path))
        with self._directory_of(path) as (at, name):
            found = os.stat(name, dir_fd=at, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            raise _link(path)
        return found

    def _look_up(self, path: str) -> os.stat_result | None:
        """What is at a local path, None if nothing; unlike `os.path.exists` an I/O error is no "nothing"."""
        try:
            return self._stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _below_root(self, path: str) -> tuple[str, tuple[str, ...]]:
        """The root that holds a local path, and the way from there; without one the path itself."""
        text = os.path.abspath(local_path(path))
        for root in self._roots:
            start = root.rstrip("/") + "/"
            if text.startswith(start):
                return root, tuple(text[len(start) :].split("/"))
        return text, ()

    @contextmanager
    def _directory_of(
        self, path: str, *, make: int | None = None, owned: bool = False
    ) -> Iterator[tuple[int, str]]:
        """Descriptor of the directory that something is in, and its name there."""
        root, names = self._below_root(path)
        if not names:
            root, name = os.path.split(root)
        else:
            names, name = names[:-1], names[-1]
        with directory_below(root, names, make=make, owned=owned) as at:
            yield at, name

    @contextmanager
    def _create_remote(self, path: str) -> Iterator[BinaryIO]:
        with mapped("written", path):
            fs, remote = self._remote(path)
            atomic = _protocol(fs) in _ATOMIC_PUT
            target = remote if atomic else _temporary(remote)
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
            # fsspec publishes on close even after an error, so what it published must go again.
            with suppress(Exception):
                file.close()
            with suppress(Exception):
                fs.rm_file(target)
            raise


def _temporary(path: str) -> str:
    # A leading dot hides it from Spark and DuckDB, should somebody read the directory just now.
    head, slash, name = path.rpartition("/")
    return f"{head}{slash}.{name}.{uuid.uuid4().hex[:8]}.tmp"


def _protocol(fs: Any) -> str:
    protocol = fs.protocol
    return protocol if isinstance(protocol, str) else str(protocol[0])


def _link(path: str) -> UntrustedPathError:
    return UntrustedPathError(errno.EPERM, "is a symbolic link, which is not followed", local_path(path))


def within(storage: Storage, directory: str) -> Storage:
    """`storage` for files below `directory`: on local disks no link below it is followed.

    Other storages know no links and stay as they are.
    """
    return storage.within(directory) if isinstance(storage, FileSystemStorage) else storage
