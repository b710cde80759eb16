"""`execution.target: local`: any job in one process, without a JVM."""

from __future__ import annotations

import secrets
from typing import Any

from tidemark.api.executor import JobSettings
from tidemark.api.graph import Graph, SinkSpec, SourceSpec
from tidemark.api.job import JobClient
from tidemark.clock import Clock, SystemClock
from tidemark.config import Options
from tidemark.errors import ConfigError
from tidemark.ids import new_job_id
from tidemark.rpc import socket_directory
from tidemark.runtime.control import Endpoint, JobControl, ports_of
from tidemark.runtime.execution import JobExecution, JobParts
from tidemark.runtime.local_engine import LocalEngine
from tidemark.runtime.local_queries import LocalQueryServers
from tidemark.runtime.runner import JobHandle, JobRunner
from tidemark.runtime.sinks.driver import DriverSink
from tidemark.runtime.sinks.factory import make_driver_sink, wants_frame
from tidemark.runtime.sources.driver import (
    CollectionSource,
    FileSource,
    FunctionSource,
    SequenceSource,
    Source,
)
from tidemark.runtime.storage import backend_choice, storage_plan
from tidemark.slot.vertex import Vertex

__all__ = ["LocalExecutor", "local_parts", "split_source"]


class LocalExecutor:
    """Runs jobs in a thread of this process."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()

    def submit(self, graph: Graph, settings: JobSettings) -> JobClient:
        """Start the job in a thread."""
        refuse_spark(graph)
        storage = storage_plan(settings)
        engine = LocalEngine(self._clock, storage.savepoints)
        job_id = new_job_id()
        execution = JobExecution(
            graph,
            settings,
            job_id,
            engine,
            local_parts,
            self._clock,
            storage,
            backend_choice(settings),
        )
        token = secrets.token_bytes(32)
        queries = LocalQueryServers(engine, token, ports_of(settings, Options.QUERYABLE_SERVER_PORTS))
        sockets = socket_directory(job_id)

        def release() -> None:
            queries.close()
            sockets.cleanup()

        control = JobControl(
            Endpoint(
                token,
                f"unix:{sockets.name}/control.sock",
                query_addresses=queries.addresses,
                release=release,
            )
        )
        runner = JobRunner(execution, on_end=control.close)
        engine.on_event = runner.wake.set
        try:
            control.open(runner)
        except BaseException:
            engine.stop()
            sockets.cleanup()
            raise
        runner.start()
        return JobHandle(runner)


def refuse_spark(graph: Graph) -> None:
    """Refuse sources and sinks that only exist on Spark.

    Raises:
        ConfigError: Names the node.
    """
    for node in graph.nodes.values():
        spec = node.spec
        on_spark = (isinstance(spec, SourceSpec) and spec.kind.startswith("spark")) or (
            isinstance(spec, SinkSpec) and wants_frame(spec)
        )
        if on_spark:
            raise ConfigError(f"'{node.name}' needs Spark. Set execution.target to spark instead of local.")


def local_parts(execution: JobExecution) -> JobParts:
    """Sources and sinks of a job without Spark."""

    def make_source(vertex: Vertex) -> Source:
        return split_source(vertex, execution)

    def make_sink(vertex: Vertex) -> DriverSink:
        return make_driver_sink(vertex, execution.job_id)

    return JobParts(make_source, make_sink)


def split_source(vertex: Vertex, execution: JobExecution) -> Source:
    """Driver side of a source that is read by splits."""
    kind = vertex.spec.kind
    if kind in ("collection", "cached"):
        return CollectionSource(vertex)
    if kind == "sequence":
        return SequenceSource(vertex)
    if kind == "files":
        return FileSource(vertex, execution.clock)
    if kind == "function":

        def statuses() -> dict[int, dict[str, Any]]:
            return execution.engine.source_status().get(vertex.id, {})

        return FunctionSource(vertex, statuses, execution.plan.depth_below(vertex.id))
    raise ConfigError(f"Source '{vertex.name}' is of unknown kind '{kind}'.")
