"""Directories and files that only this user may touch: made so, and looked at again before they are trusted.

What tidemark keeps on a machine (tokens of running jobs, copies of state, logs) often lies below directories in
which others may write as well, such as `/tmp`. Somebody could have made a directory of that name before, or put
a link there. So nothing is used that is not a real directory or file of our own, and what is made is made with a
mode that the umask cannot widen.

Checkpoints lie below a directory that the user chose and may share with others: the way to it is the user's, and
every step below it goes through the descriptor of the directory above, so that nobody can redirect it in between.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tidemark.errors import ConfigError

__all__ = [
    "ForeignOwnerError",
    "UntrustedPathError",
    "check_owner",
    "directory_below",
    "make_directories",
    "open_private",
    "private_directory",
    "remove_tree_at",
    "replace_private",
    "who_else_may_replace",
]

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Where one may make something one need not be allowed to list what is there.
_WAY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_MOST_LINKS = 40


class UntrustedPathError(PermissionError):
    """A symbolic link, or somebody else's directory, where only a directory or file of ours may be."""


class ForeignOwnerError(UntrustedPathError):
    """Somebody else's directory or file."""


def private_directory(path: str | os.PathLike[str]) -> Path:
    """Make the directory for this user alone, or make sure that an existing one is this user's.

    Missing directories above it are made in the same way; existing ones are left as they are.

    Raises:
        ConfigError: It is a link or no directory, belongs to somebody else, or others may write in it.
        OSError: It cannot be made or looked at.
    """
    make_directories(path, 0o700)
    try:
        handle = os.open(path, _DIRECTORY | os.O_NOFOLLOW)
    except NotADirectoryError as exc:
        # Linux says this of a link, too, when only a directory will do.
        raise ConfigError(
            f"{path} is a symbolic link or no directory, so it may be somebody else's place. Remove it, or choose "
            "another directory."
        ) from exc
    try:
        status = os.fstat(handle)
    finally:
        os.close(handle)
    _check_owner(path, "directory", status)
    if status.st_mode & _OTHERS_WRITE:
        raise ConfigError(
            f"Other users may write in the directory {path} (mode {stat.S_IMODE(status.st_mode):04o}). Make sure that "
            f"nothing in it is theirs and say 'chmod 700 {path}', or choose another directory."
        )
    return Path(path)


def open_private(path: str | os.PathLike[str], flags: int) -> int:
    """Open a regular file of this user's own, with mode 0600 if `flags` make it; the descriptor is not inherited.

    Raises:
        ConfigError: It is a link, no regular file, or belongs to somebody else.
        OSError: It cannot be opened; `FileNotFoundError` if it is not there.
    """
    try:
        # Without O_NONBLOCK a pipe somebody put there would hold us for ever.
        handle = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    except OSError as exc:
        if os.path.islink(path):
            raise ConfigError(f"{path} is a symbolic link, which is not followed here. Remove it.") from exc
        raise
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"{path} is no regular file. Remove it.")
        _check_owner(path, "file", status)
    except BaseException:
        os.close(handle)
        raise
    return handle


