"""Splits of a `SplitSource` in epochs: what one task reads of them, and when it stops.

A task opens a reader for each split of its share, reads for a bounded time and a bounded number of records, and tells
how far each split came. The driver (`split_driver`) makes the next shares from that.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from tidemark.plan.vertex import Vertex
from tidemark.runtime.records import Records
from tidemark.runtime.sources.enumeration import AssignedSplit
from tidemark.runtime.sources.readers import Aside, open_reader
from tidemark.runtime.sources.splits import READ_BATCH, READ_COLUMNS

__all__ = ["Reached", "SplitShare", "read_share"]

_READING_S = 1.0
"""How long a task goes on while there is something to read."""


@dataclass(frozen=True, slots=True)
class SplitShare:
    """Splits for one task, and how long it waits for the first record of each (ms)."""

    number: int
    splits: tuple[AssignedSplit, ...]
    patience_ms: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a task came in a split."""

    position: Any
    ended: bool
    quiet: bool
    """Whether it was asked and had nothing."""


def read_share(
    vertex: Vertex,
    share: SplitShare,
    subtask: int,
    reached: dict[str, Reached],
    *,
    by_column: bool = False,
) -> Iterator[tuple[str, Records | Aside]]:
    """Records and what was found beside them, with the split they are from; at the end `reached` says how far each is.

    Splits take turns. One that has nothing any more is left until the next epoch, so that whoever has much does not
    wait for it. With `by_column` nobody needs the records as objects.
    """
    size = READ_COLUMNS if by_column else READ_BATCH
    with ExitStack() as opened:
        turns = []
        for assigned, patience in zip(share.splits, share.patience_ms, strict=True):
            reader = open_reader(vertex, assigned, subtask, by_column=by_column)
            opened.callback(reader.close)
            turns.append((assigned.id, reader, patience / 1000))
        left, until = vertex.spec.epoch_records or sys.maxsize, time.monotonic() + _READING_S
        first = True
        while turns:
            again = []
            for split_id, reader, patience_s in turns:
                if left <= 0 or time.monotonic() > until:
                    return
                records = reader.read(min(left, size), patience_s if first else 0.0)
                read = 0 if records is None else len(records)
                aside = reader.aside()
                if aside is not None:
                    yield split_id, aside
                if records is not None and read:
                    left -= read
                    yield split_id, records
                    again.append((split_id, reader, patience_s))
                reached[split_id] = Reached(
                    reader.position(), records is None, first and not read and aside is None
                )
            turns, first = again, False
