"""Rows of a Spark batch, apart by the partition of the external system they name."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

__all__ = ["by_origin"]


def by_origin(batch: pa.RecordBatch, columns: list[int]) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
    """The rows for each combination of values in `columns`, in their order; all as they are if there is one."""
    import numpy as np

    if not batch.num_rows:
        return
    codes = np.zeros(batch.num_rows, np.int64)
    for at in columns:
        encoded = batch.column(at).dictionary_encode("encode")
        codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy(zero_copy_only=False)
    if (codes == codes[0]).all():
        yield _origin(batch, columns), batch
        return
    order = np.argsort(codes, kind="stable")
    ordered = batch.take(pa.array(order))
    starts = [0, *(np.flatnonzero(np.diff(codes[order])) + 1).tolist(), batch.num_rows]
    for first, last in itertools.pairwise(starts):
        part = ordered.slice(first, last - first)
        yield _origin(part, columns), part


def _origin(batch: pa.RecordBatch, columns: list[int]) -> tuple[Any, ...]:
    """The values of the first row; what a checkpoint has no type for is told apart by its text."""
    values = (batch.column(at)[0].as_py() for at in columns)
    return tuple(v if v is None or isinstance(v, str | int) else str(v) for v in values)
