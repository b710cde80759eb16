"""Builds the driver side of a source from its spec, for both executors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidemark.api.specs import (
    CollectionSourceSpec,
    FileSourceSpec,
    FunctionSourceSpec,
    SequenceSourceSpec,
    SparkBatchSourceSpec,
    SparkStreamSourceSpec,
)
from tidemark.plan.vertex import Vertex
from tidemark.runtime.sources.driver import (
    CollectionSource,
    DriverSource,
    FunctionSource,
    SequenceSource,
    TextFileSource,
)
from tidemark.runtime.sources.spark_stream import SparkBatchSource, SparkStreamSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemark.runtime.execution import JobExecution

__all__ = ["make_source"]


def make_source(vertex: Vertex, execution: JobExecution, session: SparkSession | None = None) -> DriverSource:
    """Driver side of a source; `session` is there on Spark only."""
    match vertex.spec:
        case CollectionSourceSpec():
            return CollectionSource(vertex)
        case SequenceSourceSpec():
            return SequenceSource(vertex)
        case FileSourceSpec():
            return TextFileSource(vertex, execution.clock)
        case FunctionSourceSpec():

            def statuses() -> dict[int, dict[str, Any]]:
                return execution.engine.source_status().get(vertex.id, {})

            return FunctionSource(vertex, statuses, execution.plan.depth_below(vertex.id))
        case SparkBatchSourceSpec():
            return SparkBatchSource(vertex)
        case SparkStreamSourceSpec() if session is not None:
            return SparkStreamSource(vertex, session, lambda: execution.on_input())
    raise AssertionError(f"source '{vertex.name}' was to be refused before the job started")
