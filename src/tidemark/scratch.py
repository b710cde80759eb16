"""Scratch directories: private, gone with their process, and swept by the next one if it was killed.

Each holds a file `.owner` on which its process keeps an advisory lock for as long as it lives; the kernel lets go
of the lock however the process ends. So a directory whose lock can be taken is certainly dead, whatever process
numbers have been used again meanwhile. The file gets its name when it is locked, hence no sweep sees it unlocked
while its owner is just beginning.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import stat
import tempfile
import weakref
from contextlib import suppress

from tidemark.errors import ConfigError
from tidemark.private_files import open_private

__all__ = ["ScratchDirectory", "scratch_for_life", "sweep_scratch"]

_log = logging.getLogger(__name__)

_OWNER = ".owner"
_PREFIX = "tidemark-"


class ScratchDirectory:
    """A private directory of this process; removed by `cleanup`, with the object, or at the end of the process.

    Attributes:
        name: Its path.
    """

    def __init__(self, prefix: str, base: str | None = None) -> None:
        """Make one.

        Args:
            prefix: Start of its name; must begin with `tidemark-`, or no sweep would find it.
            base: Where; the directory for temporary files by default.
        """
        assert prefix.startswith(_PREFIX)
        self.name = tempfile.mkdtemp(prefix=prefix, dir=base)
        self._lock = _lock_owner(self.name)
        self._finalizer = weakref.finalize(self, _remove, self.name, self._lock, os.getpid())

    def fileno(self) -> int:
        """The descriptor that holds the lock: a child that inherits it is an owner as well."""
        return self._lock

    def hand_over(self) -> None:
        """The directory belongs to a child that has inherited the lock: let go of it without removing it."""
        if self._finalizer.detach() is not None:
            os.close(self._lock)

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, *_error: object) -> None:
        self.cleanup()

    def cleanup(self) -> None:
        """Remove it and all in it. Nothing happens a second time."""
        self._finalizer()


def scratch_for_life(prefix: str) -> str:
    """Path of a new scratch directory that stays until this process ends."""
    directory = ScratchDirectory(prefix)
    _for_life.append(directory)
    return directory.name


_for_life: list[ScratchDirectory] = []


def sweep_scratch(base: str | None = None) -> list[str]:
    """Remove scratch directories of dead processes of this user below `base`; return their paths. Never raises.

    Directories without an owner's file, with a living owner, or of other users are left alone.
    """
    removed = []
    with suppress(OSError), os.scandir(base or tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX) and _is_dead(entry):
                shutil.rmtree(entry.path, ignore_errors=True)
                removed.append(entry.path)
    if removed:
        _log.info("Removed scratch directories of processes that are gone: %s", ", ".join(removed))
    return removed


def _lock_owner(directory: str) -> int:
    beginning = os.path.join(directory, f"{_OWNER}.new")
    lock = open_private(beginning, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.rename(beginning, os.path.join(directory, _OWNER))
    return lock


def _is_dead(entry: os.DirEntry[str]) -> bool:
    try:
        status = entry.stat(follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            return False
        lock = open_private(os.path.join(entry.path, _OWNER), os.O_RDWR)
    except (OSError, ConfigError):
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:
        return False
    finally:
        os.close(lock)


def _remove(name: str, lock: int, owner: int) -> None:
    # A forked child runs this at its end, too, but the directory is its parent's.
    if os.getpid() == owner:
        shutil.rmtree(name, ignore_errors=True)
        os.close(lock)
