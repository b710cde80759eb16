"""`KeyedStream`: a stream grouped by key, on which keyed state, timers and windows exist."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, cast

from tidemark.api.builder import callable_or, optional_type
from tidemark.api.field_key import FieldKey, field, key_function, key_name
from tidemark.api.functions import BatchProcessFunction, KeyedProcessFunction, KeySelector, ReduceFunction
from tidemark.api.graph import NodeKind, Ship
from tidemark.api.specs import OperatorKind, QueryableSpec, ReduceSpec
from tidemark.api.stateful_functions import (
    CountOne,
    CountOnes,
    FilterWithState,
    FlatMapWithState,
    MapWithState,
    MaxByFunction,
    MaxFunction,
    MinByFunction,
    MinFunction,
    PairWithKey,
    SumFunction,
)
from tidemark.api.stream import DataStream, KeyOf
from tidemark.errors import ConfigError, UnsupportedOperationException
from tidemark.state.descriptors import (
    AggregatingStateDescriptor,
    FoldingStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from tidemark.types.fields import field_names
from tidemark.types.typeinfo import DataclassTypeInfo, RowTypeInfo, TupleTypeInfo, TypeInformation, Types

if TYPE_CHECKING:
    from tidemark.api.windowed import WindowedStream
    from tidemark.api.windows.assigners import WindowAssigner

__all__ = ["KeyedStream", "QueryableStateStream"]

_QUERYABLE_KINDS = (
    ValueStateDescriptor,
    ReducingStateDescriptor,
    FoldingStateDescriptor,
    AggregatingStateDescriptor,
)


class QueryableStateStream:
    """The end of a stream whose newest value per key can be queried from outside."""

    def __init__(self, query_name: str, descriptor: StateDescriptor) -> None:
        """Used by the library only."""
        self._query_name = query_name
        self._descriptor = descriptor

    def get_queryable_state_name(self) -> str:
        """Name for clients."""
        return self._query_name

    def get_state_descriptor(self) -> StateDescriptor:
        """Descriptor of the published state."""
        return self._descriptor


class KeyedStream(DataStream):
    """A stream grouped by key. Its own partitioning and operator settings are fixed."""

    _keyed = True

    def __init__(
        self,
        stream: DataStream,
        key_selector: Callable[[Any], Any] | KeySelector,
        key_type: TypeInformation | None,
    ) -> None:
        """Used by the library only."""
        edges = [
            replace(
                edge,
                ship=Ship.HASH,
                key_selector=cast("KeyOf", key_selector),
                key_type=key_type,
                partitioner=None,
            )
            for edge in stream._edges
        ]
        super().__init__(stream._environment, edges, stream._type)
        self._origin = stream
        self._key_selector = key_selector
        self._key_type = key_type

    def get_key_type(self) -> TypeInformation:
        """Declared type of the key; pickled when none was declared."""
        return Types.PICKLED_BYTE_ARRAY() if self._key_type is None else self._key_type

    def process(self, func: Any, output_type: Any = None) -> DataStream:
        """Process elements and timers with keyed state.

        Raises:
            TypeError: `func` is no `KeyedProcessFunction`.
        """
        if not isinstance(func, KeyedProcessFunction):
            raise TypeError(f"process() of a KeyedStream needs a KeyedProcessFunction, not {func!r}.")
        return self._apply("KEYED PROCESS", OperatorKind.PROCESS, func, optional_type(output_type))

    def process_batch(self, func: BatchProcessFunction, output_type: Any = None) -> DataStream:
        """Process whole batches of elements and timers with keyed state by column. Beyond Flink.

        Args:
            func: Sees rows of many keys at once.
            output_type: Type of the rows it returns; None: that of this stream.

        Raises:
            TypeError: `func` is no `BatchProcessFunction`.
            ConfigError: This stream has no declared type.
        """
        if not isinstance(func, BatchProcessFunction):
            raise TypeError(f"process_batch() needs a BatchProcessFunction, not {func!r}.")
        return self._apply_to_batches("PROCESS BATCH", OperatorKind.PROCESS_BATCH, func, output_type)

    def reduce(self, func: Callable[[Any, Any], Any] | ReduceFunction) -> DataStream:
        """Combine the elements of each key; emits the running value for every element.

        Raises:
            TypeError: `func` is neither a callable nor a `ReduceFunction`.
        """
        callable_or(func, ReduceFunction, "reduce")
        return self._operator("Reduce", ReduceSpec(func), self._type)

    def sum(self, position_to_sum: int | str = 0) -> DataStream:
        """Running sum of a field, with the first element's other fields.

        Raises:
            TypeError: The position is neither int nor str, or the type has no such field.
        """
        self._check_position(position_to_sum, "sum")
        return self.reduce(SumFunction(position_to_sum)).name("Sum")

    def min(self, position_to_min: int | str = 0) -> DataStream:
        """Running minimum of a field, with the first element's other fields.

        Raises:
            TypeError: The position is neither int nor str, or the type has no such field.
        """
        self._check_position(position_to_min, "min")
        return self.reduce(MinFunction(position_to_min)).name("Min")

    def max(self, position_to_max: int | str = 0) -> DataStream:
        """Running maximum of a field, with the first element's other fields.

        Raises:
            TypeError: The position is neither int nor str, or the type has no such field.
        """
        self._check_position(position_to_max, "max")
        return self.reduce(MaxFunction(position_to_max)).name("Max")

    def count(self) -> DataStream:
        """Running count of the elements of each key: rows of the key and `count`, one for every element. Beyond Flink.

        The key has the name of the field by which `key_by(field(...))` chose it, else it is called `key`.
        """
        name = key_name(self._key_selector, self._type, ("count",))
        key_type = self.get_key_type()
        counted = Types.ROW_NAMED([name, "count"], [key_type, Types.LONG()])
        selector = self._key_selector
        at = selector.position_in(self._type, self._key_type) if isinstance(selector, FieldKey) else None
        if at is not None:
            ones = self._origin.map_batch(CountOnes(name, at), counted)
        else:
            ones = self._origin.map(CountOne(name, key_function(selector)), counted)
        return ones.key_by(field(name), key_type).sum("count").name("Count")

    def min_by(self, position_to_min_by: int | str = 0) -> DataStream:
        """Running element with the smallest field; the first one on ties.

        Raises:
            TypeError: The position is neither int nor str, or the type has no such field.
        """
        self._check_position(position_to_min_by, "min_by")
        return self.reduce(MinByFunction(position_to_min_by)).name("Min By")

    def max_by(self, position_to_max_by: int | str = 0) -> DataStream:
        """Running element with the largest field; the first one on ties.

        Raises:
            TypeError: The position is neither int nor str, or the type has no such field.
        """
        self._check_position(position_to_max_by, "max_by")
        return self.reduce(MaxByFunction(position_to_max_by)).name("Max By")

    def map_with_state(
        self,
        func: Callable[[Any, Any], tuple[Any, Any]],
        output_type: Any = None,
        state_type: Any = None,
    ) -> DataStream:
        """Emit the first of `func(value, state) -> (output, new_state)`; a new state of None clears it.

        Raises:
            TypeError: `func` cannot be called.
        """
        function = MapWithState(_two_arguments(func, "map_with_state"), optional_type(state_type))
        return self._apply("Map With State", OperatorKind.MAP, function, optional_type(output_type))

    def flat_map_with_state(
        self,
        func: Callable[[Any, Any], tuple[Any, Any]],
        output_type: Any = None,
        state_type: Any = None,
    ) -> DataStream:
        """Emit all of the first of `func(value, state) -> (iterable, new_state)`.

        Raises:
            TypeError: `func` cannot be called.
        """
        function = FlatMapWithState(_two_arguments(func, "flat_map_with_state"), optional_type(state_type))
        return self._apply("Flat Map With State", OperatorKind.FLAT_MAP, function, optional_type(output_type))

    def filter_with_state(
        self, func: Callable[[Any, Any], tuple[Any, Any]], state_type: Any = None
    ) -> DataStream:
        """Keep an element if the first of `func(value, state) -> (bool, new_state)` is true.

        Raises:
            TypeError: `func` cannot be called.
        """
        function = FilterWithState(_two_arguments(func, "filter_with_state"), optional_type(state_type))
        return self._apply("Filter With State", OperatorKind.FILTER, function, self._type)

    def window(self, window_assigner: WindowAssigner[Any, Any]) -> WindowedStream:
        """Group the elements of each key into windows.

        Raises:
            TypeError: Not a `WindowAssigner`.
        """
        from tidemark.api.windowed import WindowedStream

        return WindowedStream(self, window_assigner)

    def count_window(self, size: int, slide: int = 0) -> WindowedStream:
        """Windows of `size` elements per key, a new one every `slide` elements (0: they do not overlap)."""
        from tidemark.api.windows.counts import CountSlidingWindowAssigner, CountTumblingWindowAssigner

        if slide:
            return self.window(CountSlidingWindowAssigner.of(size, slide))
        return self.window(CountTumblingWindowAssigner.of(size))

    def as_queryable_state(
        self, queryable_state_name: str, state_descriptor: StateDescriptor | None = None
    ) -> QueryableStateStream:
        """Publish the elements of each key as state for outside queries; ends the stream.

        Raises:
            TypeError: A list or map descriptor.
            ConfigError: The descriptor has a time-to-live, or the name is empty.
            IllegalStateError: The descriptor is already queryable.
        """
        if state_descriptor is None:
            state_descriptor = ValueStateDescriptor(queryable_state_name, self.get_type())
        if not isinstance(state_descriptor, _QUERYABLE_KINDS):
            raise TypeError(
                "as_queryable_state() needs a value, reducing, aggregating or folding descriptor, "
                f"not {state_descriptor!r}: other kinds would grow for ever."
            )
        state_descriptor.set_queryable(queryable_state_name)
        spec = QueryableSpec(state_descriptor, queryable_state_name)
        builder = self._environment._builder
        node = builder.add(NodeKind.OPERATOR, f"Queryable state: {queryable_state_name}", spec, [self._edges])
        builder.sinks.append(node.id)
        return QueryableStateStream(queryable_state_name, state_descriptor)

    def _values(self) -> DataStream:
        return self._origin

    def _collected(self) -> DataStream:
        key_of = self._key_selector
        function = PairWithKey(key_function(key_of))
        return self._origin._apply("Pair with key", OperatorKind.MAP, function, None)

    def _check_position(self, position: Any, method: str) -> None:
        if isinstance(position, bool) or not isinstance(position, int | str):
            raise TypeError(f"{method}() needs a field position (int) or name (str), not {position!r}.")
        stream_type = self._type
        if stream_type is None or stream_type == Types.PICKLED_BYTE_ARRAY():
            return
        if isinstance(stream_type, RowTypeInfo | TupleTypeInfo):
            names = field_names(stream_type)
        elif isinstance(stream_type, DataclassTypeInfo):
            names = [field.name for field in stream_type.fields]
        elif position == 0:
            return
        else:
            raise TypeError(f"{method}() on a stream of {stream_type} allows position 0 only.")
        if isinstance(position, str) and position not in names:
            raise TypeError(f"{method}(): {stream_type} has no field {position!r}.")
        if isinstance(position, int) and not -len(names) <= position < len(names):
            raise ConfigError(f"{method}(): {stream_type} has no field number {position}.")

    def _partitioned(self, ship: Ship) -> NoReturn:
        self._fixed(ship.name.lower())

    def partition_custom(self, partitioner: Any, key_selector: Any) -> NoReturn:
        """Not on a keyed stream: its partitioning is fixed."""
        self._fixed("partition_custom")

    def cache(self) -> NoReturn:
        """Not on a keyed stream; cache the stream before `key_by`."""
        self._fixed("cache")

    def _operator_node(self, method: str) -> NoReturn:
        self._fixed(method)

    def _fixed(self, method: str) -> NoReturn:
        raise UnsupportedOperationException(
            f"{method}() does not exist on a KeyedStream: its partitioning is fixed and it is no operator of "
            "its own. Call it before key_by() or on the operator that follows."
        )


def _two_arguments(function: Any, method: str) -> Callable[[Any, Any], tuple[Any, Any]]:
    if not callable(function):
        raise TypeError(f"{method}() needs a callable of (value, state), not {function!r}.")
    return function  # type: ignore[no-any-return]
