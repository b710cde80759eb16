"""`DataStream`: a stream of elements that is not keyed. Methods add nodes to the graph and run nothing.

A stream is a set of edges that do not lead anywhere yet. Partitioning and union change the edges; only
transformations add a node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from tidemark.api.builder import callable_or, optional_type
from tidemark.api.functions import (
    DeltaFunction,
    FilterFunction,
    FlatMapFunction,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessFunction,
)
from tidemark.api.graph import Edge, Node, NodeKind, Ship
from tidemark.api.operator_settings import OperatorSettings
from tidemark.api.output_tag import OutputTag
from tidemark.api.sink import SinkMethods
from tidemark.api.specs import (
    BatchSpec,
    FunctionSpec,
    OperatorKind,
    OperatorSpec,
    SourceSpec,
    TimestampsSpec,
    TransformSpec,
)
from tidemark.api.stateful_functions import Project
from tidemark.api.stream_operator import OneInputStreamOperator
from tidemark.api.watermarks import WatermarkStrategy
from tidemark.errors import ConfigError, UnsupportedOperationException
from tidemark.state.descriptors import MapStateDescriptor
from tidemark.types.time import TimeLike, to_millis
from tidemark.types.typeinfo import TupleTypeInfo, TypeInformation, Types

if TYPE_CHECKING:
    from tidemark.api.cache import CachedDataStream
    from tidemark.api.environment import StreamExecutionEnvironment
    from tidemark.api.execution_config import ExecutionConfig
    from tidemark.api.iteration import IterativeStream
    from tidemark.api.keyed_stream import KeyedStream
    from tidemark.api.windowed import AllWindowedStream
    from tidemark.api.windows.assigners import WindowAssigner

__all__ = ["DataStream", "KeyOf"]

KeyOf = Callable[[Any], Any]
"""How an edge holds a key selector; whoever calls it looks for a `KeySelector` first."""


class DataStream(OperatorSettings, SinkMethods):
    """Elements of one type, spread over parallel subtasks."""

    _keyed = False

    def __init__(
        self,
        environment: StreamExecutionEnvironment,
        edges: Sequence[Edge],
        type_info: TypeInformation | None,
        node: Node | None = None,
    ) -> None:
        """Used by the library only; `node` is the operator whose main output this is, if it is one."""
        self._environment = environment
        self._edges = tuple(edges)
        self._type = type_info
        self._node = node

    def __repr__(self) -> str:
        nodes = self._environment._builder.graph.nodes
        names = " + ".join(nodes[edge.source].name for edge in self._edges)
        uid = "" if self._node is None or self._node.uid is None else f", uid={self._node.uid!r}"
        return f"<{type(self).__name__} of '{names}', {self.get_type()}{uid}>"

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """The environment the stream belongs to."""
        return self._environment

    def get_execution_config(self) -> ExecutionConfig:
        """The live execution settings of the environment."""
        return self._environment.get_config()

    def get_type(self) -> TypeInformation:
        """Declared type; pickled when none was declared."""
        return Types.PICKLED_BYTE_ARRAY() if self._type is None else self._type

    def map(self, func: Callable[[Any], Any] | MapFunction, output_type: Any = None) -> DataStream:
        """Emit one element per element.

        Raises:
            TypeError: `func` is neither a callable nor a `MapFunction`.
        """
        callable_or(func, MapFunction, "map")
        return self._apply("Map", OperatorKind.MAP, func, optional_type(output_type))

    def flat_map(self, func: Callable[[Any], Any] | FlatMapFunction, output_type: Any = None) -> DataStream:
        """Emit any number of elements per element.

        Raises:
            TypeError: `func` is neither a callable nor a `FlatMapFunction`.
        """
        callable_or(func, FlatMapFunction, "flat_map")
        return self._apply("Flat Map", OperatorKind.FLAT_MAP, func, optional_type(output_type))

    def filter(self, func: Callable[[Any], Any] | FilterFunction) -> DataStream:
        """Keep the elements for which `func` answers with something true; it must not change them.

        Raises:
            TypeError: `func` is neither a callable nor a `FilterFunction`.
        """
        callable_or(func, FilterFunction, "filter")
        return self._apply("Filter", OperatorKind.FILTER, func, self._type)

    def map_batch(self, func: Any, output_type: Any = None) -> DataStream:
        """Make rows of rows, a batch at a time. Beyond Flink.

        Args:
            func: A callable from a `pyarrow.RecordBatch` to a record batch, a table, a dict of arrays or None, or a
                dict from column names to `pyarrow.compute` expressions. As many rows as came in keep their timestamps,
                otherwise rows have none.
            output_type: Type of the rows; None: that of this stream.

        Raises:
            TypeError: `func` is neither a callable nor a dict of expressions.
            ConfigError: This stream has no declared type.
        """
        if isinstance(func, Mapping):
            if not func or not all([_is_expression(each) for each in func.values()]):
                raise TypeError(
                    "map_batch() needs a callable, or a dict from names to pyarrow.compute expressions."
                )
            func = dict(func)
        elif not callable(func):
            raise TypeError(f"map_batch() needs a callable, or a dict of expressions, not {func!r}.")
        return self._values()._apply_to_batches("Map Batch", OperatorKind.MAP_BATCH, func, output_type)

    def filter_batch(self, func: Any) -> DataStream:
        """Keep some rows of each batch. Beyond Flink.

        Args:
            func: A callable from a `pyarrow.RecordBatch` to a boolean array with a value per row, or one
                `pyarrow.compute` expression; rows with a null are dropped.

        Raises:
            TypeError: `func` is neither a callable nor an expression.
            ConfigError: This stream has no declared type.
        """
        if not callable(func) and not _is_expression(func):
            raise TypeError(f"filter_batch() needs a callable or a pyarrow.compute expression, not {func!r}.")
        return self._values()._apply_to_batches("Filter Batch", OperatorKind.FILTER_BATCH, func, None)

    def process(self, func: Any, output_type: Any = None) -> DataStream:
        """Process elements with a context.

        Raises:
            TypeError: `func` is no `ProcessFunction`.
        """
        if not isinstance(func, ProcessFunction):
            raise TypeError(f"process() of a DataStream needs a ProcessFunction, not {func!r}.")
        return self._apply("PROCESS", OperatorKind.PROCESS, func, optional_type(output_type))

    def transform(self, operator_name: str, output_type: Any, operator: OneInputStreamOperator) -> DataStream:
        """Process elements with an operator of one's own, which sees watermarks and may keep raw state.

        Raises:
            TypeError: `operator` is no `OneInputStreamOperator`.
        """
        if not isinstance(operator, OneInputStreamOperator):
            raise TypeError(f"transform() of a stream needs a OneInputStreamOperator, not {operator!r}.")
        return self._operator(operator_name, TransformSpec(operator, self._keyed), optional_type(output_type))

    def key_by(self, key_selector: Callable[[Any], Any] | KeySelector, key_type: Any = None) -> KeyedStream:
        """Group by key; two elements share a key exactly when their keys serialise to the same bytes.

        Raises:
            TypeError: `key_selector` is neither a callable nor a `KeySelector`.
        """
        from tidemark.api.keyed_stream import KeyedStream

        callable_or(key_selector, KeySelector, "key_by")
        return KeyedStream(self._values(), key_selector, optional_type(key_type))

    def connect(self, ds: Any) -> Any:
        """Connect with another stream, or with a `BroadcastStream`, to process both in one function.

        Raises:
            TypeError: `ds` is neither a `DataStream` nor a `BroadcastStream`.
        """
        from tidemark.api.connected import BroadcastConnectedStream, BroadcastStream, ConnectedStreams

        if isinstance(ds, BroadcastStream):
            return BroadcastConnectedStream(self, ds)
        if isinstance(ds, DataStream):
            return ConnectedStreams(self, ds)
        raise TypeError(f"connect() needs a DataStream or a BroadcastStream, not {ds!r}.")

    def union(self, *streams: DataStream) -> DataStream:
        """All elements of this stream and the others, which must have the same type.

        Raises:
            TypeError: An argument is no stream, or has another declared type.
            ConfigError: An argument is a stream of another environment.
        """
        edges = list(self._values()._edges)
        for stream in streams:
            if not isinstance(stream, DataStream):
                raise TypeError(f"union() needs DataStreams, not {stream!r}.")
            if stream._environment is not self._environment:
                raise ConfigError("Streams of different environments cannot be united.")
            if self._type is not None and stream._type is not None and self._type != stream._type:
                raise TypeError(f"union() needs streams of one type, not {self._type} and {stream._type}.")
            edges += stream._values()._edges
        return DataStream(self._environment, edges, self._type)

    def shuffle(self) -> DataStream:
        """Send each element to a random subtask."""
        return self._partitioned(Ship.SHUFFLE)

    def rebalance(self) -> DataStream:
        """Send elements to subtasks in turn."""
        return self._partitioned(Ship.REBALANCE)

    def rescale(self) -> DataStream:
        """Send elements to nearby subtasks in turn."""
        return self._partitioned(Ship.RESCALE)

    def forward(self) -> DataStream:
        """Send elements to the subtask of the same number; needs equal parallelism."""
        return self._partitioned(Ship.FORWARD)

    def broadcast(
        self, broadcast_state_descriptor: MapStateDescriptor | None = None, *others: MapStateDescriptor
    ) -> Any:
        """Send every element to every subtask.

        Returns:
            A `BroadcastStream` for `connect` when descriptors are given, else a `DataStream`.

        Raises:
            TypeError: A descriptor is no `MapStateDescriptor`.
        """
        from tidemark.api.connected import BroadcastStream

        everywhere = self._partitioned(Ship.BROADCAST)
        if broadcast_state_descriptor is None and not others:
            return everywhere
        return BroadcastStream(everywhere, (broadcast_state_descriptor, *others))

    def partition_custom(
        self,
        partitioner: Callable[[Any, int], int] | Partitioner,
        key_selector: Callable[[Any], Any] | KeySelector,
    ) -> DataStream:
        """Send each element to the subtask `partitioner(key, number of subtasks)`.

        Raises:
            TypeError: An argument is neither a callable nor of the class named.
        """
        callable_or(partitioner, Partitioner, "partition_custom")
        callable_or(key_selector, KeySelector, "partition_custom")
        choose = partitioner.partition if isinstance(partitioner, Partitioner) else partitioner
        edges = [
            replace(edge, ship=Ship.CUSTOM, partitioner=choose, key_selector=cast("KeyOf", key_selector))
            for edge in self._edges
        ]
        return DataStream(self._environment, edges, self._type)

    def project(self, *field_indexes: int) -> DataStream:
        """Keep some fields of a stream of tuples.

        Raises:
            TypeError: The stream is not declared as `Types.TUPLE`, or an index is no int.
            ConfigError: An index is out of range, or there is none.
        """
        stream = self._values()
        if not isinstance(stream._type, TupleTypeInfo):
            raise TypeError(f"project() works on streams of Types.TUPLE only, not on {stream.get_type()}.")
        types = stream._type.get_field_types()
        if not field_indexes:
            raise ConfigError("project() needs at least one field index.")
        for index in field_indexes:
            if isinstance(index, bool) or not isinstance(index, int):
                raise TypeError(f"project() needs int indexes, not {index!r}.")
            if not 0 <= index < len(types):
                raise ConfigError(f"project() index {index} is outside of the {len(types)} fields.")
        projected = Types.TUPLE([types[index] for index in field_indexes])
        return stream._apply("Projection", OperatorKind.MAP, Project(field_indexes), projected)

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy) -> DataStream:
        """Give elements timestamps and the stream watermarks; the assigner must not change the elements.

        Raises:
            TypeError: Not a `WatermarkStrategy`.
        """
        if not isinstance(watermark_strategy, WatermarkStrategy):
            raise TypeError(f"Expected a WatermarkStrategy, not {watermark_strategy!r}.")
        stream = self._values()
        return stream._operator("Timestamps/Watermarks", TimestampsSpec(watermark_strategy), stream._type)

    def window_all(self, window_assigner: WindowAssigner[Any, Any]) -> AllWindowedStream:
        """Group all elements into windows; runs with parallelism 1.

        Raises:
            TypeError: Not a `WindowAssigner`.
        """
        from tidemark.api.windowed import AllWindowedStream

        return AllWindowedStream(self._values(), window_assigner)

    def get_side_output(self, output_tag: OutputTag) -> DataStream:
        """What the operator of this stream sent to that tag.

        Raises:
            TypeError: Not an `OutputTag`.
            ConfigError: The tag was used with another type.
            UnsupportedOperationException: This stream is not the output of an operator.
        """
        if not isinstance(output_tag, OutputTag):
            raise TypeError(f"get_side_output() needs an OutputTag, not {output_tag!r}.")
        node = self._operator_node("get_side_output")
        known = node.side_types.get(output_tag.tag_id)
        if known is not None and output_tag.type_info is not None and known != output_tag.type_info:
            raise ConfigError(
                f"Side output '{output_tag.tag_id}' of '{node.name}' is already read as {known}, "
                f"not {output_tag.type_info}."
            )
        side_type = output_tag.type_info or known
        node.side_types[output_tag.tag_id] = side_type
        return DataStream(self._environment, [Edge(node.id, tag=output_tag.tag_id)], side_type)

    def iterate(
        self, max_wait_time_millis: TimeLike = 0, max_iterations: int | None = None
    ) -> IterativeStream:
        """Begin a loop; end it with `close_with`.

        Args:
            max_wait_time_millis: Of a loop in STREAMING mode, where elements go round one by one.
            max_iterations: In BATCH mode, where all elements go round together: how many rounds there are at most.
        """
        from tidemark.api.iteration import IterativeStream

        wait_ms = to_millis(max_wait_time_millis, "max_wait_time_millis")
        return IterativeStream(self._values(), wait_ms, max_iterations)

    def iterate_delta(
        self,
        workset: DataStream,
        max_iterations: int,
        function: DeltaFunction,
        solution_key: KeyOf | KeySelector,
        workset_key: KeyOf | KeySelector,
        key_type: Any = None,
    ) -> DataStream:
        """Update a solution set, which begins with this stream, in rounds until there is no more work (BATCH mode).

        Args:
            workset: The work of the first round.
            max_iterations: How many rounds there are at most.
            function: Updates the element of one key with the work of that key, and says what work follows.
            solution_key: Key of an element of the solution set; there is one element per key.
            workset_key: Key of the element that some work is for.
            key_type: Type of these keys.

        Returns:
            The solution set after the last round.

        Raises:
            TypeError: `function` is no `DeltaFunction`.
            ConfigError: No round.
        """
        from tidemark.api.iteration import delta_iteration

        return delta_iteration(
            self._values(), workset._values(), max_iterations, function, solution_key, workset_key, key_type
        )

    def cache(self) -> CachedDataStream:
        """Keep the elements of this bounded stream after the first job that computes them.

        Raises:
            UnsupportedOperationException: A source of the stream is unbounded.
        """
        from tidemark.api.cache import CachedDataStream

        for node in self._environment._builder.upstream_of(self._edges):
            if isinstance(node.spec, SourceSpec) and not node.spec.bounded:
                raise UnsupportedOperationException(
                    f"Only bounded streams can be cached; source '{node.name}' is unbounded."
                )
        return CachedDataStream(self)

    def _values(self) -> DataStream:
        """The stream without its key."""
        return self

    def _partitioned(self, ship: Ship) -> DataStream:
        explicit = ship is Ship.FORWARD
        edges = [replace(edge, ship=ship, explicit=explicit) for edge in self._edges]
        return DataStream(self._environment, edges, self._type)

    def _apply(
        self, name: str, kind: OperatorKind, function: Any, output_type: TypeInformation | None
    ) -> DataStream:
        return self._operator(name, FunctionSpec(kind, function, self._keyed), output_type)

    def _apply_to_batches(self, name: str, kind: OperatorKind, function: Any, output_type: Any) -> DataStream:
        if self._type is None or self._type == Types.PICKLED_BYTE_ARRAY():
            raise ConfigError(
                f"{kind.value}() sees elements as columns, so their type must be declared: type_info of the source, "
                "output_type of the operator in front of it."
            )
        declared = optional_type(output_type) or self._type
        return self._operator(name, BatchSpec(kind, function, self._type, declared, self._keyed), declared)

    def _operator(self, name: str, spec: OperatorSpec, output_type: TypeInformation | None) -> DataStream:
        node = self._environment._builder.add(
            NodeKind.OPERATOR, name, spec, [self._edges], output_type=output_type
        )
        return DataStream(self._environment, [Edge(node.id)], output_type, node)


def _is_expression(value: Any) -> bool:
    """Whether it is an expression of `pyarrow.compute`, without loading that."""
    return type(value).__module__.startswith("pyarrow.") and type(value).__name__ == "Expression"
