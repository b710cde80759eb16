"""The contract of checkpoint storage, and the arithmetic of its paths.

A path is a URI (`file:///a/b`, `hdfs://host/a`, `s3://bucket/a`) or a bare local path; both use `/`.
Implementations are safe to use from several threads at once, and map every foreign error to
`StorageError` with the path in its message and a verdict (`mapping.py`): a file that is not there is
`MISSING`, a place that cannot be reached is `TRANSIENT` and says nothing about the file.
"""

from __future__ import annotations

import os
import re
from contextlib import AbstractContextManager
from typing import BinaryIO, Protocol

__all__ = ["Storage", "absolute", "is_local", "join", "local_path", "name_of", "parent"]

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


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


def join(base: str, *parts: str) -> str:
    """Append path parts to a path or URI."""
    stripped = base.rstrip("/") or "/"
    tail = "/".join(part.strip("/") for part in parts if part)
    if not tail:
        return stripped
    return stripped + tail if stripped == "/" else f"{stripped}/{tail}"


def parent(path: str) -> str:
    """The directory that holds `path`."""
    head, _, _ = path.rstrip("/").rpartition("/")
    if head.endswith(":/") or head.endswith(":"):
        return head + "/"
    return head or ("/" if path.startswith("/") else ".")


def name_of(path: str) -> str:
    """The last part of `path`."""
    return path.rstrip("/").rpartition("/")[2]


def is_local(path: str) -> bool:
    """Whether `path` is on this machine's file system (`file:` URI or bare)."""
    return path.startswith("file:") or _SCHEME.match(path) is None


def local_path(path: str) -> str:
    """The operating system's form of a local path or `file:` URI."""
    if not path.startswith("file:"):
        return path
    rest = path[len("file:") :]
    if rest.startswith("//"):
        # file://host/a names a host before the path; only the local one (empty) makes sense here.
        rest = "/" + rest[2:].partition("/")[2]
    return rest


def absolute(path: str) -> str:
    """Make a bare relative path absolute, because other processes have other working directories."""
    text = os.fspath(path)
    if _SCHEME.match(text) is not None:
        stripped = text.rstrip("/")
        return text if stripped.endswith(":") else stripped
    return os.path.abspath(os.path.expanduser(text))
