"""Files and directories below a base path that is claimed, a sink's say, on local disks and through fsspec.

Other users may write where output goes. On local disks every directory below the base path is therefore
entered without following a symbolic link, what we create is created exclusively, and
directories of ours are private (0700) and refused when they belong to somebody else. Paths here are relative
to the base path, with `/`; errors are `OSError`, to be mapped by the caller.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

import xxhash

from tidemark.paths import is_local, local_path, remote
from tidemark.private_files import directory_below

__all__ = ["Place", "create_staged", "open_place"]

_TRIES = 8
"""How often a directory that vanishes while something is put into it is made again."""
_CHUNK = 1 << 20


class Place(Protocol):
    """What claimants do below a base path."""

    def names(self, path: str) -> list[str]:
        """Names directly inside a directory; none if there is no such directory."""

    def make_private(self, path: str) -> None:
        """Make a directory for the owner only; one that is there is closed to others. Its parents follow the umask.

        Raises:
            PermissionError: It is there, and it is somebody else's or no directory.
        """

    def create(self, path: str, data: bytes) -> None:
        """Write a new file, durably.

        On local disks, and where fsspec knows mode `xb`, exactly one of many callers succeeds. Elsewhere the
        last one wins, so whoever depends on being the only one must read the file again.

        Raises:
            FileExistsError: Somebody was faster.
            FileNotFoundError: Its directory is gone.
        """

    def write(self, path: str, data: bytes) -> None:
        """Replace a file in one step.

        Raises:
            FileNotFoundError: Its directory is gone (file systems with directories).
        """

    def read(self, path: str) -> bytes:
        """The whole file."""

    def open(self, path: str) -> Any:
        """Open a file for reading."""

    def size(self, path: str) -> int:
        """Bytes of a regular file.

        Raises:
            FileNotFoundError: It is not there.
            OSError: It is no regular file.
        """

    def digest(self, path: str) -> str:
        """The checksum (xxh3_128) of a file's bytes."""

    def move(self, source: str, target: str) -> None:
        """Rename a file; the directories above `target` are made.

        Raises:
            FileNotFoundError: There is no `source`; nothing else is reported so.
        """

    def adopt(self, source: str, target: str) -> None:
        """Take a directory away, in one step where the file system can, and put its files into another.

        Raises:
            FileNotFoundError: Somebody else has taken it.
        """

    def remove(self, path: str) -> None:
        """Delete a file; a missing one is no error."""

    def remove_tree(self, path: str) -> None:
        """Delete a directory and all in it; a missing one is no error."""

    def remove_empty(self, path: str) -> None:
        """Delete a directory unless something is in it."""

    def sync(self, path: str) -> None:
        """Let the names in a directory reach the disk."""


def open_place(root: str) -> Place:
    """The place below `root`, a path or URI."""
    if is_local(root):
        return _LocalPlace(local_path(root))
    filesystem, path = remote(root)
    return (
        _HdfsPlace(filesystem, path) if filesystem.protocol == "webhdfs" else _RemotePlace(filesystem, path)
    )


def create_staged(directory: str, name: str) -> Any:
    """Open a new file for writing in a staging directory (path or URI) that is there already.

    It gets the mode that the umask says, because it keeps it when it is published.

    Args:
        directory: `<base>/<claim>/<area>`. On local disks the last two are entered without following a link, and
            must belong to this user or root.
        name: Of the new file.

    Raises:
        UntrustedPathError: Somebody has put a link or a directory of theirs in the place of one of ours.
        OSError: The file cannot be made.
    """
    if is_local(directory):
        base, claim, area = local_path(directory).rsplit("/", 2)
        with directory_below(base or "/", [claim, area], owners=(os.geteuid(), 0)) as at:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            return os.fdopen(os.open(name, flags, 0o666, dir_fd=at), "wb")
    filesystem, path = remote(directory)
    # Where there are directories, one that was taken away must not come back.
    options = {"make_parents": False} if filesystem.protocol == "webhdfs" else {}
    return filesystem.open(f"{path.rstrip('/')}/{name}", "wb", **options)


