"""Aggregations by column as one aggregate function: its accumulator, its results, and its form for single records.

The accumulator is a tuple of numbers, its *parts*: a count of what is not None for each column that may hold None (and
of all elements where one is needed), a sum, a smallest and a largest number. Aggregations share parts: `avg` is the
sum and the count of its column. A sum, smallest or largest number means nothing as long as its count is 0.

How operators compute the same on columns is in `tidemark.operators.column_aggregation`; both must say the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tidemark.api.functions import AggregateFunction, AllWindowFunction, WindowFunction
from tidemark.api.windows.aggregations import Aggregation, AggregationKind
from tidemark.errors import ConfigError, SerializationError
from tidemark.types.fields import INTEGERS, NUMBERS, field_names, field_place
from tidemark.types.row import row_of
from tidemark.types.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation, Types

__all__ = ["ITSELF", "AllWindowRow", "ColumnAggregate", "Part", "PartKind", "WindowRow", "sum_in_range"]

ITSELF = -1
"""Place of a column that is the element itself."""


class PartKind(Enum):
    """What a part of the accumulator is."""

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"


@dataclass(frozen=True, slots=True)
class Part:
    """One number of the accumulator.

    Attributes:
        kind: What it is.
        place: Of which field; None for a count of all elements.
        integer: Whether it is a LONG, else a DOUBLE.
        counted: Which part says of how many numbers it is.
    """

    kind: PartKind
    place: int | None
    integer: bool = True
    counted: int = -1


class ColumnAggregate(AggregateFunction):
    """Several aggregations at once.

    Attributes:
        names: Of the results.
        result_types: Of the results.
        parts: What the accumulator consists of.
        finals: For each result its kind and the parts it is made of: the number, and the count.
    """

    def __init__(self, aggregations: Mapping[str, Any], element: TypeInformation | None) -> None:
        """Find the columns in elements of a type.

        Raises:
            TypeError: Something is no aggregation.
            ConfigError: The type is not declared, or has no such column, or one that is no number.
        """
        for name, each in aggregations.items():
            if not isinstance(each, Aggregation):
                raise TypeError(
                    f"aggregate({name}=...) needs sum_(), count(), min_(), max_() or avg(), not {each!r}."
                )
        if element is None or element == Types.PICKLED_BYTE_ARRAY():
            raise ConfigError(
                "aggregate() by column needs elements of a declared type: type_info of the source, output_type of the "
                "operator in front of the window."
            )
        self.names = list(aggregations)
        self._element = element
        self.parts: list[Part] = []
        self.result_types: list[TypeInformation] = []
        self.finals: list[tuple[AggregationKind, int, int]] = []
        for each in aggregations.values():
            self._add(each)
        self.accumulator_type = Types.TUPLE(
            [Types.LONG() if part.integer else Types.DOUBLE() for part in self.parts]
        )

    def _add(self, aggregation: Aggregation) -> None:
        kind = aggregation.kind
        place, column_type = self._column(aggregation)
        nullable = place not in (None, ITSELF) and (
            isinstance(self._element, RowTypeInfo) or column_type not in NUMBERS
        )
        counted = self._part(Part(PartKind.COUNT, place if nullable else None))
        if kind is AggregationKind.COUNT:
            self.result_types.append(Types.LONG())
            self.finals.append((kind, counted, counted))
            return
        if column_type not in NUMBERS:
            raise ConfigError(
                f"{aggregation!r} needs a column of numbers, not of {column_type}. Use aggregate() with an "
                "AggregateFunction for others."
            )
        integer = column_type in INTEGERS
        part = {AggregationKind.MIN: PartKind.MIN, AggregationKind.MAX: PartKind.MAX}.get(kind, PartKind.SUM)
        number = self._part(Part(part, place, integer, counted))
        result: TypeInformation = Types.LONG() if integer else Types.DOUBLE()
        if kind is AggregationKind.AVG:
            result = Types.DOUBLE()
        elif kind is not AggregationKind.SUM:
            assert column_type is not None
            result = column_type
        self.result_types.append(result)
        self.finals.append((kind, number, counted))

    def _part(self, part: Part) -> int:
        if part not in self.parts:
            self.parts.append(part)
        return self.parts.index(part)

    def _column(self, aggregation: Aggregation) -> tuple[int | None, TypeInformation | None]:
        """Place and type of a column; a count needs none."""
        column, element = aggregation.column, self._element
        if column is None:
            if aggregation.kind is AggregationKind.COUNT:
                return None, None
            if element not in NUMBERS:
                raise ConfigError(
                    f"{aggregation!r} is for streams of numbers; say which column of {element} you mean."
                )
            return ITSELF, element
        if not isinstance(element, RowTypeInfo | TupleTypeInfo):
            raise ConfigError(f"{aggregation!r}: elements of {element} have no columns.")
        place = field_place(element, column)
        if place is None:
            raise ConfigError(
                f"{aggregation!r}: {element} has no such column; it has {', '.join(field_names(element))}."
            )
        return place, element.get_field_types()[place]

    def create_accumulator(self) -> tuple[Any, ...]:
        """Nothing counted."""
        return tuple([0 if part.integer else 0.0 for part in self.parts])

    def add(self, value: Any, accumulator: tuple[Any, ...]) -> tuple[Any, ...]:
        """One element more."""
        added = []
        for part, held in zip(self.parts, accumulator, strict=True):
            number = value if part.place == ITSELF else None if part.place is None else value[part.place]
            if part.kind is PartKind.COUNT:
                added.append(held + (part.place is None or number is not None))
            else:
                added.append(held if number is None else _combined(part, accumulator, held, number))
        return tuple(added)

    def merge(self, acc_a: tuple[Any, ...], acc_b: tuple[Any, ...]) -> tuple[Any, ...]:
        """The elements of both."""
        return tuple(
            [
                left + right
                if part.kind is PartKind.COUNT
                else left
                if not acc_b[part.counted]
                else _combined(part, acc_a, left, right)
                for part, left, right in zip(self.parts, acc_a, acc_b, strict=True)
            ]
        )

    def get_result(self, accumulator: tuple[Any, ...]) -> tuple[Any, ...]:
        """The results, in the order of their names."""
        results: list[Any] = []
        for kind, number, counted in self.finals:
            n = accumulator[counted]
            if kind is AggregationKind.COUNT:
                results.append(n)
            elif not n:
                results.append(None)
            elif kind is AggregationKind.AVG:
                results.append(float(accumulator[number]) / float(n))
            else:
                results.append(accumulator[number])
        return tuple(results)


def _combined(part: Part, accumulator: tuple[Any, ...], held: Any, number: Any) -> Any:
    if part.kind is PartKind.SUM:
        return sum_in_range(held + number) if part.integer else held + number
    # The first one counts as it is; zero below zero is zero, so that it does not matter which of both came first.
    number = number if part.integer else number + 0.0
    if not accumulator[part.counted]:
        return number
    if part.kind is PartKind.MIN:
        return number if number < held or held != held else held
    return number if number > held or number != number else held


def sum_in_range(total: int) -> int:
    """A sum, if it is a LONG.

    Raises:
        SerializationError: It is too large for one.
    """
    if not -(1 << 63) <= total < 1 << 63:
        raise SerializationError(f"A sum in a window is {total}, which is no LONG. Sum up a DOUBLE column.")
    return total


class WindowRow(WindowFunction[Any, Any, Any, Any]):
    """The row of a window: the key, its bounds, the results."""

    def __init__(self, row_type: RowTypeInfo) -> None:
        self.row_type = row_type
        self._names = tuple(row_type.get_field_names())

    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterator[Any]:
        """One row."""
        for results in inputs:
            yield row_of([key, window.start, window.end, *results], self._names)


class AllWindowRow(AllWindowFunction[Any, Any, Any]):
    """The row of a window of a stream without keys."""

    def __init__(self, row_type: RowTypeInfo) -> None:
        self.row_type = row_type
        self._names = tuple(row_type.get_field_names())

    def apply(self, window: Any, inputs: Iterable[Any]) -> Iterator[Any]:
        """One row."""
        for results in inputs:
            yield row_of([window.start, window.end, *results], self._names)
