"""What is written to a store while its files are being frozen, and waits until they are.

RocksDB freezes whatever has been written when it has flushed its memory to disk, which takes too long for a barrier.
So that the files hold the state of the barrier all the same, nothing reaches the store from then until they are
linked: rows that are written meanwhile stay here, where reads find them, and follow.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, Final

__all__ = ["HeldBatch", "HeldWrites"]

_FEW_ROWS: Final = 256


class HeldBatch:
    """A batch as RocksDB's, whose content can be read."""

    __slots__ = ("ranges", "rows", "size")

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes | None] = {}
        """None: the row is deleted."""
        self.ranges: list[tuple[bytes, bytes]] = []
        """Deleted before `rows` are written."""
        self.size = 0

    def put(self, row: bytes, raw: bytes) -> None:
        """Write a row."""
        self.rows[row] = raw
        self.size += len(row) + len(raw)

    def delete(self, row: bytes) -> None:
        """Delete a row."""
        self.rows[row] = None
        self.size += len(row)

    def delete_range(self, first: bytes, end: bytes) -> None:
        """Delete every row with `first <= row < end`."""
        for row in [row for row in self.rows if first <= row < end]:
            del self.rows[row]
        self.ranges.append((first, end))
        self.size += len(first) + len(end)

    def size_in_bytes(self) -> int:
        """About what RocksDB would say."""
        return self.size

    def is_empty(self) -> bool:
        """Whether nothing is to be written."""
        return not self.rows and not self.ranges

    def copy_to(self, batch: Any) -> None:
        """Repeat everything on a batch of RocksDB."""
        for first, end in self.ranges:
            batch.delete_range(first, end)
        for row, raw in self.rows.items():
            if raw is None:
                batch.delete(row)
            else:
                batch.put(row, raw)


class HeldWrites:
    """The writes of one freezing.

    Attributes:
        rows: What reads have to find first; None for rows that are deleted.
        frozen: Done when the files are; tells what failed.
    """

    def __init__(self, freeze: Callable[[], None], most: int) -> None:
        """Freeze in a thread of its own.

        Args:
            freeze: Does it.
            most: Bytes that may wait.
        """
        self._batch = HeldBatch()
        self.rows = self._batch.rows
        self.frozen: Future[None] = Future()
        self._most = most
        self._thread = threading.Thread(target=self._run, args=(freeze,), name="rocksdb-freeze", daemon=True)
        self._thread.start()

    def _run(self, freeze: Callable[[], None]) -> None:
        try:
            freeze()
        except BaseException as error:
            self.frozen.set_exception(error)
        else:
            self.frozen.set_result(None)

    def take(self, batch: Any) -> bool:
        """Let a batch wait; False if it cannot, or need not."""
        held = self._batch
        if self.frozen.done() or not isinstance(batch, HeldBatch) or batch.ranges:
            return False
        if held.size + batch.size > self._most:
            return False
        held.rows.update(batch.rows)
        held.size += batch.size
        return True

    def patched(self, keys: Iterable[bytes], raws: Iterable[bytes | None]) -> list[bytes | None]:
        """What was read from the store, as it is with the rows that wait."""
        get = self.rows.get
        return [get(key, raw) for key, raw in zip(keys, raws, strict=True)]

    def touches(self, prefix: bytes) -> bool:
        """Whether a row that waits starts with `prefix`, or there are too many to look at."""
        return len(self.rows) > _FEW_ROWS or any(row.startswith(prefix) for row in self.rows)

    def wait(self) -> None:
        """Wait until the files are frozen, whether that went well or not, and whoever waits for that was told."""
        self._thread.join()

    def finish(self, batch: Any) -> None:
        """Wait until the files are frozen, and repeat all on a batch of RocksDB."""
        self.wait()
        self._batch.copy_to(batch)
