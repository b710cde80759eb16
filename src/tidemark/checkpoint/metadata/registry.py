"""Which codec reads which `_metadata` file. Writers write the newest version, readers for all stay.

Every version starts with the same header, drawn in `v1.py`, so that a foreign file, a damaged file and a
file of a newer release are three different, clear errors.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable

import xxhash

from tidemark.checkpoint.metadata import v1
from tidemark.checkpoint.metadata.checks import check
from tidemark.checkpoint.metadata.model import METADATA_FILE, CheckpointMetadata
from tidemark.checkpoint.storage.base import Storage
from tidemark.checkpoint.storage.filesystem import within
from tidemark.errors import MetadataError, SavepointNotFoundError, StorageError, StorageVerdict
from tidemark.paths import join, parent

__all__ = ["decode", "digest_of", "encode", "read_metadata", "write_metadata"]

_MAGIC = b"TDMK"
_HEADER = struct.Struct(">4sHQ16s")
_LARGEST = 1 << 30
"""Bytes of a `_metadata` file that is read at all; inline state of the largest jobs is far below."""

_READERS: dict[int, Callable[[bytes], CheckpointMetadata]] = {v1.VERSION: v1.decode_payload}


def encode(metadata: CheckpointMetadata) -> bytes:
    """The bytes of a `_metadata` file."""
    payload = v1.encode_payload(metadata)
    checksum = xxhash.xxh3_128_digest(payload)
    return _HEADER.pack(_MAGIC, v1.VERSION, len(payload), checksum) + payload


def decode(data: bytes, path: str = METADATA_FILE) -> CheckpointMetadata:
    """Read the bytes of a `_metadata` file; `path` is for messages.

    Raises:
        MetadataError: Foreign, truncated, damaged, of an unknown version, or refused because of what it says;
            nothing it names has been touched.
    """
    if len(data) < _HEADER.size or data[:4] != _MAGIC:
        raise MetadataError(
            f"{path} is not the metadata of a tidemark checkpoint or savepoint ({len(data)} bytes, starts "
            f"with {data[:4]!r}). Check the path.",
            path=path,
        )
    _, version, length, checksum = _HEADER.unpack_from(data)
    reader = _READERS.get(version)
    if reader is None:
        raise MetadataError(
            f"{path} has format version {version}; this release reads {sorted(_READERS)}. "
            "Restore it with the release that wrote it, or a newer one.",
            path=path,
        )
    payload = data[_HEADER.size :]
    if len(payload) != length:
        raise MetadataError(
            f"{path} is damaged: it has {len(payload)} bytes of content instead of {length}. Use another checkpoint.",
            path=path,
        )
    if xxhash.xxh3_128_digest(payload) != checksum:
        raise MetadataError(
            f"{path} is damaged: its checksum does not match. Use another checkpoint.", path=path
        )
    try:
        metadata = reader(payload)
    except ValueError as exc:
        raise MetadataError(f"{path} cannot be read as version {version}: {exc}.", path=path) from exc
    try:
        return check(metadata)
    except ValueError as exc:
        raise MetadataError(
            f"{path} is refused: {exc}. No release of tidemark writes this; do not use the snapshot unless you "
            "know where it comes from.",
            path=path,
        ) from exc


def write_metadata(storage: Storage, directory: str, metadata: CheckpointMetadata) -> str:
    """Write `_metadata` in one put and return its path. This is the commit point of a checkpoint.

    Raises:
        StorageError: The file may or may not be there, or is not as long as it should be; the caller must abort
            and delete.
    """
    path = join(directory, METADATA_FILE)
    storage = within(storage, parent(directory))
    data = encode(metadata)
    storage.write(path, data)
    size = storage.size(path)
    if size != len(data):
        raise StorageError(
            f"{path} has {size} bytes after {len(data)} were written, and no error was reported. Check the storage.",
            path=path,
            verdict=StorageVerdict.DAMAGED,
        )
    return path


def digest_of(metadata: CheckpointMetadata) -> bytes:
    """What tells the metadata of a snapshot from any other, also from one that was made to look like it."""
    return hashlib.sha256(encode(metadata)).digest()


def read_metadata(storage: Storage, directory: str) -> CheckpointMetadata:
    """Read the `_metadata` of a snapshot's directory; once more if it is missing or damaged, before that is believed.

    Raises:
        SavepointNotFoundError: There is none: not a snapshot, or one that never completed.
        MetadataError: It cannot be understood.
        StorageError: The storage did not answer; the snapshot may be intact.
    """
    try:
        return _read_once(storage, directory)
    except (SavepointNotFoundError, MetadataError):
        return _read_once(storage, directory)


def _read_once(storage: Storage, directory: str) -> CheckpointMetadata:
    path = join(directory, METADATA_FILE)
    storage = within(storage, directory)
    try:
        size = storage.size(path)
        if size > _LARGEST:
            raise MetadataError(
                f"{path} has {size} bytes; more than {_LARGEST} (1 GiB) are not read. Use another checkpoint.",
                path=path,
            )
        data = storage.read(path)
    except StorageError as exc:
        if exc.verdict is not StorageVerdict.MISSING:
            raise
        raise SavepointNotFoundError(
            f"There is no completed checkpoint or savepoint at {directory}: {METADATA_FILE} is missing. "
            "Check the path; a checkpoint that never completed cannot be restored.",
            path=directory,
        ) from exc
    return decode(data, path)
