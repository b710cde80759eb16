"""The contract of checkpoint storage; a path is what `tidemark.paths` says.

Implementations are safe to use from several threads at once, and map every foreign error to
`StorageError` with the path in its message and a verdict (`mapping.py`): a file that is not there is
`MISSING`, a place that cannot be reached is `TRANSIENT` and says nothing about the file.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import BinaryIO, Protocol

__all__ = ["Storage"]


class Storage(Protocol):
    """Bytes under paths. Directories come with the files in them and need not be created."""

    def write(self, path: str, data: bytes) -> None:
        """Put a whole file, durably and in one step: readers see the old content, the new one, or nothing.

        Raises:
            StorageError: The file may or may not be there.
        """

    def create(self, path: str) -> AbstractContextManager[BinaryIO]:
        """Open a file for writing; it is complete at `path` after the block, and absent if it raised.

        Raises:
            StorageError: On opening, writing or publishing.
        """

    def read(self, path: str) -> bytes:
        """The whole file.

        Raises:
            StorageError: Missing or not readable.
        """

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading and seeking; the caller closes it.

        Raises:
            StorageError: Missing or not readable.
        """

    def exists(self, path: str) -> bool:
        """Whether a file or a directory is there.

        Raises:
            StorageError: The place cannot be reached; False would be a lie.
        """

    def is_file(self, path: str) -> bool:
        """Whether a file, not a directory, is there.

        Raises:
            StorageError: The place cannot be reached.
        """

    def list(self, path: str) -> list[str]:
        """Sorted names of the files and directories directly inside `path`; empty if there is none."""

    def size(self, path: str) -> int:
        """Length of the file in bytes.

        Raises:
            StorageError: Missing or not readable.
        """

    def delete(self, path: str) -> None:
        """Remove one file; a missing one is no error."""

    def delete_tree(self, path: str) -> None:
        """Remove a directory and all in it; a missing one is no error."""
