"""Native files of a backend: uploaded once, shared by later checkpoints, fetched on restore.

RocksDB has its SSTs, the heap what it wrote of the changes of a state (`backends.chain_files`).

A file may be reused only from the checkpoint the coordinator names as *base*: that one is complete and its
files are not deleted while a checkpoint based on it is pending. Files of other attempts, which may be
aborted and deleted at any moment, are uploaded again under a new name.
"""

from __future__ import annotations

import io
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import BinaryIO

import xxhash

from tidemark.checkpoint.metadata.model import FileHandle, NativeHandle
from tidemark.checkpoint.storage.base import Storage
from tidemark.checkpoint.storage.filesystem import within
from tidemark.checkpoint.storage.mapping import mapped
from tidemark.errors import CheckpointError, FailureReason, StorageError, StorageVerdict
from tidemark.paths import join, parent
from tidemark.safe_names import plain_name
from tidemark.state.snapshot import NativeCut, StateMeta

__all__ = ["NativeFiles", "fetch_native", "verify_native"]

_CHUNK = 1 << 20

Tee = Callable[[BinaryIO, str], AbstractContextManager[BinaryIO]]


class NativeFiles:
    """What one backend instance has uploaded so far; one per operator subtask and attempt. Thread-safe."""

    def __init__(self) -> None:
        self._by_checkpoint: dict[int, dict[str, FileHandle]] = {}
        self._restored: dict[tuple[int, bytes], FileHandle] = {}
        self._restored_from: int | None = None
        self._lock = threading.Lock()

    def seed(self, checkpoint_id: int, handles: Iterable[NativeHandle]) -> None:
        """Allow reuse of the shared files this backend was restored from, recognised by their content.

        Only for a checkpoint of the same job directory; the files of others are not ours to refer to.
        """
        with self._lock:
            self._restored_from = checkpoint_id
            self._restored = {
                (file.size, file.checksum): file for handle in handles for file in handle.files if file.shared
            }

    def upload(
        self,
        cut: NativeCut,
        metas: Iterable[StateMeta],
        storage: Storage,
        directory: str,
        shared: str,
        prefix: str,
        *,
        checkpoint_id: int,
        base: int | None,
        inline_threshold: int | None = 0,
        tee: Tee = lambda sink, _name: nullcontext(sink),
    ) -> tuple[NativeHandle, int]:
        """Write what is not there yet; return the handle and the number of bytes written.

        Args:
            cut: The frozen files.
            metas: The states in them.
            storage: Where they go.
            directory: The snapshot's directory, for private files.
            shared: The job's directory of shared files.
            prefix: Start of the names of new files, relative to `directory`.
            checkpoint_id: The snapshot being written.
            base: The completed checkpoint whose shared files may be used again.
            inline_threshold: Smaller private files go into the handle; None puts all private ones there.
            tee: Wraps the file that a backend writes itself, given its name, to also keep a copy.

        Raises:
            StorageError: A file could not be written; the checkpoint must be aborted.
            CheckpointError: `DECLINED`: the backend gave a file a name that could not be restored, or counts on one
                of its base that is not known.
        """
        known = self._known(base)
        handles = []
        written = 0
        for name, content in sorted(cut.files.items()):
            _check_name(name, checkpoint_id)
            is_shared = name in cut.shared
            old = known.get(name) if is_shared else None
            if old is None and is_shared and isinstance(content, Path):
                old = self._find_restored(content, name, base)
            if old is not None:
                handles.append(old)
                continue
            if content is None:
                raise _unknown_file(name, checkpoint_id, base)
            small = inline_threshold is None or (
                isinstance(content, Path) and content.stat().st_size < inline_threshold
            )
            if small and not is_shared:
                handle = _inline(name, content)
            elif is_shared:
                target = f"{uuid.uuid4().hex}-{name}"
                handle = _upload(storage, content, name, shared, target, tee, shared_file=True)
            else:
                handle = _upload(storage, content, name, directory, f"{prefix}{name}", tee, shared_file=False)
            handles.append(handle)
            written += handle.size
        with self._lock:
            self._by_checkpoint[checkpoint_id] = {h.name: h for h in handles if h.shared}
            for old_id in [i for i in self._by_checkpoint if base is not None and i < base]:
                del self._by_checkpoint[old_id]
        return NativeHandle(cut.kind, tuple(handles), tuple(metas), cut.extra), written

    def _known(self, base: int | None) -> dict[str, FileHandle]:
        if base is None:
            return {}
        with self._lock:
            return self._by_checkpoint.get(base, {})

    def _find_restored(self, path: Path, name: str, base: int | None) -> FileHandle | None:
        size = path.stat().st_size
        if base is None or base != self._restored_from or all(s != size for s, _ in self._restored):
            return None
        with path.open("rb") as file:
            old = self._restored.get((size, _digest(file)))
        return FileHandle(name, old.size, old.checksum, old.path, True) if old is not None else None


