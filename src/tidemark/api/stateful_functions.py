"""The functions behind the shortcuts of `KeyedStream`: `map_with_state` and its kin, rolling aggregates."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from tidemark.api.functions.base import RuntimeContext
from tidemark.api.functions.basic import FilterFunction, FlatMapFunction, MapFunction, ReduceFunction
from tidemark.state.descriptors import ValueStateDescriptor
from tidemark.state.primitives import ValueState
from tidemark.types.row import Row
from tidemark.types.typeinfo import TypeInformation, Types

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "CountOne",
    "CountOnes",
    "FilterWithState",
    "FlatMapWithState",
    "MapWithState",
    "MaxByFunction",
    "MaxFunction",
    "MinByFunction",
    "MinFunction",
    "PairWithKey",
    "Project",
    "SumFunction",
]

Position = int | str
STATE_NAME = "state"


class _WithState:
    """One value per key, shown to a function of two arguments and replaced by the second of its results."""

    def __init__(self, function: Callable[[Any, Any], tuple[Any, Any]], state_type: TypeInformation | None):
        self._function = function
        self._descriptor = ValueStateDescriptor(STATE_NAME, state_type or Types.PICKLED_BYTE_ARRAY())
        self._state: ValueState[Any]

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get the state."""
        self._state = runtime_context.get_state(self._descriptor)

    def _call(self, value: Any) -> Any:
        output, state = self._function(value, self._state.value())
        self._state.update(state)
        return output


class MapWithState(_WithState, MapFunction):
    """Behind `map_with_state`."""

    def map(self, value: Any) -> Any:
        """The output."""
        return self._call(value)


class FlatMapWithState(_WithState, FlatMapFunction):
    """Behind `flat_map_with_state`."""

    def flat_map(self, value: Any) -> Iterable[Any] | None:
        """The outputs."""
        outputs: Iterable[Any] | None = self._call(value)
        return outputs


class FilterWithState(_WithState, FilterFunction):
    """Behind `filter_with_state`."""

    def filter(self, value: Any) -> bool:
        """Whether to keep the element."""
        return bool(self._call(value))


class _FieldReduce(ReduceFunction):
    """A reduce that looks at one field (or, of a plain value, at the value itself)."""

    def __init__(self, position: Position) -> None:
        self._position = position

    def _field(self, value: Any) -> Any:
        return field_of(value, self._position)


class SumFunction(_FieldReduce):
    """Adds up a field and keeps the first element's other fields."""

    def reduce(self, value1: Any, value2: Any) -> Any:
        """The first element with the sum."""
        return with_field(value1, self._position, self._field(value1) + self._field(value2))


class MinFunction(_FieldReduce):
    """Keeps the smallest value of a field and the first element's other fields."""

    def reduce(self, value1: Any, value2: Any) -> Any:
        """The first element with the minimum."""
        return with_field(value1, self._position, min(self._field(value1), self._field(value2)))


class MaxFunction(_FieldReduce):
    """Keeps the largest value of a field and the first element's other fields."""

    def reduce(self, value1: Any, value2: Any) -> Any:
        """The first element with the maximum."""
        return with_field(value1, self._position, max(self._field(value1), self._field(value2)))


class MinByFunction(_FieldReduce):
    """Keeps the element whose field is smallest, the first on ties."""

    def reduce(self, value1: Any, value2: Any) -> Any:
        """The winner."""
        return value2 if self._field(value2) < self._field(value1) else value1


class MaxByFunction(_FieldReduce):
    """Keeps the element whose field is largest, the first on ties."""

    def reduce(self, value1: Any, value2: Any) -> Any:
        """The winner."""
        return value2 if self._field(value2) > self._field(value1) else value1


class PairWithKey(MapFunction):
    """Turns an element into `Row(key, element)`."""

    def __init__(self, key_of: Callable[[Any], Any]) -> None:
        self._key_of = key_of

    def map(self, value: Any) -> Row:
        """The pair."""
        return Row(self._key_of(value), value)


class CountOne(MapFunction):
    """Turns an element into a row of its key and 1."""

    def __init__(self, name: str, key_of: Callable[[Any], Any]) -> None:
        self._names = [name, "count"]
        self._key_of = key_of

    def map(self, value: Any) -> Row:
        """The row."""
        row = Row(self._key_of(value), 1)
        row.set_field_names(self._names)
        return row


class CountOnes:
    """The same for a batch whose keys are one of its columns."""

    def __init__(self, name: str, at: int) -> None:
        self._name = name
        self._at = at

    def __call__(self, batch: pa.RecordBatch) -> Any:
        """Columns of the keys and of as many ones."""
        import numpy as np
        import pyarrow as pa

        return {self._name: batch.column(self._at), "count": pa.array(np.ones(batch.num_rows, np.int64))}


class Project(MapFunction):
    """Keeps some fields of a tuple."""

    def __init__(self, indexes: tuple[int, ...]) -> None:
        self._indexes = indexes

    def map(self, value: Any) -> tuple[Any, ...]:
        """The fields, as a tuple."""
        return tuple([value[index] for index in self._indexes])


def field_of(value: Any, position: Position) -> Any:
    """A field of a tuple, list, row, dict or dataclass; a plain value is its own field 0.

    Raises:
        TypeError: A plain value has no other field.
    """
    if isinstance(value, Row | dict):
        return value[position]
    if isinstance(value, tuple | list):
        return value[_index(value, position)]
    if dataclasses.is_dataclass(value):
        return getattr(value, _attribute(value, position))
    if position != 0:
        raise TypeError(f"{value!r} has no fields, so only position 0 is possible, not {position!r}.")
    return value


def with_field(value: Any, position: Position, field: Any) -> Any:
    """A copy of `value` with one field replaced; a plain value is replaced as a whole."""
    if isinstance(value, Row | dict):
        copied = copy.copy(value)
        copied[position] = field
        return copied
    if isinstance(value, tuple | list):
        changed = list(value)
        changed[_index(value, position)] = field
        if isinstance(value, list):
            return changed
        make = getattr(value, "_make", tuple)
        return make(changed)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(value, **{_attribute(value, position): field})
    return field


def _index(value: tuple[Any, ...] | list[Any], position: Position) -> int:
    """Index of a field; the fields of tuples without names are called f0, f1, ..."""
    if isinstance(position, int):
        return position
    names: tuple[str, ...] = getattr(value, "_fields", None) or tuple([f"f{n}" for n in range(len(value))])
    if position not in names:
        raise TypeError(f"{value!r} has no field {position!r}.")
    return names.index(position)


def _attribute(value: Any, position: Position) -> str:
    return position if isinstance(position, str) else dataclasses.fields(value)[position].name