def replace_private(path: Path, data: bytes) -> None:
    """Write a file for this user alone, in one step: a reader sees the old one or the new one.

    Raises:
        OSError: It cannot be written, for example on a full disk; nothing is left of the attempt.
    """
    handle, temporary = tempfile.mkstemp(prefix=".", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def make_directories(path: str | os.PathLike[str], mode: int) -> None:
    """Make a directory and those above it that are missing, with exactly this mode; leave existing ones alone.

    The way to what exists is followed, links included. From there each step goes through the descriptor of the
    directory above, so that nobody who may write there gets the mode onto something else.

    Raises:
        UntrustedPathError: A link, or somebody else's directory, has appeared where one was to be made.
        OSError: One cannot be made.
    """
    missing: list[str] = []
    there = os.path.abspath(path)
    while not os.path.lexists(there):
        there, name = os.path.split(there)
        missing.append(name)
    if not missing:
        return
    at = os.open(there, _WAY)
    try:
        for name in reversed(missing):
            there = os.path.join(there, name)
            below = _enter(at, name, there, mode, None)
            os.close(at)
            at = below
    finally:
        os.close(at)


@contextmanager
def directory_below(
    root: str, names: Sequence[str], *, make: int | None = None, owners: Collection[int] | None = None
) -> Iterator[int]:
    """Enter a directory below `root` without following a link below it; gives its descriptor.

    Args:
        root: Where the user said; it may be a link or lie behind links.
        names: The way from there.
        make: Mode of directories to make where there are none, `root` included.
        owners: The users to one of whom each directory below `root` must belong; None for any.

    Raises:
        UntrustedPathError: A link or somebody else's directory is on the way; it is named.
        OSError: It cannot be entered; `FileNotFoundError` if it is not there.
    """
    if make is not None:
        make_directories(root, make)
    at = os.open(root, _DIRECTORY)
    path = root
    try:
        for name in names:
            path = os.path.join(path, name)
            below = _enter(at, name, path, make, owners)
            os.close(at)
            at = below
        yield at
    finally:
        os.close(at)


def remove_tree_at(at: int, name: str, path: str, *, owners: Collection[int] | None) -> None:
    """Delete the directory `name` in `at` and all in it; links in it are deleted, not followed.

    Args:
        at: Descriptor of the directory it is in.
        name: Its name there.
        path: Its path, for messages.
        owners: The users to one of whom it, and every directory in it, must belong; None for any.

    Raises:
        UntrustedPathError: It is a link, or it or a directory in it belongs to somebody else.
        OSError: Something cannot be deleted; `FileNotFoundError` if it is not there.
    """
    handle = _enter(at, name, path, None, owners)
    try:
        with os.scandir(handle) as found:
            entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
        for inner, is_directory in entries:
            # Somebody else may delete at the same time.
            with suppress(FileNotFoundError):
                if is_directory:
                    remove_tree_at(handle, inner, os.path.join(path, inner), owners=owners)
                else:
                    os.unlink(inner, dir_fd=handle)
    finally:
        os.close(handle)
    os.rmdir(name, dir_fd=at)


def who_else_may_replace(path: str) -> tuple[str, str] | None:
    """Whether others than this user and root may rename or replace what lies in a directory, or the way to it.

    The way is followed as the kernel would, link by link. What is missing of it does not count: it will be made
    for this user alone.

    Returns:
        The first place on the way that others may change, and who they are; None if there is none.

    Raises:
        OSError: The way cannot be followed.
    """
    trusted = (os.geteuid(), 0)
    at, left = "/", os.path.abspath(path).split("/")[::-1]
    links = 0
    shared = False
    while True:
        status = os.lstat(at)
        if stat.S_ISLNK(status.st_mode):
            if shared and status.st_uid not in trusted:
                return at, f"user {status.st_uid}, to whom the link belongs"
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            target = os.readlink(at)
            left += target.split("/")[::-1]
            at = "/" if target.startswith("/") else os.path.dirname(at)
            shared = False
            continue
        who = _who_else_writes(status, trusted)
        if who is not None:
            return at, who
        # Whoever may write here may replace what is his own, sticky bit or not.
        shared = bool(status.st_mode & _OTHERS_WRITE)
        while left and left[-1] in ("", "."):
            left.pop()
        if not left:
            return None
        name = left.pop()
        at = os.path.dirname(at) if name == ".." else os.path.join(at, name)
        if not os.path.lexists(at):
            return None


def check_owner(status: os.stat_result, path: str, owners: Collection[int] | None) -> None:
    """Make sure that a file or directory belongs to one of these users; None for any.

    Raises:
        ForeignOwnerError: It belongs to somebody else.
    """
    if owners is not None and status.st_uid not in owners:
        raise ForeignOwnerError(
            errno.EPERM,
            f"belongs to user {status.st_uid}, not to user {os.geteuid()}, who runs this",
            path,
        )


def _who_else_writes(status: os.stat_result, trusted: Collection[int]) -> str | None:
    if status.st_uid not in trusted:
        return f"user {status.st_uid}, to whom it belongs"
    if status.st_mode & _OTHERS_WRITE and not status.st_mode & stat.S_ISVTX:
        who = "every user" if status.st_mode & stat.S_IWOTH else f"group {status.st_gid}"
        return f"{who} (mode {stat.S_IMODE(status.st_mode):04o}, without the sticky bit)"
    return None


def _enter(at: int, name: str, path: str, make: int | None, owners: Collection[int] | None) -> int:
    made = False
    if make is not None:
        with suppress(FileExistsError):
            os.mkdir(name, make, dir_fd=at)
            made = True
    try:
        handle = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
    except NotADirectoryError:
        # Linux says this of a link, too, when only a directory will do.
        if stat.S_ISLNK(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
            raise UntrustedPathError(errno.EPERM, "is a symbolic link, which is not followed", path) from None
        raise
    try:
        status = os.fstat(handle)
        check_owner(status, path, owners)
        mode = stat.S_IMODE(status.st_mode)
        if made and mode & 0o777 != make:
            # The umask took something away that was asked for; other bits (setgid) stay. Somebody may have put
            # another directory in the place of the one just made.
            check_owner(status, path, (os.geteuid(),))
            os.fchmod(handle, mode & ~0o777 | (make or 0))
    except BaseException:
        os.close(handle)
        raise
    return handle


def _check_owner(path: str | os.PathLike[str], what: str, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid():
        raise ConfigError(
            f"The {what} {path} belongs to user {status.st_uid}, not to user {os.geteuid()}, who runs this; it is "
            "not used. Remove it if it should not be there, or choose another directory."
        )