def fetch_native(
    handle: NativeHandle,
    storage: Storage,
    directory: str,
    shared: str,
    target: Path,
    local: Callable[[FileHandle], Path | None] = lambda file: None,
) -> dict[str, Path]:
    """Copy all files of a native snapshot into the local directory `target`, verified; name -> path.

    `local` may know an intact copy of a file on this machine, which is linked instead.

    Raises:
        StorageError: A file is missing, truncated or damaged; the message names it.
    """
    target.mkdir(parents=True, exist_ok=True)
    files = {}
    for file in handle.files:
        path = target / file.name
        copy = local(file) if file.inline is None else None
        if copy is not None:
            _link_or_copy(copy, path, link=file.shared)
        else:
            with path.open("wb") as output:
                for chunk in _verified(file, storage, directory, shared):
                    output.write(chunk)
        files[file.name] = path
    return files


def verify_native(file: FileHandle, storage: Storage, directory: str, shared: str) -> None:
    """Check every byte of one native file.

    Raises:
        StorageError: Missing, truncated or damaged; the message names the file.
    """
    for _ in _verified(file, storage, directory, shared):
        pass


def _verified(file: FileHandle, storage: Storage, directory: str, shared: str) -> Iterator[bytes]:
    if file.inline is not None:
        where = f"inline file '{file.name}'"
        yield file.inline
        actual = xxhash.xxh3_128_digest(file.inline)
    else:
        assert file.path is not None
        where = join(shared if file.shared else directory, file.path)
        storage = within(storage, parent(shared) if file.shared else directory)
        hasher = xxhash.xxh3_128()
        with mapped("read", where), storage.open(where) as source:
            size = source.seek(0, io.SEEK_END)
            if size != file.size:
                raise StorageError(
                    f"{where} has {size} bytes instead of {file.size}: it was truncated or replaced. "
                    "Use another checkpoint.",
                    path=where,
                    verdict=StorageVerdict.DAMAGED,
                )
            source.seek(0)
            while chunk := source.read(_CHUNK):
                hasher.update(chunk)
                yield chunk
        actual = hasher.digest()
    if actual != file.checksum:
        raise StorageError(
            f"{where} is damaged or truncated: its checksum does not match. Use another checkpoint.",
            path=where,
            verdict=StorageVerdict.DAMAGED,
        )


def _check_name(name: str, checkpoint_id: int) -> None:
    try:
        plain_name(name)
    except ValueError as exc:
        raise CheckpointError(
            f"A native file of checkpoint {checkpoint_id} has a name that restoring would refuse: {exc}. The "
            "state backend must use plain names.",
            reason=FailureReason.DECLINED,
            checkpoint_id=checkpoint_id,
        ) from exc


def _unknown_file(name: str, checkpoint_id: int, base: int | None) -> CheckpointError:
    return CheckpointError(
        f"Native file '{name}' of checkpoint {checkpoint_id} should be one of checkpoint {base}, which this writer "
        "knows nothing of. The state backend must write all files then.",
        reason=FailureReason.DECLINED,
        checkpoint_id=checkpoint_id,
    )


def _inline(name: str, content: Path | Callable[[BinaryIO], None]) -> FileHandle:
    if isinstance(content, Path):
        data = content.read_bytes()
    else:
        buffer = io.BytesIO()
        content(buffer)
        data = buffer.getvalue()
    return FileHandle(name, len(data), xxhash.xxh3_128_digest(data), inline=data)


def _upload(
    storage: Storage,
    content: Path | Callable[[BinaryIO], None],
    name: str,
    directory: str,
    target: str,
    tee: Tee,
    *,
    shared_file: bool,
) -> FileHandle:
    place = within(storage, parent(directory))
    if isinstance(content, Path):
        with content.open("rb") as source, place.create(join(directory, target)) as sink:
            hashing = _HashingCopy(sink)
            shutil.copyfileobj(source, hashing, _CHUNK)
    else:
        with place.create(join(directory, target)) as durable, tee(durable, name) as sink:
            hashing = _HashingCopy(sink)
            content(hashing)  # type: ignore[arg-type]
    return FileHandle(name, hashing.size, hashing.digest(), target, shared_file)


class _HashingCopy:
    """Passes bytes on to a file, counts and hashes them."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self._hash = xxhash.xxh3_128()
        self.size = 0

    def write(self, data: bytes) -> int:
        self._hash.update(data)
        self._sink.write(data)
        self.size += len(data)
        return len(data)

    def digest(self) -> bytes:
        return self._hash.digest()


def _link_or_copy(source: Path, target: Path, *, link: bool) -> None:
    # Only shared files never change; a store may go on writing into the others.
    if link:
        with suppress(OSError):
            os.link(source, target)
            return
    shutil.copyfile(source, target)


def _digest(file: BinaryIO) -> bytes:
    hasher = xxhash.xxh3_128()
    while chunk := file.read(_CHUNK):
        hasher.update(chunk)
    return hasher.digest()
