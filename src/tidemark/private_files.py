"""Directories and files that only this user may touch: made so, and looked at again before they are trusted.

What tidemark keeps on a machine (tokens of running jobs, copies of state, logs) often lies below directories in
which others may write as well, such as `/tmp`. Somebody could have made a directory of that name before, or put
a link there. So nothing is used that is not a real directory or file of our own, and what is made is made with a
mode that the umask cannot widen.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from tidemark.errors import ConfigError

__all__ = ["make_directories", "open_private", "private_directory"]

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def private_directory(path: str | os.PathLike[str]) -> Path:
    """Make the directory for this user alone, or make sure that an existing one is this user's.

    Missing directories above it are made in the same way; existing ones are left as they are.

    Raises:
        ConfigError: It is a link or no directory, belongs to somebody else, or others may write in it.
        OSError: It cannot be made or looked at.
    """
    make_directories(path, 0o700)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        handle = os.open(path, flags)
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


def make_directories(path: str | os.PathLike[str], mode: int) -> None:
    """Make a directory and those above it that are missing, with exactly this mode; leave existing ones alone."""
    missing = []
    at = os.path.abspath(path)
    while not os.path.lexists(at):
        missing.append(at)
        at = os.path.dirname(at)
    for directory in reversed(missing):
        try:
            os.mkdir(directory, mode)
        except FileExistsError:
            continue
        made = os.lstat(directory).st_mode
        if stat.S_IMODE(made) & 0o777 != mode:
            # The umask took something away that was asked for; other bits (setgid) stay.
            os.chmod(directory, stat.S_IMODE(made) & ~0o777 | mode)


def _check_owner(path: str | os.PathLike[str], what: str, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid():
        raise ConfigError(
            f"The {what} {path} belongs to user {status.st_uid}, not to user {os.geteuid()}, who runs this; it is "
            "not used. Remove it if it should not be there, or choose another directory."
        )
