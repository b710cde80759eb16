"""Builds the driver side of a source from its spec, for both executors, and says what sources see of their job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidemark.api.specs import (
    CollectionSourceSpec,
    FileSourceSpec,
    FunctionSourceSpec,
    SequenceSourceSpec,
    SparkBatchSourceSpec,
    SparkStreamSourceSpec,
)
from tidemark.clock import Clock
from tidemark.plan.job_plan import JobPlan
from tidemark.plan.vertex import Vertex
from tidemark.runtime.sources.driver import (
    CollectionSource,
    DriverSource,
    FilesSource,
    FunctionSource,
    SequenceSource,
)
from tidemark.runtime.sources.spark_stream import SparkBatchSource, SparkStreamSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DriverSourceContext", "MakeSource", "make_source"]


@dataclass(frozen=True, slots=True)
class DriverSourceContext:
    """What the driver side of a source sees of its job.

    Attributes:
        plan: What runs where.
        clock: Processing time.
        statuses: Asks the slots how the source functions in them stand: vertex -> slot -> status.
        on_input: To be called, from any thread, when there is something to read.
    """

    plan: JobPlan
    clock: Clock
    statuses: Callable[[], dict[int, dict[int, dict[str, Any]]]]
    on_input: Callable[[], None]


MakeSource = Callable[[Vertex, DriverSourceContext], DriverSource]


def make_source(
    vertex: Vertex, context: DriverSourceContext, session: SparkSession | None = None
) -> DriverSource:
    """Driver side of a source; `session` is there on Spark only."""
    match vertex.spec:
        case CollectionSourceSpec():
            return CollectionSource(vertex)
        case SequenceSourceSpec():
            return SequenceSource(vertex)
        case FileSourceSpec():
            return FilesSource(vertex, context.clock)
        case FunctionSourceSpec():
            return FunctionSource(
                vertex,
                lambda: context.statuses().get(vertex.id, {}),
                context.plan.depth_below(vertex.id),
            )
        case SparkBatchSourceSpec():
            return SparkBatchSource(vertex)
        case SparkStreamSourceSpec() if session is not None:
            return SparkStreamSource(vertex, session, context.on_input)
    raise AssertionError(f"source '{vertex.name}' was to be refused before the job started")
