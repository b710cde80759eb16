"""Where streams end: the sink methods of `DataStream`, and `DataStreamSink`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, overload

from tidemark.api.collect import CloseableIterator, CollectBuffer
from tidemark.api.connectors.base import Sink
from tidemark.api.connectors.streaming_file_sink import StreamingFileSink
from tidemark.api.functions import SinkFunction
from tidemark.api.graph import Edge, Node
from tidemark.api.operator_settings import OperatorSettings
from tidemark.api.specs import (
    CollectSinkSpec,
    ForeachBatchSinkSpec,
    FunctionSinkSpec,
    PrintSinkSpec,
    SinkSpec,
    SparkWriterSinkSpec,
)
from tidemark.errors import ConfigError

if TYPE_CHECKING:
    from tidemark.api.environment import StreamExecutionEnvironment
    from tidemark.api.stream import DataStream

__all__ = ["DataStreamSink", "SinkMethods"]


class DataStreamSink(OperatorSettings):
    """A sink; nothing can follow it."""

    def __init__(self, node: Node) -> None:
        """Used by the library only."""
        self._node = node


class SinkMethods:
    """Mixed into `DataStream`. A sink takes part in the next `execute` and is then forgotten."""

    _environment: StreamExecutionEnvironment
    _edges: Sequence[Edge]

    if TYPE_CHECKING:

        def _values(self) -> DataStream:
            """The stream without its key."""

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Write every element to the driver's standard output: `identifier:subtask> element`, one subtask unnamed."""
        return self._sink("Print to Std. Out", PrintSinkSpec(sink_identifier))

    def add_sink(self, sink_func: SinkFunction | StreamingFileSink) -> DataStreamSink:
        """Hand every element to a `SinkFunction`, or to the file sink of the 1.x line.

        Raises:
            TypeError: Not a `SinkFunction`.
        """
        if isinstance(sink_func, StreamingFileSink):
            return self.sink_to(sink_func)
        if not isinstance(sink_func, SinkFunction):
            raise TypeError(f"add_sink() needs a SinkFunction, not {sink_func!r}.")
        return self._sink("Unnamed", FunctionSinkSpec(sink_func))

    def sink_to(self, sink: Sink) -> DataStreamSink:
        """Write to a `Sink`, such as a `FileSink`.

        Raises:
            TypeError: Not a `Sink`.
        """
        if not isinstance(sink, Sink):
            raise TypeError(f"sink_to() needs a Sink, not {sink!r}.")
        return self._sink("Writer", sink.sink_spec())

    def foreach_batch(self, function: Callable[[Any, int], None]) -> DataStreamSink:
        """Hand the elements of each epoch to `function(dataframe, epoch_id)` in the driver.

        After a failure the epochs behind the last checkpoint are repeated under their old ids, perhaps cut
        differently: at least once. A writer that *replaces* what it wrote for an `epoch_id`, and for later
        ones, ends up with every element once; one that skips ids it has seen loses elements.

        Raises:
            TypeError: `function` cannot be called.
        """
        if not callable(function):
            raise TypeError(f"foreach_batch() needs a callable, not {function!r}.")
        return self._sink("foreach_batch", ForeachBatchSinkSpec(function))

    def write_spark(self, format: str, path: str | None = None, **options: Any) -> DataStreamSink:
        """Append the elements of each epoch with a Spark writer: any format, at least once.

        Raises:
            ConfigError: No format.
        """
        if not format:
            raise ConfigError("write_spark() needs the name of a Spark format.")
        return self._sink(f"Spark {format}", SparkWriterSinkSpec(format, options, path))

    def to_spark_stream(self) -> Any:
        """This stream as a streaming Spark `DataFrame`, fed while a job with this sink runs.

        Takes part in the next `execute`; start the query on the frame before or after that. Needs
        checkpointing for exactly-once delivery, as every file sink does.
        """
        return self._environment._spark_bridge().stream_of(self)

    @overload
    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: None = None
    ) -> CloseableIterator: ...

    @overload
    def execute_and_collect(self, job_execution_name: str | None = None, *, limit: int) -> list[Any]: ...

    @overload
    def execute_and_collect(self, job_execution_name: str | None, limit: int) -> list[Any]: ...

    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> CloseableIterator | list[Any]:
        """Run the job and bring the elements here.

        Args:
            job_execution_name: Name of the job.
            limit: Return a list of at most that many elements; without it an iterator is returned, which is
                a context manager and cancels the job when closed.

        Raises:
            ConfigError: `limit` is not positive.
        """
        if limit is not None and limit < 1:
            raise ConfigError(f"limit must be at least 1, not {limit}.")
        buffer = CollectBuffer()
        spec = CollectSinkSpec(buffer)
        environment = self._environment
        self._collected()._sink("Collect", spec)
        iterator = CloseableIterator(
            buffer, lambda: environment.execute_async(job_execution_name or "DataStream Collect")
        )
        if limit is None:
            return iterator
        with iterator:
            return [element for _, element in zip(range(limit), iterator, strict=False)]

    def _collected(self) -> SinkMethods:
        """The stream whose elements `execute_and_collect` gives."""
        return self

    def _sink(self, name: str, spec: SinkSpec) -> DataStreamSink:
        return DataStreamSink(self._environment._builder.add_sink(name, spec, self._values()._edges))
