"""What `window(...).aggregate(total=sum_("amount"), n=count())` is written with. Beyond Flink.

The names end in an underscore where Python has a function of that name.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

__all__ = ["Aggregation", "AggregationKind", "avg", "count", "max_", "min_", "sum_"]


class AggregationKind(Enum):
    """What is computed of a column."""

    SUM = "sum_"
    COUNT = "count"
    MIN = "min_"
    MAX = "max_"
    AVG = "avg"


@dataclass(frozen=True, slots=True)
class Aggregation:
    """One result of a window: what is computed of which column; None is the element itself."""

    kind: AggregationKind
    column: str | int | None = None

    def __repr__(self) -> str:
        return f"{self.kind.value}({'' if self.column is None else repr(self.column)})"


def sum_(column: str | int | None = None) -> Aggregation:
    """The sum of a column of numbers: LONG of integers, DOUBLE of others. Without numbers it is None.

    Args:
        column: Name of a field of a row, `f0`, `f1`, ... or position in a tuple; None: elements are numbers themselves.
    """
    return _aggregation(AggregationKind.SUM, column)


def count(column: str | int | None = None) -> Aggregation:
    """How many elements there are, or how many whose column is not None."""
    return _aggregation(AggregationKind.COUNT, column)


def min_(column: str | int | None = None) -> Aggregation:
    """The smallest number of a column, of its type; NaN is larger than all others. Without numbers it is None."""
    return _aggregation(AggregationKind.MIN, column)


def max_(column: str | int | None = None) -> Aggregation:
    """The largest number of a column, of its type; NaN is larger than all others. Without numbers it is None."""
    return _aggregation(AggregationKind.MAX, column)


def avg(column: str | int | None = None) -> Aggregation:
    """The mean of a column of numbers, a DOUBLE. Without numbers it is None."""
    return _aggregation(AggregationKind.AVG, column)


def _aggregation(kind: AggregationKind, column: Any) -> Aggregation:
    if isinstance(column, bool) or not isinstance(column, str | int | None):
        raise TypeError(f"{kind.value}() needs the name (str) or position (int) of a column, not {column!r}.")
    return Aggregation(kind, column)
