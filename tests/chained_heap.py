"""A heap backend all of whose cuts are incremental checkpoints: written as files, read back from their chains.

A cut that is read completes its checkpoint, which is the base of the next one; a cut that is released unread, or is
overtaken by a newer one, was aborted. So whatever holds of cuts has to hold of chains of any length.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tidemark.backends.heap import HeapKeyedStateBackend
from tidemark.state.backend import BackendParameters, KeyToken
from tidemark.state.snapshot import Increment, KeyedCut, StateTable

__all__ = ["ChainedHeapBackend", "write_files"]


def write_files(cut: KeyedCut, known: dict[str, Path], directory: Path) -> dict[str, Path]:
    """The files of an incremental cut, those of earlier ones among them."""
    assert cut.native is not None
    files = {}
    for name, content in cut.native.files.items():
        if content is None:
            files[name] = known[name]
            continue
        assert not isinstance(content, Path)
        directory.mkdir(parents=True, exist_ok=True)
        files[name] = directory / name
        with files[name].open("wb") as sink:
            content(sink)
    return files


class ChainedHeapBackend(HeapKeyedStateBackend):
    """See the module."""

    def __init__(self, parameters: BackendParameters) -> None:
        super().__init__(parameters)
        self._ids = 0
        self._completed: tuple[int, dict[str, Path]] | None = None
        self._told: int | None = None
        self._lock = threading.Lock()

    def cut(self, *, incremental: Any = None) -> KeyedCut:
        if incremental is not None or self.parameters.directory is None:
            return super().cut(incremental=incremental)
        self._ids += 1
        with self._lock:
            base, known = self._completed or (None, {})
        cut = super().cut(incremental=Increment(self._ids, base))
        return _Written(self, self._ids, cut, known)

    def start_batch(self, tokens: Sequence[KeyToken] | None = None) -> None:
        with self._lock:
            newest = self._completed[0] if self._completed else None
        if newest is not None and newest != self._told:
            self._told = newest
            self.notify_checkpoint_complete(newest)
        super().start_batch(tokens)

    def complete(self, checkpoint_id: int, files: dict[str, Path]) -> None:
        with self._lock:
            if self._completed is None or self._completed[0] < checkpoint_id:
                self._completed = checkpoint_id, files


class _Written:
    native = None

    def __init__(
        self, backend: ChainedHeapBackend, number: int, cut: KeyedCut, known: dict[str, Path]
    ) -> None:
        self.metas = cut.metas
        self._backend = backend
        self._number = number
        self._cut = cut
        self._known = known
        self._read: Callable[[], Sequence[StateTable]] = self._write

    def tables(self) -> Sequence[StateTable]:
        return self._read()

    def _write(self) -> Sequence[StateTable]:
        directory = self._backend.parameters.directory
        assert directory is not None
        assert self._cut.native is not None
        files = write_files(self._cut, self._known, directory)
        reader = HeapKeyedStateBackend(replace(self._backend.parameters, asynchronous=True))
        reader.restore_native(self._cut.native.kind, files, self._cut.native.extra, self._cut.metas)
        self._backend.complete(self._number, files)
        tables = reader.cut().tables()
        self._read = lambda: tables
        return tables

    def release(self) -> None:
        self._cut.release()
