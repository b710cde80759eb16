"""Aggregations of windows by column: what `ColumnAggregate` does with single records, for all rows of a batch.

To the bit: floating-point numbers are added up in the order of the rows, integers that might outgrow 64 bits are
added up as Python does it, and what is None counts for nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tidemark.api.windows.aggregations import AggregationKind
from tidemark.api.windows.column_aggregate import ITSELF, ColumnAggregate, Part, PartKind, sum_in_range
from tidemark.state.column_keys import Keys
from tidemark.state.grouping import fold

__all__ = ["Accumulators", "ColumnAggregation"]

Numbers = np.ndarray[Any, Any]
Accumulators = tuple[Numbers, ...]
"""One array per part of the accumulator."""

# NaN is larger than all numbers: it wins over them for the largest, and loses for the smallest.
_UFUNCS = {PartKind.COUNT: np.add, PartKind.SUM: np.add, PartKind.MIN: np.fmin, PartKind.MAX: np.maximum}


class ColumnAggregation:
    """An aggregate function over columns."""

    def __init__(self, function: ColumnAggregate) -> None:
        self._parts = function.parts
        self._finals = function.finals

    def operands(self, column: pa.Array) -> Accumulators:
        """What each row brings to each part: of the column of a stream."""
        found: dict[int, tuple[Numbers | None, Numbers]] = {}
        return tuple([_operand(part, column, found) for part in self._parts])

    def fold(self, keys: Keys, operands: Accumulators, held: Accumulators) -> Accumulators:
        """The accumulator of each distinct key behind the batch.

        Args:
            keys: Of the rows.
            operands: Of the rows.
            held: Accumulator of each distinct key in front of the batch; 0 where there is none.
        """
        made = []
        for part, numbers, begin in zip(self._parts, operands, self._begin(held), strict=True):
            if part.kind is PartKind.COUNT and part.place is None:
                made.append(begin + keys.count())
            elif _is_plain(part, numbers, begin):
                made.append(fold(_UFUNCS[part.kind], keys.codes, numbers, begin))
            else:
                made.append(keys.last(_exact_sums(keys, numbers, begin)))
        return self._end(made)

    def running(self, keys: Keys, operands: Accumulators, held: Accumulators) -> Accumulators:
        """The accumulator of its key behind each row."""
        made = []
        for part, numbers, begin in zip(self._parts, operands, self._begin(held), strict=True):
            if _is_plain(part, numbers, begin):
                made.append(keys.running(_UFUNCS[part.kind], numbers, begin))
            else:
                made.append(_exact_sums(keys, numbers, begin))
        return self._end(made)

    def merged(self, held: Accumulators, places: Numbers, others: Accumulators) -> Accumulators:
        """Accumulators with others merged into them.

        Args:
            held: One of each key.
            places: The key, by its position, into whose accumulator each of the others goes.
            others: Of which nothing is left.
        """
        made = []
        for part, begin, numbers in zip(self._parts, self._begin(held), self._begin(others), strict=True):
            if _is_plain(part, numbers, begin):
                made.append(fold(_UFUNCS[part.kind], places, numbers, begin))
            else:
                made.append(_in_range(fold(np.add, places, numbers.astype(object), begin.astype(object))))
        return self._end(made)

    def _begin(self, held: Accumulators) -> list[Numbers]:
        return [
            np.where(held[part.counted] > 0, each, _neutral(part)) if _is_extreme(part) else each
            for part, each in zip(self._parts, held, strict=True)
        ]

    def _end(self, made: list[Numbers]) -> Accumulators:
        return tuple(
            [
                np.where(made[part.counted] > 0, each, each.dtype.type(0)) if _is_extreme(part) else each
                for part, each in zip(self._parts, made, strict=True)
            ]
        )

    def results(self, held: Accumulators) -> list[pa.Array]:
        """The columns of results, null where there is none."""
        columns = []
        for kind, number, counted in self._finals:
            numbers, counts = held[number], held[counted]
            if kind is AggregationKind.AVG:
                numbers = numbers.astype(np.float64) / np.maximum(counts, 1).astype(np.float64)
            none = counts == 0
            masked = kind is not AggregationKind.COUNT and bool(none.any())
            columns.append(pa.array(numbers, mask=none) if masked else pa.array(numbers))
        return columns


def _is_extreme(part: Part) -> bool:
    return part.kind in (PartKind.MIN, PartKind.MAX)


def _neutral(part: Part) -> Any:
    """What changes nothing."""
    if part.kind is PartKind.MIN:
        return np.iinfo(np.int64).max if part.integer else np.nan
    return np.iinfo(np.int64).min if part.integer else -np.inf


def _operand(part: Part, column: pa.Array, found: dict[int, tuple[Numbers | None, Numbers]]) -> Numbers:
    if part.place is None:
        return np.ones(len(column), np.int64)
    if part.place not in found:
        found[part.place] = _column(column if part.place == ITSELF else column.field(part.place), part)
    none, numbers = found[part.place]
    if part.kind is PartKind.COUNT:
        return np.ones(len(column), np.int64) if none is None else (~none).astype(np.int64)
    if not _is_extreme(part):
        return numbers
    if not part.integer:
        # Zero below zero is zero, so that it does not matter which of both comes first.
        numbers = numbers + 0.0
    return numbers if none is None else np.where(none, _neutral(part), numbers)


def _column(column: pa.Array, part: Part) -> tuple[Numbers | None, Numbers]:
    """Which values of a column are None, if any are, and its numbers, with 0 for these."""
    none = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return none, np.zeros(0)
    if none is not None:
        column = column.fill_null(0)
    numbers = column.to_numpy(zero_copy_only=False)
    wide = np.int64 if pa.types.is_integer(column.type) else np.float64
    return none, numbers.astype(wide, copy=False)


def _is_plain(part: Part, numbers: Numbers, begin: Numbers) -> bool:
    """Whether no sum can leave the range of 64 bits."""
    if part.kind is not PartKind.SUM or not part.integer or not len(numbers):
        return True
    most = max(abs(int(numbers.min())), abs(int(numbers.max()))) * len(numbers)
    return most + max(abs(int(begin.min())), abs(int(begin.max()))) < 1 << 63


def _exact_sums(keys: Keys, numbers: Numbers, begin: Numbers) -> Numbers:
    """Running sums as Python adds them up."""
    sums = keys.running(np.add, numbers.astype(object), begin.astype(object))
    return _in_range(sums)


def _in_range(sums: Numbers) -> Numbers:
    """Sums that Python made, if all are integers of 64 bits."""
    return np.fromiter([sum_in_range(each) for each in sums.tolist()], np.int64, len(sums))
