"""`WindowedStream` and `AllWindowedStream`: what is done with the content of windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

from tidemark.api.builder import callable_or, optional_type
from tidemark.api.field_key import key_name
from tidemark.api.functions import (
    AggregateFunction,
    AllWindowFunction,
    NullByteKeySelector,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    ReduceFunction,
    WindowFunction,
)
from tidemark.api.keyed_stream import KeyedStream
from tidemark.api.output_tag import OutputTag
from tidemark.api.specs import WindowSpec
from tidemark.api.stream import DataStream
from tidemark.api.windows.aggregations import Aggregation
from tidemark.api.windows.assigners import MergingWindowAssigner, WindowAssigner
from tidemark.api.windows.column_aggregate import AllWindowRow, ColumnAggregate, WindowRow
from tidemark.api.windows.triggers import Trigger
from tidemark.errors import ConfigError
from tidemark.state.namespace import NamespaceKind
from tidemark.types.time import TimeLike, to_millis
from tidemark.types.typeinfo import TypeInformation, Types

if TYPE_CHECKING:
    from tidemark.api.environment import StreamExecutionEnvironment

__all__ = ["AllWindowedStream", "WindowedStream"]


class _Windowed:
    """What windows of keyed and of other streams have in common."""

    _apply_class: type = WindowFunction
    _process_class: type = ProcessWindowFunction
    _all_windows = False

    def __init__(self, keyed_stream: KeyedStream, window_assigner: WindowAssigner[Any, Any]) -> None:
        if not isinstance(window_assigner, WindowAssigner):
            raise TypeError(f"Expected a WindowAssigner, not {window_assigner!r}.")
        self._keyed_stream = keyed_stream
        self._assigner = window_assigner
        self._trigger = window_assigner.get_default_trigger(keyed_stream._environment)
        self._allowed_lateness = 0
        self._late_tag: OutputTag | None = None
        self._check_merging(self._trigger)

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """The environment of the stream."""
        return self._keyed_stream._environment

    def get_input_type(self) -> TypeInformation:
        """Declared type of the elements."""
        return self._keyed_stream.get_type()

    def trigger(self, trigger: Trigger[Any, Any]) -> Self:
        """Fire windows when this trigger says so.

        Raises:
            TypeError: Not a `Trigger`, or one that cannot follow merging windows.
        """
        if not isinstance(trigger, Trigger):
            raise TypeError(f"trigger() needs a Trigger, not {trigger!r}.")
        self._check_merging(trigger)
        self._trigger = trigger
        return self

    def allowed_lateness(self, time_ms: TimeLike) -> Self:
        """Keep windows for that long after the watermark has passed their end.

        Raises:
            ConfigError: Negative.
        """
        lateness = to_millis(time_ms, "allowed lateness")
        if lateness < 0:
            raise ConfigError(f"The allowed lateness must not be negative, got {lateness} ms.")
        self._allowed_lateness = lateness
        return self

    def side_output_late_data(self, output_tag: OutputTag) -> Self:
        """Send elements that come too late to this side output instead of dropping them.

        Raises:
            TypeError: Not an `OutputTag`.
        """
        if not isinstance(output_tag, OutputTag):
            raise TypeError(f"side_output_late_data() needs an OutputTag, not {output_tag!r}.")
        self._late_tag = output_tag
        return self

    def reduce(
        self,
        reduce_function: Callable[[Any, Any], Any] | ReduceFunction,
        window_function: Any = None,
        output_type: Any = None,
    ) -> DataStream:
        """Combine the elements of a window as they come; a window function may finish the result.

        Raises:
            TypeError: A function is of the wrong kind.
        """
        callable_or(reduce_function, ReduceFunction, "reduce")
        declared = optional_type(output_type)
        if window_function is None and declared is None:
            declared = self._keyed_stream._type
        return self._window(window_function, declared, reduce=reduce_function)

    def aggregate(
        self,
        aggregate_function: AggregateFunction | None = None,
        window_function: Any = None,
        accumulator_type: Any = None,
        output_type: Any = None,
        **aggregations: Aggregation,
    ) -> DataStream:
        """Aggregate the elements of a window as they come; a window function may finish the result.

        Instead of a function there may be aggregations by column, several at once, which is beyond Flink:
        `aggregate(total=sum_("amount"), n=count())`. Elements need a declared type, a row, a tuple or a number, and
        windows need a start and an end. The result is a row of the key, `window_start` and `window_end` (LONG,
        milliseconds) and what was named. The key has the name of the field by which `key_by(field(...))` chose it,
        else it is called `key`; windows of streams without keys have none. Where windows fire at their end only, and
        state lies in columns, batches are aggregated as columns.

        Raises:
            TypeError: A function is of the wrong kind, or both a function and aggregations are given.
            ConfigError: An aggregation does not fit the type of the elements, or its name is taken.
        """
        if aggregations:
            given = (aggregate_function, window_function, accumulator_type, output_type)
            if any([each is not None for each in given]):
                raise TypeError(
                    "aggregate() takes an AggregateFunction with its types or aggregations by column, not both; nor "
                    "can results be named like its other arguments."
                )
            return self._aggregate_columns(aggregations)
        if not isinstance(aggregate_function, AggregateFunction):
            raise TypeError(f"aggregate() needs an AggregateFunction, not {aggregate_function!r}.")
        return self._window(
            window_function,
            optional_type(output_type),
            aggregate=aggregate_function,
            accumulator_type=optional_type(accumulator_type),
        )

    def _aggregate_columns(self, aggregations: Mapping[str, Aggregation]) -> DataStream:
        stream = self._keyed_stream
        if self._assigner.namespace_kind() is not NamespaceKind.WINDOW:
            raise ConfigError(
                f"aggregate() by column needs windows with a start and an end, which {type(self._assigner).__name__} "
                "does not have. Use an AggregateFunction."
            )
        function = ColumnAggregate(aggregations, stream._type)
        names = ["window_start", "window_end", *function.names]
        types: list[TypeInformation] = [Types.LONG(), Types.LONG(), *function.result_types]
        row: Any = AllWindowRow
        if not self._all_windows:
            names.insert(0, key_name(stream._key_selector, stream._type))
            types.insert(0, stream.get_key_type())
            row = WindowRow
        if len(set(names)) != len(names):
            raise ConfigError(
                f"The results of aggregate() would have the columns {', '.join(names)}: two have one name. Name a "
                "result otherwise."
            )
        row_type = Types.ROW_NAMED(names, types)
        return self._window(
            row(row_type),
            row_type,
            aggregate=function,
            accumulator_type=function.accumulator_type,
        )

    def apply(self, window_function: Any, output_type: Any = None) -> DataStream:
        """Evaluate the whole content of a window.

        Raises:
            TypeError: Not a `WindowFunction` (or `AllWindowFunction` on a stream that is not keyed).
        """
        if not isinstance(window_function, self._apply_class):
            raise TypeError(f"apply() needs a {self._apply_class.__name__}, not {window_function!r}.")
        return self._window(window_function, optional_type(output_type))

    def process(self, process_window_function: Any, output_type: Any = None) -> DataStream:
        """Evaluate the whole content of a window, with a context.

        Raises:
            TypeError: Not a `ProcessWindowFunction` (or `ProcessAllWindowFunction`).
        """
        if not isinstance(process_window_function, self._process_class):
            raise TypeError(
                f"process() needs a {self._process_class.__name__}, not {process_window_function!r}."
            )
        return self._window(process_window_function, optional_type(output_type))

    def _check_merging(self, trigger: Trigger[Any, Any]) -> None:
        if isinstance(self._assigner, MergingWindowAssigner) and not trigger.can_merge():
            raise TypeError(
                f"{type(trigger).__name__} cannot follow merging windows such as those of "
                f"{type(self._assigner).__name__}; its can_merge() is False."
            )

    def _window(
        self, window_function: Any, output_type: TypeInformation | None, **pre_aggregation: Any
    ) -> DataStream:
        stream = self._keyed_stream
        spec = WindowSpec(
            self._assigner,
            self._trigger,
            self._allowed_lateness,
            self._late_tag,
            window_function=window_function,
            function_kind=self._function_kind(window_function),
            all_windows=self._all_windows,
            element_type=stream._type,
            **pre_aggregation,
        )
        result = stream._operator(type(self._assigner).__name__, spec, output_type)
        node = result._operator_node("window")
        if self._late_tag is not None:
            node.side_types[self._late_tag.tag_id] = self._late_tag.type_info or stream._type
        if self._all_windows:
            result.force_non_parallel()
        return result

    def _function_kind(self, function: Any) -> str | None:
        if function is None:
            return None
        if isinstance(function, self._apply_class):
            return "apply"
        if isinstance(function, self._process_class):
            return "process"
        raise TypeError(
            f"window_function must be a {self._apply_class.__name__} or a {self._process_class.__name__}, "
            f"not {function!r}."
        )


class WindowedStream(_Windowed):
    """The elements of each key, grouped into windows."""


class AllWindowedStream(_Windowed):
    """All elements, grouped into windows; runs with parallelism 1."""

    _apply_class = AllWindowFunction
    _process_class = ProcessAllWindowFunction
    _all_windows = True

    def __init__(self, data_stream: DataStream, window_assigner: WindowAssigner[Any, Any]) -> None:
        """Used by the library only; all elements get the same key."""
        super().__init__(KeyedStream(data_stream, NullByteKeySelector(), Types.BYTE()), window_assigner)
