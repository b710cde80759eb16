"""The files behind the paths of a file source, on local disks and through fsspec."""

from __future__ import annotations

import glob
import os
from functools import partial
from typing import Any

from tidemark.errors import ConfigError
from tidemark.formats.files import FileFormat
from tidemark.paths import is_local, local_path, name_of, remote

__all__ = ["FileLengths", "expand_path", "file_size", "open_binary"]


def expand_path(pattern: str) -> list[str]:
    """Files behind a path: itself, everything below a directory, or the matches of a glob; hidden ones not.

    Raises:
        ConfigError: There is nothing there.
    """
    if not is_local(pattern):
        filesystem, path = remote(pattern)
        found = filesystem.find(path) if filesystem.isdir(path) else filesystem.glob(path)
        return sorted(filesystem.unstrip_protocol(name) for name in found if not _hidden(name))
    local = local_path(pattern)
    if os.path.isdir(local):
        return sorted(
            os.path.join(folder, name)
            for folder, _folders, names in os.walk(local)
            for name in names
            if not _hidden(name)
        )
    if os.path.isfile(local):
        return [local]
    found = sorted(path for path in glob.glob(local) if os.path.isfile(path))
    if not found and not glob.has_magic(local):
        raise ConfigError(
            f"The file source's path '{pattern}' does not exist. Give an existing file or directory."
        )
    return found


def _hidden(path: str) -> bool:
    return name_of(path).startswith((".", "_"))


class FileLengths:
    """How long files are in the units of their format, which is only asked anew when their size has changed."""

    def __init__(self, file_format: FileFormat) -> None:
        """Nothing is known."""
        self._format = file_format
        self._known: dict[str, tuple[int, int]] = {}

    def of(self, path: str) -> int:
        """Length of a file."""
        size = file_size(path)
        known = self._known.get(path)
        if known is None or known[0] != size:
            known = self._known[path] = (size, self._format.length(size, partial(open_binary, path)))
        return known[1]


def file_size(path: str) -> int:
    """Size of a file in bytes."""
    if is_local(path):
        return os.path.getsize(local_path(path))
    filesystem, name = remote(path)
    return int(filesystem.size(name))


def open_binary(path: str) -> Any:
    """Open a file for reading."""
    if is_local(path):
        return open(local_path(path), "rb")
    filesystem, name = remote(path)
    return filesystem.open(name, "rb")
