"""Two streams in one function: `ConnectedStreams`, `BroadcastStream` and `BroadcastConnectedStream`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tidemark.api.builder import callable_or, optional_type
from tidemark.api.functions import (
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeySelector,
)
from tidemark.api.graph import Edge, NodeKind
from tidemark.api.keyed_stream import KeyedStream
from tidemark.api.specs import BroadcastProcessSpec, FunctionSpec, OperatorKind, OperatorSpec, TransformSpec
from tidemark.api.stream import DataStream
from tidemark.api.stream_operator import TwoInputStreamOperator
from tidemark.errors import ConfigError
from tidemark.state.descriptors import MapStateDescriptor
from tidemark.types.typeinfo import TypeInformation

if TYPE_CHECKING:
    from tidemark.api.environment import StreamExecutionEnvironment

__all__ = ["BroadcastConnectedStream", "BroadcastStream", "ConnectedStreams"]


class ConnectedStreams:
    """Two streams whose elements meet in one function; keyed exactly when both are."""

    def __init__(self, stream1: DataStream, stream2: DataStream) -> None:
        """Used by the library only."""
        if stream1._environment is not stream2._environment:
            raise ConfigError("Streams of different environments cannot be connected.")
        self.stream1 = stream1
        self.stream2 = stream2

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """The environment of both streams."""
        return self.stream1._environment

    def key_by(
        self,
        key_selector1: Callable[[Any], Any] | KeySelector,
        key_selector2: Callable[[Any], Any] | KeySelector,
        key_type: Any = None,
    ) -> ConnectedStreams:
        """Key both streams, again if they were keyed before; their keys share one type.

        Raises:
            TypeError: A selector is neither a callable nor a `KeySelector`.
        """
        callable_or(key_selector1, KeySelector, "key_by")
        callable_or(key_selector2, KeySelector, "key_by")
        shared = optional_type(key_type)
        return ConnectedStreams(
            KeyedStream(self.stream1._values(), key_selector1, shared),
            KeyedStream(self.stream2._values(), key_selector2, shared),
        )

    def map(self, func: CoMapFunction, output_type: Any = None) -> DataStream:
        """Emit at most one element per element.

        Raises:
            TypeError: `func` is no `CoMapFunction`.
        """
        if not isinstance(func, CoMapFunction):
            raise TypeError(f"map() of connected streams needs a CoMapFunction, not {func!r}.")
        return self._operator("Co-Map", OperatorKind.CO_MAP, func, output_type)

    def flat_map(self, func: CoFlatMapFunction, output_type: Any = None) -> DataStream:
        """Emit any number of elements per element.

        Raises:
            TypeError: `func` is no `CoFlatMapFunction`.
        """
        if not isinstance(func, CoFlatMapFunction):
            raise TypeError(f"flat_map() of connected streams needs a CoFlatMapFunction, not {func!r}.")
        return self._operator("Co-Flat Map", OperatorKind.CO_FLAT_MAP, func, output_type)

    def process(
        self, func: CoProcessFunction | KeyedCoProcessFunction, output_type: Any = None
    ) -> DataStream:
        """Process elements of both streams with a context.

        Raises:
            TypeError: `func` is neither, or is a `KeyedCoProcessFunction` and the streams are not keyed.
        """
        if not isinstance(func, CoProcessFunction | KeyedCoProcessFunction):
            raise TypeError(
                "process() of connected streams needs a CoProcessFunction or a KeyedCoProcessFunction, "
                f"not {func!r}."
            )
        if isinstance(func, KeyedCoProcessFunction) and not self._is_keyed:
            raise TypeError("A KeyedCoProcessFunction needs both streams keyed. Call key_by() first.")
        name = "Keyed Co-Process" if self._is_keyed else "Co-Process"
        return self._operator(name, OperatorKind.CO_PROCESS, func, output_type)

    def transform(self, operator_name: str, output_type: Any, operator: TwoInputStreamOperator) -> DataStream:
        """Process elements of both streams with an operator of one's own.

        Raises:
            TypeError: `operator` is no `TwoInputStreamOperator`.
        """
        if not isinstance(operator, TwoInputStreamOperator):
            raise TypeError(
                f"transform() of connected streams needs a TwoInputStreamOperator, not {operator!r}."
            )
        return self._two_inputs(operator_name, TransformSpec(operator, self._is_keyed), output_type)

    @property
    def _is_keyed(self) -> bool:
        return isinstance(self.stream1, KeyedStream) and isinstance(self.stream2, KeyedStream)

    def _operator(self, name: str, kind: OperatorKind, function: Any, output_type: Any) -> DataStream:
        return self._two_inputs(name, FunctionSpec(kind, function, self._is_keyed), output_type)

    def _two_inputs(self, name: str, spec: OperatorSpec, output_type: Any) -> DataStream:
        keyed = self._is_keyed
        streams = (self.stream1, self.stream2)
        if keyed and _key_type(self.stream1) != _key_type(self.stream2):
            raise TypeError(
                "Both streams must have keys of one type, not "
                f"{_key_type(self.stream1)} and {_key_type(self.stream2)}."
            )
        # Keyed on one side only is not keyed: that side's partitioning by key is dropped.
        edges = [stream._edges if keyed else stream._values()._edges for stream in streams]
        return _two_input(self.stream1._environment, name, spec, edges, output_type)


class BroadcastStream:
    """A stream whose elements reach every subtask, with the states they may change."""

    def __init__(self, input_stream: DataStream, broadcast_state_descriptors: Sequence[Any]) -> None:
        """Used by the library only.

        Raises:
            TypeError: A descriptor is no `MapStateDescriptor`.
            ConfigError: A descriptor has a time-to-live, or two have the same name.
        """
        descriptors = broadcast_state_descriptors
        for descriptor in descriptors:
            if not isinstance(descriptor, MapStateDescriptor):
                raise TypeError(f"broadcast() needs MapStateDescriptors, not {descriptor!r}.")
            if descriptor.ttl_config is not None:
                raise ConfigError(
                    f"Broadcast state '{descriptor.name}' cannot have a time-to-live; only keyed state can."
                )
        if len({descriptor.name for descriptor in descriptors}) != len(descriptors):
            raise ConfigError("The states of a broadcast stream need different names.")
        self.input_stream = input_stream
        self.broadcast_state_descriptors: list[MapStateDescriptor] = list(descriptors)

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """The environment of the stream."""
        return self.input_stream._environment


class BroadcastConnectedStream:
    """A stream connected with a broadcast stream."""

    def __init__(self, non_broadcast_stream: DataStream, broadcast_stream: BroadcastStream) -> None:
        """Used by the library only."""
        if non_broadcast_stream._environment is not broadcast_stream.get_execution_environment():
            raise ConfigError("Streams of different environments cannot be connected.")
        self.non_broadcast_stream = non_broadcast_stream
        self.broadcast_stream = broadcast_stream

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """The environment of both streams."""
        return self.non_broadcast_stream._environment

    def process(
        self,
        func: BroadcastProcessFunction[Any, Any, Any] | KeyedBroadcastProcessFunction[Any, Any, Any, Any],
        output_type: Any = None,
    ) -> DataStream:
        """Process elements of both sides.

        Raises:
            TypeError: Not a `KeyedBroadcastProcessFunction` on a keyed stream, or not a
                `BroadcastProcessFunction` on one that is not.
        """
        keyed = isinstance(self.non_broadcast_stream, KeyedStream)
        wanted = KeyedBroadcastProcessFunction if keyed else BroadcastProcessFunction
        if not isinstance(func, wanted):
            kind = "a keyed" if keyed else "a non-keyed"
            raise TypeError(f"process() on {kind} stream needs a {wanted.__name__}, not {func!r}.")
        descriptors = self.broadcast_stream.broadcast_state_descriptors
        spec = BroadcastProcessSpec(func, keyed, tuple(descriptors))
        edges = [self.non_broadcast_stream._edges, self.broadcast_stream.input_stream._edges]
        name = "Co-Process-Broadcast-Keyed" if keyed else "Co-Process-Broadcast"
        return _two_input(self.get_execution_environment(), name, spec, edges, output_type)


def _two_input(
    environment: StreamExecutionEnvironment,
    name: str,
    spec: OperatorSpec,
    edges: Sequence[Sequence[Edge]],
    output_type: Any,
) -> DataStream:
    declared = optional_type(output_type)
    node = environment._builder.add(NodeKind.OPERATOR, name, spec, edges, output_type=declared)
    return DataStream(environment, [Edge(node.id)], declared, node)


def _key_type(stream: DataStream) -> TypeInformation | None:
    assert isinstance(stream, KeyedStream)
    return stream._key_type
