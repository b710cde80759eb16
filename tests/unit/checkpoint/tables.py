"""Small frozen states for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tidemark.state.descriptors import StateKind
from tidemark.state.snapshot import NativeCut, StateMeta, StateTable


@dataclass
class FakeTable:
    """A state table over given rows (key group, key, value)."""

    rows: list[tuple[int, int, int]]
    name: str = "count"
    kind: StateKind = StateKind.VALUE
    batch_rows: int = 1000

    @property
    def meta(self) -> StateMeta:
        return StateMeta(self.name, self.kind, b"key", b"value")

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([("key_group", pa.uint16()), ("key", pa.int64()), ("value", pa.int64())])

    def batches(self) -> Iterator[pa.RecordBatch]:
        for at in range(0, len(self.rows), self.batch_rows):
            groups, keys, values = zip(*self.rows[at : at + self.batch_rows], strict=True)
            yield pa.record_batch(
                [pa.array(groups, pa.uint16()), list(keys), list(values)], schema=self.schema
            )


@dataclass
class FakeKeyedCut:
    """Keyed state that notes its release."""

    states: list[StateTable] = field(default_factory=list)
    native: NativeCut | None = None
    released: int = 0

    @property
    def metas(self) -> list[StateMeta]:
        return [table.meta for table in self.states]

    def tables(self) -> list[StateTable]:
        return self.states

    def release(self) -> None:
        self.released += 1


def rows_in(groups: range, per_group: int) -> list[tuple[int, int, int]]:
    return [(g, g * 1_000_000 + i, i) for g in groups for i in range(per_group)]


def rows_of(batches: Iterator[pa.RecordBatch]) -> list[tuple[int, int, int]]:
    found = []
    for batch in batches:
        columns = [np.asarray(batch.column(i)).tolist() for i in range(3)]
        found += list(zip(*columns, strict=True))
    return found
