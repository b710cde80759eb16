"""The edge to `rocksdict`: one local RocksDB database, bytes in, bytes out.

Nothing above this module sees a `rocksdict` object or one of its exceptions. The write-ahead log is off:
what a crash loses is restored from the last checkpoint, as for every other backend.
"""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from tidemark.backends.rocksdb.held_writes import HeldBatch, HeldWrites
from tidemark.backends.rocksdb.options import RocksDBOptions, native_options
from tidemark.config.rocksdb_metrics import PROPERTIES, TICKERS
from tidemark.errors import BackendCorruptedError, BackendError, BackendLockedError

__all__ = ["FrozenRows", "RocksStore", "Row", "after"]

Row = tuple[bytes, bytes]

_LEVELS = "num-files-at-level"
_LEVEL_COUNT = 7
"""RocksDB's default, which nothing here changes."""


def after(prefix: bytes) -> bytes:
    """The smallest key greater than every key that starts with `prefix`."""
    trimmed = prefix.rstrip(b"\xff")
    if not trimmed:
        # Rows start with a key group below 0x8000, so no prefix consists of 0xff bytes only.
        raise ValueError("A prefix must hold a byte below 0xff.")
    return trimmed[:-1] + bytes((trimmed[-1] + 1,))


def _raise(error: Exception, path: Path, doing: str) -> NoReturn:
    text = str(error)
    lowered = text.lower()
    facts = {"backend": "rocksdb", "path": str(path)}
    if "lock" in lowered and lowered.startswith("io error"):
        raise BackendLockedError(
            f"The RocksDB store at {path} is in use by another backend or process ({text}). "
            "End that process or choose another directory.",
            **facts,
        ) from error
    if lowered.startswith("corruption") or "corrupt" in lowered:
        raise BackendCorruptedError(
            f"The RocksDB store at {path} is damaged ({text}). Restart the job: the store is rebuilt from "
            "the last checkpoint.",
            **facts,
        ) from error
    raise BackendError(f"RocksDB failed to {doing} at {path}: {text}", **facts) from error


def _read_options(upper: bytes | None) -> Any:
    import rocksdict

    options = rocksdict.ReadOptions()
    if upper is not None:
        options.set_iterate_upper_bound(upper)
    return options


class FrozenRows:
    """The rows of a store as they were when this was made; may be read from another thread.

    It is an iterator, which sees the moment it was opened. The snapshot objects of rocksdict 0.3 would be
    the obvious choice, but their `items` reads the newest rows.
    """

    def __init__(self, cursor: Any, path: Path, released: Callable[[], None]) -> None:
        self._cursor = cursor
        self._path = path
        self._released = released

    def scan(self, first: bytes, end: bytes) -> Iterator[Row]:
        """Rows with `first <= key < end`, in key order; one scan at a time."""
        cursor = self._cursor
        if cursor is None:
            raise BackendError(
                f"The snapshot of the RocksDB store at {self._path} was released before it was read "
                "to its end.",
                backend="rocksdb",
                path=str(self._path),
            )
        valid, key_of, value_of, move = cursor.valid, cursor.key, cursor.value, cursor.next
        try:
            cursor.seek(first)
            while valid():
                key = key_of()
                if key >= end:
                    return
                yield key, value_of()
                move()
            cursor.status()
        except Exception as error:
            _raise(error, self._path, "read a snapshot")

    def release(self) -> None:
        """Let RocksDB drop the old versions of the rows. Any thread, any number of times."""
        cursor, self._cursor = self._cursor, None
        if cursor is not None:
            del cursor
            self._released()


