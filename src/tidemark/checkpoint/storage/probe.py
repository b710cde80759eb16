"""Whether a directory can keep snapshots, found out by keeping something there for a moment."""

from __future__ import annotations

import uuid

from tidemark.checkpoint.storage.base import Storage
from tidemark.errors import StorageError
from tidemark.paths import join

__all__ = ["probe_directory"]


def probe_directory(storage: Storage, directory: str) -> None:
    """Write, read and delete a small file in `directory`.

    Raises:
        StorageError: One of them failed, or what was read is not what was written.
    """
    name = f".probe-{uuid.uuid4().hex}"
    path, content = join(directory, name), name.encode()
    storage.write(path, content)
    read = storage.read(path)
    storage.delete(path)
    if read != content:
        raise StorageError(f"{path} reads back something else than was just written to it.", path=path)
