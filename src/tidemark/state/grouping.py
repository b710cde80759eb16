"""Group-wise arithmetic over numpy columns: rows that carry the code of their group, no loop per row.

What runs over rows in order gives, to the bit, what a loop over the records would give: floating-point sums are left
folds, never trees.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["cumulative_count", "fold", "row_order", "running"]

Numbers = np.ndarray[Any, Any]

_BYTE, _SHORT = 1 << 8, 1 << 16


def row_order(codes: Numbers, groups: int) -> Numbers:
    """Rows grouped by code, in their own order within a group."""
    # numpy sorts 16 bits by radix, ten times as fast as it compares; wider codes are two such digits.
    if groups <= _SHORT:
        return np.argsort(codes.astype(np.uint8 if groups <= _BYTE else np.uint16), kind="stable")
    low = np.argsort((codes & (_SHORT - 1)).astype(np.uint16), kind="stable")
    high = np.argsort((codes[low] >> 16).astype(np.uint16), kind="stable")
    return low[high]


def run_heads(*columns: Numbers) -> Numbers:
    """Where runs of rows that are equal in all columns begin."""
    is_head = np.ones(len(columns[0]), np.bool_)
    if len(is_head) > 1:
        is_head[1:] = columns[0][1:] != columns[0][:-1]
        for column in columns[1:]:
            is_head[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(is_head)


def cumulative_count(order: Numbers, counts: Numbers, start: Numbers | int = 0) -> Numbers:
    """How many rows of its group precede each row, counted from `start`, one number or one per group."""
    grouped = np.repeat(start - (np.cumsum(counts) - counts), counts)
    grouped += np.arange(len(order))
    result = np.empty(len(order), np.int64)
    result[order] = grouped
    return result


def fold(ufunc: np.ufunc, codes: Numbers, values: Numbers, start: Numbers) -> Numbers:
    """`start`, one value per group, combined with the values of the group one after the other."""
    result = start.copy()
    with np.errstate(all="ignore"):
        ufunc.at(result, codes, values)
    return result


def running(ufunc: np.ufunc, order: Numbers, counts: Numbers, values: Numbers, start: Numbers) -> Numbers:
    """The fold of each group as it stands behind each row.

    Args:
        ufunc: Combines two values.
        order: Rows grouped by code.
        counts: Rows of each group.
        values: One value per row.
        start: One value per group, in front of its first row.
    """
    grouped = values.take(order).astype(start.dtype, copy=False)
    ends = np.cumsum(counts)
    firsts = ends - counts
    if ufunc is np.add and grouped.dtype.kind in "iu":
        # Integers wrap around and come back, so one sum over all rows serves every group.
        np.cumsum(grouped, dtype=grouped.dtype, out=grouped)
        before = np.where(firsts > 0, grouped[firsts - 1], 0).astype(grouped.dtype)
        grouped += np.repeat(start - before, counts)
    else:
        # Infinities and NaN are values like others, as they are to Python.
        with np.errstate(all="ignore"):
            _accumulate(ufunc, grouped, firsts, counts, start)
    result = np.empty_like(grouped)
    result[order] = grouped
    return result


def _accumulate(ufunc: np.ufunc, grouped: Numbers, firsts: Numbers, counts: Numbers, start: Numbers) -> None:
    """Fold each group in place.

    Large groups are folded one by one, all others together, the n-th rows of all groups at a time; with a border at
    the root of the number of rows neither takes more steps than twice that root.
    """
    if not len(grouped):
        return
    occupied = np.flatnonzero(counts)
    grouped[firsts[occupied]] = ufunc(start[occupied], grouped[firsts[occupied]])
    border = max(int(len(grouped) ** 0.5), 1)
    for group in np.flatnonzero(counts > border).tolist():
        part = grouped[firsts[group] : firsts[group] + counts[group]]
        ufunc.accumulate(part, out=part)
    small = np.flatnonzero((counts > 1) & (counts <= border))
    small = small[np.argsort(-counts[small], kind="stable")]
    sizes, at = counts[small], firsts[small]
    for step in range(1, int(sizes[0]) if len(small) else 0):
        # Sorted by size: the groups that have an n-th row come first.
        now = at[: int(np.searchsorted(-sizes, -step, side="left"))] + step
        grouped[now] = ufunc(grouped[now - 1], grouped[now])