class RocksStore:
    """An open database in its own directory. Not thread-safe, except for what `freeze` returns."""

    def __init__(self, path: Path, options: RocksDBOptions) -> None:
        import rocksdict

        self.path = path
        self.options = options
        self._write_options = rocksdict.WriteOptions()
        self._write_options.disable_wal = True
        self._db: Any = None
        self._cursor: Any = None
        self._held: HeldWrites | None = None
        """What waits until files are frozen, from `begin_checkpoint` until it has been written."""
        self._frozen = 0
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._native = native_options(options)
            self._db = rocksdict.Rdict(str(path), self._native)
        except Exception as error:
            _raise(error, path, "open the store")
        self._native_batch = partial(rocksdict.WriteBatch, raw_mode=True)

    def new_batch(self) -> Any:
        """An empty batch for `write`."""
        return self._native_batch() if self._held is None else HeldBatch()

    def get(self, key: bytes) -> bytes | None:
        """Value of one key, or None."""
        if self._held is not None and key in self._held.rows:
            return self._held.rows[key]
        try:
            return self._db.get(key)  # type: ignore[no-any-return]
        except Exception as error:
            _raise(error, self.path, "read")

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """Values of many keys; fastest when `keys` are sorted."""
        try:
            raws: list[bytes | None] = self._db.get(keys)
        except Exception as error:
            _raise(error, self.path, "read")
        return raws if self._held is None else self._held.patched(keys, raws)

    def write(self, batch: Any) -> None:
        """Apply a batch of `new_batch()` (`put`, `delete`, `delete_range`) at once."""
        if batch.is_empty():
            return
        self._cursor = None
        if self._held is not None:
            if self._held.take(batch):
                return
            self._settle()
        if isinstance(batch, HeldBatch):
            held, batch = batch, self._native_batch()
            held.copy_to(batch)
        self._write(batch)

    def _write(self, batch: Any) -> None:
        try:
            self._db.write(batch, self._write_options)
        except Exception as error:
            _raise(error, self.path, "write")

    def _settle(self) -> None:
        """Wait for files that are being frozen, and write what waits for them."""
        held, self._held = self._held, None
        if held is None:
            return
        batch = self._native_batch()
        held.finish(batch)
        self._cursor = None
        if not batch.is_empty():
            self._write(batch)

    def scan(self, first: bytes, end: bytes) -> Iterator[Row]:
        """Rows with `first <= key < end`, in key order, as they are when the scan starts."""
        self._settle()
        try:
            yield from self._db.items(from_key=first, read_opt=_read_options(end))
        except Exception as error:
            _raise(error, self.path, "scan")

    def prefixed(self, prefix: bytes, limit: int = sys.maxsize) -> list[Row]:
        """Rows whose key starts with `prefix`, at most `limit`; made for the few rows of one key."""
        if self._held is not None and self._held.touches(prefix):
            self._settle()
        # One iterator serves all such reads until the next write: opening one costs more than seeking.
        try:
            cursor = self._cursor
            if cursor is None:
                cursor = self._cursor = self._db.iter()
            cursor.seek(prefix)
            rows: list[Row] = []
            while cursor.valid() and len(rows) < limit:
                key = cursor.key()
                if not key.startswith(prefix):
                    break
                rows.append((key, cursor.value()))
                cursor.next()
            cursor.status()
        except Exception as error:
            _raise(error, self.path, "scan")
        return rows

    def delete_range(self, first: bytes, end: bytes) -> None:
        """Remove every key with `first <= key < end`."""
        self._settle()
        self._cursor = None
        try:
            self._db.delete_range(first, end, self._write_options)
        except Exception as error:
            _raise(error, self.path, "delete")

    def freeze(self) -> FrozenRows:
        """A consistent view of the rows, in microseconds unless files are being frozen."""
        self._settle()
        try:
            frozen = FrozenRows(self._db.iter(), self.path, self._thaw)
        except Exception as error:
            _raise(error, self.path, "take a snapshot")
        with self._lock:
            self._frozen += 1
        return frozen

    def _thaw(self) -> None:
        with self._lock:
            self._frozen -= 1
            last = self._db is None and not self._frozen
        if last:
            shutil.rmtree(self.path, ignore_errors=True)

    def begin_checkpoint(self, target: Path) -> Future[None]:
        """Have files with the rows of this moment hard-linked into the new directory `target`.

        Returns at once, unless files are being frozen already: one after the other. What it gives is done when the
        files are there, or tells why they are not.
        """
        self._settle()
        if self._db is None:
            # Else only the thread would notice.
            _raise(ValueError("it is closed"), self.path, "take a native checkpoint")
        self._held = HeldWrites(partial(self._freeze_files, self._db, target), self.options.write_buffer_size)
        return self._held.frozen

    def _freeze_files(self, db: Any, target: Path) -> None:
        import rocksdict

        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            # The checkpoint would flush by itself, but hold the interpreter meanwhile, which this does not.
            db.flush(True)
            rocksdict.Checkpoint(db).create_checkpoint(str(target))
        except Exception as error:
            _raise(error, self.path, "take a native checkpoint")

    def compact(self) -> None:
        """Rewrite all files, dropping deleted and overwritten rows. Takes time."""
        self._settle()
        self._cursor = None
        try:
            self._db.flush(True)
            self._db.compact_range(None, None)
        except Exception as error:
            _raise(error, self.path, "compact")

    def metrics(self, names: Sequence[str]) -> dict[str, int]:
        """Figures by the names of `config.rocksdb_metrics`; of `num-files-at-level` one for each level."""
        wanted = [name for name in names if name in PROPERTIES and name != _LEVELS]
        if _LEVELS in names:
            wanted += [f"{_LEVELS}{level}" for level in range(_LEVEL_COUNT)]
        found = self.properties(wanted)
        tickers = {TICKERS[name]: name for name in names if name in TICKERS}
        if tickers:
            for line in str(self._native.get_statistics()).splitlines():
                # A ticker is `rocksdb.block.cache.hit COUNT : 12`; histograms have more words.
                words = line.split()
                name = tickers.get(words[0].removeprefix("rocksdb.")) if len(words) == 4 else None
                if name is not None:
                    found[name] = int(words[3])
        return found

    def properties(self, names: Sequence[str]) -> dict[str, int]:
        """RocksDB's own counters by name (without the `rocksdb.` prefix); absent ones are left out."""
        found = {name: self._db.property_int_value(f"rocksdb.{name}") for name in names}
        return {name: int(value) for name, value in found.items() if value is not None}

    def close(self) -> None:
        """Release files and lock and delete the directory, once no frozen rows need it. Idempotent."""
        self._cursor = None
        held, self._held = self._held, None
        if held is not None:
            held.wait()
        with self._lock:
            db, self._db = self._db, None
            unused = not self._frozen
        if db is None:
            return
        try:
            db.close()
        except Exception as error:
            _raise(error, self.path, "close the store")
        finally:
            if unused:
                shutil.rmtree(self.path, ignore_errors=True)
