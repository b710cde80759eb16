"""Scratch directories: private, gone with their process, and swept by the next one if it was killed.

Each holds a file `.owner` on which its process keeps an advisory lock for as long as it lives; the kernel lets go
of the lock however the process ends. So a directory whose lock can be taken is certainly dead, whatever process
numbers have been used again meanwhile. The file gets its name when it is locked, hence no sweep sees it unlocked
while its owner is just beginning. A directory that several processes use has as many owners, who share the lock.

A signal that ends a process leaves Python no time to tidy up; a driver calls `tidy_up_after_signals` for that.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
import weakref
from contextlib import suppress
from types import FrameType

from tidemark.errors import ConfigError
from tidemark.private_files import open_private, private_directory

__all__ = [
    "ScratchDirectory",
    "leave_directory",
    "scratch_for_life",
    "share_directory",
    "sweep_scratch",
    "tidy_up_after_signals",
]

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
        _living[self.name] = os.getpid()
        self._lock = _lock_owner(self.name)
        self._finalizer = weakref.finalize(self, _remove, self.name, self._lock, os.getpid())

    def fileno(self) -> int:
        """The descriptor that holds the lock: a child that inherits it is an owner as well."""
        return self._lock

    def hand_over(self) -> None:
        """The directory belongs to a child that has inherited the lock: let go of it without removing it."""
        if self._finalizer.detach() is not None:
            _living.pop(self.name, None)
            os.close(self._lock)

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, *_error: object) -> None:
        self.cleanup()

    def cleanup(self) -> None:
        """Remove it and all in it. Nothing happens a second time."""
        self._finalizer()


def scratch_for_life(prefix: str, base: str | None = None) -> str:
    """Path of a new scratch directory that stays until this process ends."""
    directory = ScratchDirectory(prefix, base)
    _for_life.append(directory)
    return directory.name


_for_life: list[ScratchDirectory] = []
_living: dict[str, int] = {}
"""Path and process of every scratch directory that is not removed yet."""


def tidy_up_after_signals() -> None:
    """Have the scratch directories of this process removed when SIGTERM or SIGHUP ends it.

    It ends as it would have, by the signal and at once: its jobs are not cancelled and keep their checkpoints. Signals
    that somebody handles, or ignores, stay as they are. Call it from the main thread; elsewhere nothing happens.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        # Only the main thread may say what a signal does.
        with suppress(ValueError):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _end)


def _end(number: int, _frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    mine = [name for name, owner in list(_living.items()) if owner == os.getpid()]
    if mine:
        # Another process does it, when this one is gone and so its end of the pipe: until then threads of jobs use the
        # directories, and one that misses its files would report a failure and act on it.
        with suppress(OSError):
            subprocess.Popen(
                ["/bin/sh", "-c", 'cat > /dev/null; rm -rf -- "$@"', "tidemark-tidy-up", *mine],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
    os.kill(os.getpid(), number)


def share_directory(directory: str | os.PathLike[str]) -> None:
    """Make this process an owner of a private directory that others of its user share; make it if it is not there.

    It is one until it leaves or ends. When nobody is left, a sweep may remove the directory.

    Raises:
        ConfigError: It is somebody else's; the message names it.
        OSError: It cannot be made.
    """
    path = os.path.abspath(directory)
    with _shares_lock:
        held = _shares.get(path)
        if held is not None and _is_at(held, path):
            return
        lock = _join(path)
        if held is not None:
            os.close(held)
        _shares[path] = lock


def leave_directory(directory: str | os.PathLike[str]) -> None:
    """This process needs a directory it shares no longer; the last one to leave removes it."""
    path = os.path.abspath(directory)
    with _shares_lock:
        lock = _shares.pop(path, None)
        if lock is None:
            return
        with suppress(OSError):
            # Who cannot have the lock alone is not the last one.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(lock, path):
                shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


_shares: dict[str, int] = {}
_shares_lock = threading.Lock()


def sweep_scratch(base: str | os.PathLike[str] | None = None, prefix: str = _PREFIX) -> list[str]:
    """Remove scratch directories of dead processes of this user below `base`; return their paths. Never raises.

    Directories without an owner's file, with a living owner, of other users, or whose name does not start with
    `prefix` are left alone.
    """
    removed = []
    with suppress(OSError), os.scandir(base or tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith(prefix) and _removed_as_dead(entry):
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


def _join(directory: str) -> int:
    while True:
        private_directory(directory)
        # A sweep that goes on just now takes the file, or the directory, away under us: begin again.
        with suppress(FileNotFoundError):
            lock = open_private(os.path.join(directory, _OWNER), os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(lock, fcntl.LOCK_SH)
                if _is_at(lock, directory):
                    return lock
            except BaseException:
                os.close(lock)
                raise
            os.close(lock)


def _is_at(lock: int, directory: str) -> bool:
    """Whether the lock is on the owner's file that is in the directory now."""
    try:
        there = os.stat(os.path.join(directory, _OWNER), follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(lock), there)


def _removed_as_dead(entry: os.DirEntry[str]) -> bool:
    try:
        status = entry.stat(follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            return False
        lock = open_private(os.path.join(entry.path, _OWNER), os.O_RDWR)
    except (OSError, ConfigError):
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Nobody takes part again as long as the lock is held.
        shutil.rmtree(entry.path, ignore_errors=True)
        return True
    except OSError:
        return False
    finally:
        os.close(lock)


def _remove(name: str, lock: int, owner: int) -> None:
    # A forked child runs this at its end, too, but the directory is its parent's.
    if os.getpid() == owner:
        _living.pop(name, None)
        shutil.rmtree(name, ignore_errors=True)
        os.close(lock)
