"""Bounded data going into and coming out of the processor: streams that are also DataFrames, and back.

Elements cross Spark as columns: the fields of a declared record type, else one column `value`; elements
without a declared type are pickled into it.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidemark.api.builder import stream_from_source
from tidemark.api.spark_schema import type_of_schema
from tidemark.api.specs import CollectionSourceSpec, SourceSpec, SparkBatchSourceSpec
from tidemark.api.stream import DataStream
from tidemark.checkpoint.storage.base import Storage
from tidemark.errors import ConfigError, UnsupportedOperationException
from tidemark.state.serializers.registry import serializer_for
from tidemark.state_processor.columns import as_struct, conform_batch, element_schema
from tidemark.state_processor.spark import arrow_frame, on_spark, session_of
from tidemark.types.typeinfo import TypeInformation, Types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidemark.api.environment import StreamExecutionEnvironment

__all__ = ["BoundedData", "Elements", "StateStream", "elements_batch", "elements_of", "is_frame"]

_PICKLED = Types.PICKLED_BYTE_ARRAY()


def is_frame(data: Any) -> bool:
    """Whether this is a Spark DataFrame."""
    return hasattr(data, "schema") and hasattr(data, "isStreaming")


def elements_batch(values: list[Any], type_info: TypeInformation) -> pa.RecordBatch:
    """Elements as the columns of `element_schema`."""
    serializer = serializer_for(type_info)
    column = serializer.to_arrow(values)
    schema = element_schema(serializer)
    if pa.types.is_struct(column.type):
        return conform_batch(pa.RecordBatch.from_struct_array(column), schema)
    return conform_batch(pa.RecordBatch.from_arrays([column], names=["value"]), schema)


def elements_of(batch: pa.RecordBatch, type_info: TypeInformation) -> list[Any]:
    """The elements behind a batch with the columns of `element_schema`."""
    serializer = serializer_for(type_info)
    return serializer.from_arrow(as_struct(batch, serializer.arrow_type()))


class StateStream(DataStream):
    """What was read from a snapshot: a bounded stream, or a DataFrame."""

    def __init__(self, stream: DataStream, frame: Callable[[], DataFrame]) -> None:
        """Used by the library only; `frame` makes the DataFrame when it is asked for."""
        super().__init__(stream._environment, stream._edges, stream._type, stream._node)
        self._frame = frame

    def to_dataframe(self) -> DataFrame:
        """The elements as a Spark DataFrame: fields of records as columns, else one column `value`."""
        return self._frame()

    @classmethod
    def of_frame(
        cls, environment: StreamExecutionEnvironment, frame: DataFrame, type_info: TypeInformation, name: str
    ) -> StateStream:
        """The stream of a DataFrame's rows."""
        spec = SparkBatchSourceSpec(frame)
        return cls(stream_from_source(environment, spec, name, type_info), lambda: frame)

    @classmethod
    def of_list(
        cls,
        environment: StreamExecutionEnvironment,
        elements: list[Any],
        type_info: TypeInformation | None,
        name: str,
        shown: TypeInformation | None = None,
    ) -> StateStream:
        """The stream of elements that are in the driver; `shown` gives the columns of an untyped stream."""
        spec = CollectionSourceSpec(elements)
        stream = stream_from_source(environment, spec, name, type_info, 1)
        declared = type_info or shown or _PICKLED

        def frame() -> DataFrame:
            table = pa.Table.from_batches([elements_batch(elements, declared)])
            return arrow_frame(session_of(environment), table)

        return cls(stream, frame)


@dataclass(frozen=True, slots=True)
class Elements:
    """Data in the form in which it is processed: a list in this process, or a DataFrame with its type."""

    values: list[Any] | None = None
    frame: Any = None
    type_info: TypeInformation = _PICKLED


