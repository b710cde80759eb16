"""The edge to foreign storage: whatever a file system, a driver or a user's class raises becomes `StorageError`.

Here, and where bytes are verified, it is decided what an error means: nothing there, not reached, or not to be
trusted. Only the first says something about a snapshot; a place that could not be reached may hold intact bytes, and
a link in its place stays until somebody removes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from tidemark.checkpoint.storage.base import Storage
from tidemark.errors import StorageError, StorageVerdict, TidemarkError
from tidemark.private_files import UntrustedPathError

__all__ = ["MappedStorage", "mapped", "storage_error"]

_NOTHING_THERE = (FileNotFoundError, IsADirectoryError, NotADirectoryError)


def storage_error(exc: BaseException, verb: str, path: str) -> StorageError:
    """The error to raise for a foreign one, e.g. of verb "read"; chain it with `from exc`."""
    if isinstance(exc, _NOTHING_THERE):
        if verb == "written":
            why = f"a directory of its path does not exist or cannot be made ({exc})"
        else:
            why = "it does not exist" if isinstance(exc, FileNotFoundError) else f"it is no file ({exc})"
        return StorageError(f"{path} could not be {verb}: {why}.", path=path, verdict=StorageVerdict.MISSING)
    if isinstance(exc, UntrustedPathError):
        # A link, or what belongs to somebody else, stays so until somebody has looked; the next checkpoint may work.
        final = verb == "read"
        return StorageError(
            f"{path} could not be {verb}: {exc.filename} {exc.strerror}. Somebody else may have put it there: look "
            "where it comes from and remove it. If you trust it, copy the snapshot (cp -r) so that it is yours. "
            "Directories that several users share need fs.permissions.umask-mode with write permission for the "
            "group, such as '007'.",
            path=path,
            verdict=StorageVerdict.UNUSABLE if final else StorageVerdict.TRANSIENT,
        )
    return StorageError(
        f"{path} could not be {verb}: {type(exc).__name__}: {exc}. Check that the place can be "
        "reached, the permissions and the free space.",
        path=path,
    )


@contextmanager
def mapped(verb: str, path: str, foreign: type[Exception] = Exception) -> Iterator[None]:
    """Turn foreign errors inside the block into `StorageError`; errors of ours pass.

    Args:
        verb: What was attempted, as in "could not be read".
        path: On what.
        foreign: The errors meant; `OSError` where somebody else's code runs inside the block too.
    """
    try:
        yield
    except TidemarkError:
        raise
    except foreign as exc:
        raise storage_error(exc, verb, path) from exc


class MappedStorage:
    """A user's storage behind the contract of `Storage`: plain `OSError`s and the like come out mapped.

    A missing file is told by a `FileNotFoundError`, or by a `StorageError` whose verdict says so.
    """

    def __init__(self, inner: Storage) -> None:
        self._inner = inner

    def write(self, path: str, data: bytes) -> None:
        """Put a whole file."""
        with mapped("written", path):
            self._inner.write(path, data)

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        """Stream into a file."""
        with mapped("written", path, OSError), self._inner.create(path) as file:
            yield file

    def read(self, path: str) -> bytes:
        """The whole file."""
        with mapped("read", path):
            return self._inner.read(path)

    def open(self, path: str) -> BinaryIO:
        """Open for reading and seeking; whoever reads maps the errors of reading."""
        with mapped("read", path):
            return self._inner.open(path)

    def exists(self, path: str) -> bool:
        """Whether anything is there."""
        with mapped("looked up", path):
            return self._inner.exists(path)

    def is_file(self, path: str) -> bool:
        """Whether a file is there."""
        with mapped("looked up", path):
            return self._inner.is_file(path)

    def list(self, path: str) -> list[str]:
        """Names directly inside `path`."""
        with mapped("listed", path):
            return self._inner.list(path)

    def size(self, path: str) -> int:
        """Length of the file."""
        with mapped("read", path):
            return self._inner.size(path)

    def delete(self, path: str) -> None:
        """Remove one file."""
        with mapped("deleted", path):
            self._inner.delete(path)

    def delete_tree(self, path: str) -> None:
        """Remove a directory and all in it."""
        with mapped("deleted", path):
            self._inner.delete_tree(path)
