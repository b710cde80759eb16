"""`execution.target: local`: any job in one process, without a JVM."""

from __future__ import annotations

import secrets
from contextlib import ExitStack

from tidemark.api.executor import JobSettings, PlannedMode
from tidemark.api.graph import Graph
from tidemark.api.job import JobClient
from tidemark.api.specs import SinkSpec, SparkSourceSpec
from tidemark.clock import Clock, SystemClock
from tidemark.config import Options
from tidemark.errors import ConfigError
from tidemark.protocol.deployment import BackendChoice
from tidemark.rpc import socket_directory
from tidemark.runtime.admission import admit
from tidemark.runtime.artifacts import LocalArtifacts
from tidemark.runtime.cancellation import Cancellation
from tidemark.runtime.continuous.choice import choose_mode, number_of_tasks, planned_mode
from tidemark.runtime.continuous.execution import ContinuousExecution
from tidemark.runtime.continuous.local_engine import ContinuousLocalEngine
from tidemark.runtime.control import Endpoint, JobControl, ports_of, server_threads_of
from tidemark.runtime.execution import JobExecution
from tidemark.runtime.job_handle import JobHandle
from tidemark.runtime.leadership import Leadership, job_id_of, lead
from tidemark.runtime.local_engine import LocalEngine
from tidemark.runtime.local_queries import LocalQueryServers
from tidemark.runtime.progress import timed_accesses
from tidemark.runtime.runner import JobRunner
from tidemark.runtime.sinks.factory import wants_frame
from tidemark.runtime.sources.factory import make_source
from tidemark.runtime.storage_plan import StoragePlan
from tidemark.tls import server_side

__all__ = ["LocalExecutor"]


class LocalExecutor:
    """Runs jobs in a thread of this process."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()

    def planned_mode(self, graph: Graph, settings: JobSettings) -> PlannedMode:
        """How the job would run; there are always cores enough."""
        return planned_mode(graph, settings)

    def submit(self, graph: Graph, settings: JobSettings) -> JobClient:
        """Start the job in a thread."""
        refuse_spark(graph)
        storage, tls = admit(graph, settings)
        with ExitStack() as undo:
            leadership = lead(settings, storage)
            if leadership is not None:
                undo.callback(leadership.release)
                settings = leadership.settings
            job_id = job_id_of(leadership)
            choice = choose_mode(graph, settings)
            execution = self._execution(
                graph, settings, job_id, storage, undo, leadership, continuous=choice.continuous
            )
            execution.progress.note_mode(choice.continuous, choice.reason)
            engine = execution.engine
            assert isinstance(engine, LocalEngine)
            token = secrets.token_bytes(32)
            queries = LocalQueryServers(
                engine,
                token,
                ports_of(settings, Options.QUERYABLE_SERVER_PORTS),
                server_threads_of(settings),
                server_side(tls),
            )
            sockets = socket_directory(job_id)
            undo.callback(sockets.cleanup)

            def release() -> None:
                queries.close()
                sockets.cleanup()

            control = JobControl(
                Endpoint(
                    token,
                    f"unix:{sockets.name}/control.sock",
                    tls=tls,
                    query_addresses=queries.addresses,
                    release=release,
                )
            )
            runner = JobRunner(execution, on_end=control.close)
            engine.on_event = runner.wake.set
            control.open(runner)
            undo.pop_all()
        runner.start()
        return JobHandle(runner)

    def _execution(
        self,
        graph: Graph,
        settings: JobSettings,
        job_id: str,
        storage: StoragePlan,
        undo: ExitStack,
        leadership: Leadership | None,
        *,
        continuous: bool,
    ) -> JobExecution:
        """The job with its engine; `undo` stops the engine."""
        backend = BackendChoice.of(settings.state_backend, timed_accesses(settings.configuration))
        cancellation = Cancellation.of(settings.configuration)
        files = LocalArtifacts(settings.artifacts)
        clock = self._clock
        if not continuous:
            engine = LocalEngine(clock, storage.savepoints, cancellation=cancellation, files=files)
            undo.callback(engine.stop)
            return JobExecution(
                graph, settings, job_id, engine, make_source, clock, storage, backend, leadership
            )
        tasks = number_of_tasks(graph, settings)
        endless = ContinuousLocalEngine(
            clock, storage.savepoints, tasks, cancellation=cancellation, files=files
        )
        undo.callback(endless.stop)
        return ContinuousExecution(graph, settings, job_id, endless, clock, storage, backend, leadership)


def refuse_spark(graph: Graph) -> None:
    """Refuse sources and sinks that only exist on Spark.

    Raises:
        ConfigError: Names the node.
    """
    for node in graph.nodes.values():
        spec = node.spec
        if isinstance(spec, SparkSourceSpec) or (isinstance(spec, SinkSpec) and wants_frame(spec)):
            raise ConfigError(f"'{node.name}' needs Spark. Set execution.target to spark instead of local.")