class BoundedData:
    """What `bootstrap_with` takes: a list, a bounded `DataStream` or a batch DataFrame."""

    def __init__(self, data: Any) -> None:
        """Check the data.

        Raises:
            TypeError: It is none of the three.
            ConfigError: It is unbounded.
        """
        if is_frame(data):
            if data.isStreaming:
                raise ConfigError("bootstrap_with() needs bounded data; this DataFrame is streaming.")
        elif isinstance(data, DataStream):
            for node in data._environment._builder.upstream_of(data._edges):
                if isinstance(node.spec, SourceSpec) and not node.spec.bounded:
                    raise ConfigError(
                        f"bootstrap_with() needs bounded data; source '{node.name}' is unbounded."
                    )
        elif not isinstance(data, Sequence) or isinstance(data, (str, bytes)):
            raise TypeError(
                "bootstrap_with() needs a list, a bounded DataStream or a Spark DataFrame, "
                f"not {type(data).__name__}."
            )
        self._data = data

    @contextmanager
    def elements(
        self, environment: StreamExecutionEnvironment, storage: Storage, staging: str
    ) -> Iterator[Elements]:
        """The data, usable inside the block.

        Args:
            environment: Says whether there is Spark.
            storage: Where `staging` is.
            staging: A path next to the target, reachable from every executor, for results of a job.
        """
        data = self._data
        if is_frame(data):
            yield Elements(frame=data, type_info=type_of_schema(data.schema))
        elif not isinstance(data, DataStream):
            yield self._of_list(list(data), None, environment)
        elif isinstance(source := _untouched_source(data), SparkBatchSourceSpec):
            yield Elements(frame=source.dataframe, type_info=data.get_type())
        elif isinstance(source, CollectionSourceSpec):
            yield self._of_list(list(source.elements), data._type, environment)
        elif not on_spark(data.get_execution_environment()):
            yield self._of_list(_collected(data), data._type, environment)
        else:
            directory = f"{staging}-{uuid.uuid4().hex[:8]}"
            try:
                yield Elements(frame=_staged(data, directory))
            finally:
                storage.delete_tree(directory)

    @staticmethod
    def _of_list(
        values: list[Any], type_info: TypeInformation | None, environment: StreamExecutionEnvironment
    ) -> Elements:
        normalize = None if type_info is None else serializer_for(type_info).normalizer()
        if normalize is not None:
            values = [normalize(value) for value in values]
        if not on_spark(environment):
            return Elements(values=values)
        table = pa.Table.from_batches([elements_batch(values, _PICKLED)])
        return Elements(frame=arrow_frame(session_of(environment), table))


def _untouched_source(stream: DataStream) -> SourceSpec | None:
    """The source behind a stream that nothing was done to."""
    node = stream._node
    spec = node.spec if node is not None else None
    return spec if isinstance(spec, SourceSpec) and spec.strategy is None else None


def _collected(stream: DataStream) -> list[Any]:
    with _alone(stream):
        return list(stream.execute_and_collect("State processor input"))


def _staged(stream: DataStream, directory: str) -> DataFrame:
    """Run the stream's job once; its elements go from the tasks to files, not through the driver."""
    environment = stream.get_execution_environment()
    session = session_of(environment)
    with _alone(stream):
        pickled = stream.map(_pickle, Types.PRIMITIVE_ARRAY(Types.BYTE()))
        pickled.foreach_batch(
            lambda frame, epoch: frame.write.mode("overwrite").parquet(f"{directory}/{epoch}")
        )
        environment.execute("State processor input")
    from tidemark.checkpoint.storage.filesystem import FileSystemStorage

    epochs = FileSystemStorage().list(directory)
    if not epochs:
        return arrow_frame(session, pa.Table.from_batches([elements_batch([], _PICKLED)]))
    return session.read.parquet(*[f"{directory}/{epoch}" for epoch in epochs])


def _pickle(value: Any) -> bytes:
    return pickle.dumps(value, 5)


@contextmanager
def _alone(stream: DataStream) -> Iterator[None]:
    """Run only what is added inside; sinks the program added before wait for its own `execute`."""
    builder = stream.get_execution_environment()._builder
    if stream._keyed:
        raise UnsupportedOperationException(
            "bootstrap_with() takes the elements, not the keys: pass the stream before key_by()."
        )
    waiting, builder.sinks = builder.sinks, []
    try:
        yield
    finally:
        builder.sinks = waiting
