"""Storage in the memory of one process: the driver of a job on the memory backend, and tests."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from tidemark.errors import StorageError, StorageVerdict

__all__ = ["MemoryStorage"]


class MemoryStorage:
    """A dictionary from path to bytes. Nothing survives the process."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def write(self, path: str, data: bytes) -> None:
        """Put a whole file."""
        with self._lock:
            self._files[_normal(path)] = bytes(data)

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        """Collect the writes and put them when the block ends without an error."""
        buffer = io.BytesIO()
        yield buffer
        self.write(path, buffer.getvalue())

    def read(self, path: str) -> bytes:
        """The whole file."""
        try:
            return self._files[_normal(path)]
        except KeyError:
            raise StorageError(
                f"There is no file {path} in memory storage.", path=path, verdict=StorageVerdict.MISSING
            ) from None

    def open(self, path: str) -> BinaryIO:
        """A reader over the whole file."""
        return io.BytesIO(self.read(path))

    def exists(self, path: str) -> bool:
        """Whether a file, or a file below, is there."""
        return self.is_file(path) or bool(self.list(path))

    def is_file(self, path: str) -> bool:
        """Whether a file is there."""
        return _normal(path) in self._files

    def list(self, path: str) -> list[str]:
        """Names directly inside `path`."""
        prefix = _normal(path).rstrip("/") + "/"
        with self._lock:
            inside = [name[len(prefix) :] for name in self._files if name.startswith(prefix)]
        return sorted({name.partition("/")[0] for name in inside})

    def size(self, path: str) -> int:
        """Length of the file."""
        return len(self.read(path))

    def delete(self, path: str) -> None:
        """Remove one file."""
        with self._lock:
            self._files.pop(_normal(path), None)

    def delete_tree(self, path: str) -> None:
        """Remove everything below `path`."""
        prefix = _normal(path).rstrip("/") + "/"
        with self._lock:
            for name in [name for name in self._files if name.startswith(prefix)]:
                del self._files[name]


def _normal(path: str) -> str:
    return path.rstrip("/") or "/"
