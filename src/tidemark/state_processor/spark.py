"""The few things the processor asks of Spark, each in one place."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidemark.config import Options
from tidemark.state_processor.columns import conform_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidemark.api.environment import StreamExecutionEnvironment

__all__ = [
    "FORMAT",
    "BatchFunction",
    "arrow_frame",
    "exact_schema",
    "map_in_arrow",
    "on_spark",
    "register",
    "session_of",
    "spark_type",
]

FORMAT = "tidemark"
"""Name of the data source."""

_MARK = "tidemark.state_processor.registered"

BatchFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def on_spark(environment: StreamExecutionEnvironment) -> bool:
    """Whether the environment's jobs run on Spark."""
    return bool(environment.get_configuration().get(Options.EXECUTION_TARGET) != "local")


def session_of(environment: StreamExecutionEnvironment) -> SparkSession:
    """The Spark session of the environment's jobs, with the data source registered."""
    from tidemark.runtime.session import find_or_create_session

    session, _created = find_or_create_session(environment.get_configuration().to_dict())
    register(session)
    return session


def register(spark: SparkSession) -> None:
    """Make the data source `tidemark` known to a Spark session; again is no error."""
    from tidemark.state_processor.datasource import SnapshotSource

    if spark.conf.get(_MARK, "") != "true":
        spark.dataSource.register(SnapshotSource)
        spark.conf.set(_MARK, "true")


def spark_type(schema: pa.Schema) -> Any:
    """The `StructType` of an Arrow schema."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def exact_schema(struct: Any) -> pa.Schema:
    """The Arrow schema in which Spark wants the batches of a `StructType`."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(struct, timezone="UTC")


def map_in_arrow(frame: DataFrame, function: BatchFunction, schema: pa.Schema) -> DataFrame:
    """`DataFrame.mapInArrow` whose results are conformed to what Spark expects; it needs no pandas."""
    from pyspark.sql import DataFrame
    from pyspark.sql.functions import col
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    struct = spark_type(schema)
    exact = exact_schema(struct)

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # The daemon collects garbage after every task; what is frozen is not looked at.
        gc.freeze()
        for batch in function(batches):
            yield conform_batch(batch, exact)

    udf = UserDefinedFunction(step, returnType=struct, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = udf(*[col(f"`{name}`") for name in frame.columns])._jc
    return DataFrame(frame._jdf.mapInArrow(column, False, None), frame.sparkSession)


def arrow_frame(session: SparkSession, table: pa.Table) -> DataFrame:
    """A DataFrame of rows that are in the driver already."""
    exact = exact_schema(spark_type(table.schema))
    batches = [conform_batch(batch, exact) for batch in table.to_batches()]
    return session.createDataFrame(pa.Table.from_batches(batches, schema=exact))
