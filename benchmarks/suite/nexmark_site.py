"""Nexmark's events as streams of one of our jobs, and what a query gives, added up or as a view.

Rows are made of the numbers of our own sequence source by `map_batch`. Results are checked by their number and a
checksum, which Flink's sink makes the same way (`flink_java/src/NexmarkTables.java`). A query whose later rows replace
earlier ones is checked by the rows that stay.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from suite.nexmark_events import KINDS
from tidemark import NumberSequenceSource, Types, WatermarkStrategy, field

READ: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("q3", "q8"), ("persons", "auctions")),
    **dict.fromkeys(("q4", "q9", "q20"), ("auctions", "bids")),
    **dict.fromkeys(("q14", "q21", "q22"), ("texts",)),
}
"""What a query reads; others read bids."""

REPLACING: dict[str, tuple[tuple[int, ...], int]] = {
    "q4": ((0,), 1),
    "q15": ((0,), 1),
    "q16": ((0,), 1),
    "q17": ((0,), 1),
    "q18": ((0, 1), 2),
}
"""Columns of a key, and the one whose highest value has the row that stays; of q19 the ten highest stay."""

UNCHECKED = {"q12"}
"""Depends on when events come."""

_KIND_TYPES = {pa.int64(): Types.LONG(), pa.string(): Types.STRING()}


def read_by(query: str) -> tuple[str, ...]:
    """Kinds of events that a query reads."""
    return READ.get(query, ("bids",))


def events_read(query: str, events: int) -> int:
    """How many of `events` events of the site it reads."""
    return sum(KINDS[kind].count(events) for kind in read_by(query))


class Site:
    """The streams of one job."""

    def __init__(self, env: Any, events: int, times: Path) -> None:
        """Create them.

        Args:
            env: Of the job.
            events: How many; a multiple of 100.
            times: Folder where tasks note when they made rows.
        """
        self._env = env
        self._events = events
        self._times = times

    def stream(self, name: str) -> Any:
        """Events of a kind, with timestamps."""
        kind = KINDS[name]
        count, times = kind.count(self._events), str(self._times)
        schema = kind.rows(np.arange(1), count).schema
        form = Types.ROW_NAMED(schema.names, [_KIND_TYPES[column.type] for column in schema])

        def rows(batch: pa.RecordBatch) -> pa.RecordBatch:
            began = time.monotonic_ns()
            made = kind.rows(batch.column(0).to_numpy(), count)
            with open(os.path.join(times, str(os.getpid())), "ab") as file:
                file.write(np.array([began, time.monotonic_ns()]).tobytes())
            return made

        source = NumberSequenceSource(0, count - 1)
        numbers = self._env.from_source(source, WatermarkStrategy.no_watermarks(), name)
        return numbers.map_batch(rows, output_type=form).assign_timestamps_and_watermarks(
            WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(field("t"))
        )

    def made(self) -> tuple[int, int]:
        """When the first rows began to be made, and when the last were ready."""
        stamps = [np.frombuffer(path.read_bytes(), np.int64) for path in self._times.iterdir()]
        return int(min(each.min() for each in stamps)), int(max(each.max() for each in stamps))


def mixed(columns: Iterable[Any]) -> np.ndarray:
    """A number per row, of all its columns in their order; of a text its length in bytes."""
    whole: Any = np.uint64(0)
    for column in columns:
        if isinstance(column, pa.Array) and pa.types.is_string(column.type):
            column = pc.binary_length(column).cast(pa.int64())
        part = np.asarray(column).astype(np.int64, copy=False).view(np.uint64)
        whole = whole * np.uint64(1_000_003) + part
    return whole ^ whole >> np.uint64(29)


def added_up(batch: pa.RecordBatch) -> dict[str, Any]:
    """Rows, checksum and time of a batch."""
    figures = (
        batch.num_rows,
        int(mixed(batch.columns).view(np.int64).sum()) if batch.num_rows else 0,
        time.monotonic_ns(),
    )
    return {f"f{at}": pa.array([figure], pa.int64()) for at, figure in enumerate(figures)}


def wrapped(figure: int) -> int:
    """As a number of 64 bits with a sign."""
    return (figure + 2**63) % 2**64 - 2**63


def staying(query: str, rows: list[tuple[int, ...]]) -> tuple[int, int]:
    """Number and checksum of the rows that stay of a query whose later rows replace earlier ones."""
    view: list[tuple[int, ...]]
    if query == "q19":
        held: dict[int, list[int]] = defaultdict(list)
        for auction, price in rows:
            held[auction].append(price)
        view = [(auction, price) for auction, prices in held.items() for price in sorted(prices)[-10:]]
    else:
        key, newest = REPLACING[query]
        last: dict[tuple[int, ...], tuple[int, ...]] = {}
        for row in rows:
            whose = tuple(row[at] for at in key)
            if whose not in last or row[newest] >= last[whose][newest]:
                last[whose] = row
        view = list(last.values())
    columns = [np.array(column) for column in zip(*view, strict=True)]
    return len(view), int(mixed(columns).view(np.int64).sum())
