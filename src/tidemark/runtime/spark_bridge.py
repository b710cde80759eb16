"""`DataStream.to_spark_stream()`: our output as the input of a Structured Streaming query.

The stream is written by a file sink, one base64 line of serialised bytes per element, and the files are
read back with `readStream`. Files become visible once per checkpoint (or epoch), and Spark reads each
visible file once, so what the query sees is exactly-once. The directory is never emptied by us.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidemark.api.connectors.file_system import BucketAssigner, FileSink, OutputFileConfig
from tidemark.config import Options
from tidemark.formats.schemas import Encoder
from tidemark.paths import is_local, join, local_path
from tidemark.private_files import make_directories
from tidemark.runtime.session import find_or_create_session
from tidemark.scratch import scratch_for_life
from tidemark.state.serializers.base import TypeSerializer
from tidemark.state.serializers.registry import serializer_for
from tidemark.types.typeinfo import TypeInformation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidemark.api.stream import DataStream

__all__ = ["LineDecoder", "LineEncoder", "stream_of"]


class LineEncoder(Encoder):
    """One line of base64 per element."""

    def __init__(self, type_info: TypeInformation) -> None:
        self._serializer: TypeSerializer[Any] = serializer_for(type_info)

    def encode(self, element: Any, type_info: TypeInformation | None) -> bytes:
        """The line, with its line feed."""
        return base64.b64encode(self._serializer.to_bytes(element)) + b"\n"


class LineDecoder:
    """Turns batches of such lines into the columns of the element's type; used as `mapInArrow` function."""

    def __init__(self, type_info: TypeInformation) -> None:
        self._serializer: TypeSerializer[Any] = serializer_for(type_info)

    @property
    def schema(self) -> pa.Schema:
        """A column per field, or one column `value` for types without fields; row kinds are left out."""
        kind = self._serializer.arrow_type()
        if not pa.types.is_struct(kind):
            return pa.schema([pa.field("value", kind)])
        return pa.schema([field for field in kind if not field.name.startswith("$")])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Decode the first column of every batch."""
        schema, from_bytes = self.schema, self._serializer.from_bytes
        for batch in batches:
            values = [from_bytes(base64.b64decode(line)) for line in batch.column(0).to_pylist()]
            column = self._serializer.to_arrow(values)
            struct = pa.types.is_struct(column.type)
            columns = [column.field(name) for name in schema.names] if struct else [column]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def stream_of(stream: DataStream) -> DataFrame:
    """Add the sink to the stream's job and return the streaming frame over what it will write."""
    from pyspark.sql.pandas.types import from_arrow_schema

    values = stream._values()
    environment = stream.get_execution_environment()
    configuration = environment.get_configuration()
    session, _ = find_or_create_session(configuration.to_dict())
    directory = _directory(configuration.get(Options.CHECKPOINTS_DIR))
    type_info = values.get_type()
    values.sink_to(
        FileSink(
            directory,
            LineEncoder(type_info),
            BucketAssigner.base_path_bucket_assigner(),
            output_file_config=OutputFileConfig("rows", ".b64"),
        )
    ).name("Spark stream")
    decode = LineDecoder(type_info)
    lines = session.readStream.format("text").load(directory)
    return lines.mapInArrow(decode, from_arrow_schema(decode.schema))


def _directory(checkpoints: str | None) -> str:
    """A new directory that driver and executors see: beside the checkpoints if they have one."""
    if checkpoints is None:
        return scratch_for_life("tidemark-spark-stream-")
    directory = join(checkpoints, "spark-streams", uuid.uuid4().hex)
    if is_local(directory):
        make_directories(local_path(directory), 0o700)
    return directory