def _adopt_by_rename(place: Place, source: str, target: str) -> None:
    # The first rename takes all files from whoever knows them by the old path. A crash behind it leaves a
    # directory whose name begins as the target's does.
    taken = f"{target}.{secrets.token_hex(4)}"
    place.move(source, taken)
    for name in place.names(taken):
        place.move(f"{taken}/{name}", f"{target}/{name}")
    place.remove_tree(taken)


def _digest(file: Any) -> str:
    checksum = xxhash.xxh3_128()
    while data := file.read(_CHUNK):
        checksum.update(data)
    return checksum.hexdigest()


class _LocalPlace:
    """A directory of a local disk, or of anything mounted."""

    def __init__(self, root: str) -> None:
        self._root = root

    def names(self, path: str) -> list[str]:
        with suppress(FileNotFoundError), self._directory(path) as at:
            return os.listdir(at)
        return []

    def make_private(self, path: str) -> None:
        with self._parent(path, create=True) as (at, name):
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=at)
            found = os.stat(name, dir_fd=at, follow_symlinks=False)
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                raise PermissionError(
                    errno.EPERM, "is no directory of the user this driver runs as", f"{self._root}/{path}"
                )
            if found.st_mode & 0o077:
                # Some mounts keep no modes; there this changes nothing.
                with suppress(PermissionError), self._directory(path) as own:
                    os.fchmod(own, 0o700)

    def create(self, path: str, data: bytes) -> None:
        with self._parent(path) as (at, name):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            file = os.fdopen(os.open(name, flags, 0o600, dir_fd=at), "wb")
            try:
                with file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.fsync(at)
            except BaseException:
                # A claim nobody holds would stop whoever holds the one before it, and a full disk has no room for more.
                with suppress(OSError):
                    os.unlink(name, dir_fd=at)
                raise

    def write(self, path: str, data: bytes) -> None:
        temporary = f"{path}.{secrets.token_hex(4)}.tmp"
        self.create(temporary, data)
        # By path, as in `move`: whoever has taken the directory away has taken the temporary file, too.
        os.replace(f"{self._root}/{temporary}", f"{self._root}/{path}")

    def read(self, path: str) -> bytes:
        with self.open(path) as file:
            return bytes(file.read())

    def open(self, path: str) -> Any:
        with self._parent(path) as (at, name):
            # Without O_NONBLOCK a pipe in its place would hold the driver for ever.
            handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise self._not_regular(path)
        return os.fdopen(handle, "rb")

    def size(self, path: str) -> int:
        with self._parent(path) as (at, name):
            found = os.stat(name, dir_fd=at, follow_symlinks=False)
        if not stat.S_ISREG(found.st_mode):
            raise self._not_regular(path)
        return found.st_size

    def digest(self, path: str) -> str:
        with self.open(path) as file:
            return _digest(file)

    def move(self, source: str, target: str) -> None:
        for _ in range(_TRIES):
            # Only a missing source may be reported as such, so look before the target's directory is made.
            with self._parent(source) as (at, name):
                os.stat(name, dir_fd=at, follow_symlinks=False)
            with suppress(FileNotFoundError), self._parent(target, create=True) as (to, new):
                # The source by its path, not by a descriptor: a directory that was taken away meanwhile keeps
                # its descriptor, and the fence is that a late rename finds nothing.
                return os.rename(f"{self._root}/{source}", new, dst_dir_fd=to)
        raise OSError(errno.EBUSY, "its directory vanishes again and again", f"{self._root}/{target}")

    def adopt(self, source: str, target: str) -> None:
        _adopt_by_rename(self, source, target)

    def remove(self, path: str) -> None:
        with suppress(FileNotFoundError), self._parent(path) as (at, name):
            os.unlink(name, dir_fd=at)

    def remove_tree(self, path: str) -> None:
        with suppress(FileNotFoundError), self._parent(path) as (at, name):
            shutil.rmtree(name, dir_fd=at)

    def remove_empty(self, path: str) -> None:
        with suppress(FileNotFoundError), self._parent(path) as (at, name):
            try:
                os.rmdir(name, dir_fd=at)
            except OSError as exc:
                if exc.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                    raise

    def sync(self, path: str) -> None:
        with self._directory(path) as at:
            os.fsync(at)

    def _not_regular(self, path: str) -> OSError:
        return OSError(errno.EINVAL, "is no regular file", f"{self._root}/{path}")

    @contextmanager
    def _parent(self, path: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
        """Descriptor of the directory something is in, and its name there."""
        head, _, name = path.rpartition("/")
        with self._directory(head, create=create) as at:
            yield at, name

    @contextmanager
    def _directory(self, path: str, *, create: bool = False) -> Iterator[int]:
        if create:
            os.makedirs(self._root, exist_ok=True)
        at = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for name in path.split("/") if path else ():
                if create:
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=at)
                try:
                    below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
                except OSError as exc:
                    if exc.errno not in (errno.ENOTDIR, errno.ELOOP):
                        raise
                    way = "a symbolic link or a file is in the way"
                    raise NotADirectoryError(errno.ENOTDIR, way, f"{self._root}/{path}") from exc
                os.close(at)
                at = below
            yield at
        finally:
            os.close(at)


