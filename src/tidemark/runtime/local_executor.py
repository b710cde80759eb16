"""`execution.target: local`: any job in one process, without a JVM."""

from __future__ import annotations

import secrets

from tidemark.api.executor import JobSettings
from tidemark.api.graph import Graph
from tidemark.api.job import JobClient
from tidemark.api.specs import SinkSpec, SparkSourceSpec
from tidemark.clock import Clock, SystemClock
from tidemark.config import Options
from tidemark.errors import ConfigError
from tidemark.ids import new_job_id
from tidemark.protocol.deployment import BackendChoice
from tidemark.rpc import socket_directory
from tidemark.runtime.cancellation import Cancellation
from tidemark.runtime.control import Endpoint, JobControl, ports_of
from tidemark.runtime.execution import JobExecution
from tidemark.runtime.job_handle import JobHandle
from tidemark.runtime.local_engine import LocalEngine
from tidemark.runtime.local_queries import LocalQueryServers
from tidemark.runtime.progress import timed_accesses
from tidemark.runtime.runner import JobRunner
from tidemark.runtime.sinks.factory import wants_frame
from tidemark.runtime.sources.factory import make_source
from tidemark.runtime.storage_plan import storage_plan, warn_of_shared_root
from tidemark.scratch import sweep_scratch

__all__ = ["LocalExecutor"]


class LocalExecutor:
    """Runs jobs in a thread of this process."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()

    def submit(self, graph: Graph, settings: JobSettings) -> JobClient:
        """Start the job in a thread."""
        refuse_spark(graph)
        sweep_scratch()
        storage = storage_plan(settings)
        warn_of_shared_root(storage)
        engine = LocalEngine(
            self._clock, storage.savepoints, cancellation=Cancellation.of(settings.configuration)
        )
        job_id = new_job_id()
        execution = JobExecution(
            graph,
            settings,
            job_id,
            engine,
            make_source,
            self._clock,
            storage,
            BackendChoice.of(settings.state_backend, timed_accesses(settings.configuration)),
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
        if isinstance(spec, SparkSourceSpec) or (isinstance(spec, SinkSpec) and wants_frame(spec)):
            raise ConfigError(f"'{node.name}' needs Spark. Set execution.target to spark instead of local.")
