"""Canonical rows under another number of key groups: every key is hashed anew, and the rows of one range stay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from tidemark.state.canonical import MAX_BATCH_ROWS, StateSerializers
from tidemark.state.key_hashing import key_group_column
from tidemark.state.snapshot import StateMeta

__all__ = ["rehashed"]


def rehashed(
    meta: StateMeta, batches: Iterable[pa.RecordBatch], max_parallelism: int, key_groups: tuple[int, int]
) -> Iterator[pa.RecordBatch]:
    """The rows whose keys are in these groups (first and last) of `max_parallelism`, sorted by key group.

    Reads all rows before it gives one; what it keeps is what the caller is going to hold.

    Raises:
        StateMigrationException: The type of the keys cannot be rebuilt from the snapshot.
    """
    first, last = key_groups
    serializer = StateSerializers.key_of(meta)
    kept = []
    for batch in batches:
        groups = key_group_column(batch.column("key"), serializer, max_parallelism)
        mine = (groups >= first) & (groups <= last)
        if mine.any():
            at = batch.schema.get_field_index("key_group")
            kept.append(
                batch.set_column(at, "key_group", pa.array(groups, pa.uint16())).filter(pa.array(mine))
            )
    if not kept:
        return
    table = pa.Table.from_batches(kept)
    order = np.argsort(table.column("key_group").to_numpy(), kind="stable")
    yield from table.take(pa.array(order)).combine_chunks().to_batches(max_chunksize=MAX_BATCH_ROWS)