class _RemotePlace:
    """A directory, or a common beginning of keys, of a file system that fsspec knows."""

    def __init__(self, filesystem: Any, root: str) -> None:
        self.filesystem = filesystem
        self._root = root.rstrip("/")

    def full(self, path: str) -> str:
        """The path as the file system wants it."""
        return f"{self._root}/{path}" if path else self._root

    def names(self, path: str) -> list[str]:
        self.filesystem.invalidate_cache()
        mine = self.full(path).strip("/")
        try:
            found = self.filesystem.ls(self.full(path), detail=False)
        except FileNotFoundError:
            return []
        # Object stores list the directory itself, too.
        entries = {str(entry).strip("/") for entry in found} - {mine}
        return sorted(entry.rpartition("/")[2] for entry in entries)

    def make_private(self, path: str) -> None:
        self.filesystem.makedirs(self.full(path), exist_ok=True)

    def create(self, path: str, data: bytes) -> None:
        self.filesystem.invalidate_cache()
        try:
            with self.filesystem.open(self.full(path), "xb") as file:
                file.write(data)
        except (ValueError, NotImplementedError):
            if self.filesystem.exists(self.full(path)):
                raise FileExistsError(errno.EEXIST, "is there already", path) from None
            self.filesystem.pipe_file(self.full(path), data)

    def write(self, path: str, data: bytes) -> None:
        self.filesystem.pipe_file(self.full(path), data)

    def read(self, path: str) -> bytes:
        self.filesystem.invalidate_cache()
        return bytes(self.filesystem.cat_file(self.full(path)))

    def open(self, path: str) -> Any:
        return self.filesystem.open(self.full(path), "rb")

    def size(self, path: str) -> int:
        self.filesystem.invalidate_cache()
        return int(self.filesystem.info(self.full(path))["size"])

    def digest(self, path: str) -> str:
        with self.open(path) as file:
            return _digest(file)

    def move(self, source: str, target: str) -> None:
        if not self.filesystem.exists(self.full(source)):
            raise FileNotFoundError(errno.ENOENT, "is not there", source)
        self.filesystem.makedirs(self.full(target.rpartition("/")[0]), exist_ok=True)
        self.filesystem.mv(self.full(source), self.full(target))

    def adopt(self, source: str, target: str) -> None:
        for name in self.names(source):
            self.move(f"{source}/{name}", f"{target}/{name}")
        self.remove_tree(source)

    def remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self.filesystem.rm_file(self.full(path))

    def remove_tree(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self.filesystem.rm(self.full(path), recursive=True)

    def remove_empty(self, path: str) -> None:
        if not self.names(path):
            # Where directories are only beginnings of keys there is nothing to delete.
            with suppress(OSError):
                self.filesystem.rmdir(self.full(path))

    def sync(self, path: str) -> None:
        """What a remote file system has acknowledged is durable."""


class _HdfsPlace(_RemotePlace):
    """A directory of HDFS: creating is exclusive, a rename is one step, and what was taken away does not come back."""

    def make_private(self, path: str) -> None:
        self.filesystem.makedirs(self.full(path), exist_ok=True)
        self.filesystem.chmod(self.full(path), 0o700)

    def create(self, path: str, data: bytes) -> None:
        self.filesystem.pipe_file(self.full(path), data, mode="create", make_parents=False)

    def write(self, path: str, data: bytes) -> None:
        self.filesystem.pipe_file(self.full(path), data, make_parents=False)

    def adopt(self, source: str, target: str) -> None:
        _adopt_by_rename(self, source, target)
