"""`execution.target: spark` (the default): jobs run in the active Spark session, or in a local one we make."""

from __future__ import annotations

import secrets
from functools import partial
from typing import TYPE_CHECKING, Any

from tidemark.api.executor import JobSettings
from tidemark.api.graph import Graph
from tidemark.api.job import JobClient
from tidemark.clock import SystemClock
from tidemark.config import Options
from tidemark.errors import ConfigError
from tidemark.ids import new_job_id
from tidemark.protocol.deployment import BackendChoice
from tidemark.rpc import socket_directory
from tidemark.runtime.artifacts import ship_artifacts
from tidemark.runtime.control import Endpoint, JobControl, ports_of
from tidemark.runtime.driver_log import SlotLogging
from tidemark.runtime.execution import JobExecution
from tidemark.runtime.job_handle import JobHandle
from tidemark.runtime.launch import launch_slots
from tidemark.runtime.progress import timed_accesses
from tidemark.runtime.runner import JobRunner
from tidemark.runtime.session import find_or_create_session
from tidemark.runtime.slot_limits import SlotLimits
from tidemark.runtime.slot_manager import SlotManager
from tidemark.runtime.sources.factory import make_source
from tidemark.runtime.spark_engine import SparkEngine
from tidemark.runtime.storage_plan import storage_plan, warn_of_shared_root
from tidemark.scratch import ScratchDirectory, sweep_scratch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkExecutor"]


class SparkExecutor:
    """Runs jobs on Spark."""

    def __init__(self) -> None:
        self._own_session: SparkSession | None = None

    def close(self) -> None:
        """Stop the Spark session, if it was created for this executor."""
        session, self._own_session = self._own_session, None
        if session is not None:
            session.stop()

    def submit(self, graph: Graph, settings: JobSettings) -> JobClient:
        """Start the job; slots are launched by its own thread."""
        sweep_scratch()
        storage = storage_plan(settings)
        warn_of_shared_root(storage)
        configuration = settings.configuration
        limits = SlotLimits.of(configuration)
        wanted = configuration.to_dict()
        if settings.artifacts.executable is not None:
            wanted.setdefault("spark.pyspark.python", settings.artifacts.executable)
        session, created = find_or_create_session(wanted)
        if created:
            self._own_session = session
        ship_artifacts(session.sparkContext, settings.artifacts)
        job_id = new_job_id()
        token = secrets.token_bytes(32)
        host = _driver_host(session)
        ports = ports_of(settings, Options.QUERYABLE_SERVER_PORTS)
        sockets = socket_directory(job_id) if _is_one_machine(session) else None
        slots = SlotManager(
            job_id,
            token,
            _listen_at(sockets, "slots", host),
            lambda wanted: _launch(session, wanted),
            "127.0.0.1" if _is_local(session) else None,
            ports,
            limits,
            SlotLogging.of(configuration),
        )

        def release() -> None:
            if sockets is not None:
                sockets.cleanup()

        try:
            engine = SparkEngine(session, job_id, token, slots, limits.cancellation)
            execution = JobExecution(
                graph,
                settings,
                job_id,
                engine,
                partial(make_source, session=session),
                SystemClock(),
                storage,
                BackendChoice.of(settings.state_backend, timed_accesses(settings.configuration)),
            )
            application = str(session.sparkContext.applicationId)
            control = JobControl(
                Endpoint(
                    token,
                    _listen_at(sockets, "control", host),
                    host,
                    application,
                    lambda: _query_addresses(engine),
                    release,
                )
            )
            runner = JobRunner(execution, on_end=control.close)
            control.open(runner)
        except BaseException:
            slots.stop()
            release()
            raise
        slots.on_event = runner.wake.set
        runner.start()
        return JobHandle(runner)


def _launch(session: SparkSession, wanted: list[dict[str, Any]]) -> list[tuple[int, int, str]]:
    context = session.sparkContext
    try:
        launched: list[tuple[int, int, str]] = (
            context.parallelize(wanted, len(wanted)).mapPartitions(launch_slots).collect()
        )
    except Exception as exc:
        if "No module named 'tidemark" in str(exc):
            raise ConfigError(
                "The Python of the Spark workers does not have tidemark. Install it on every worker, or point "
                "PYSPARK_PYTHON (spark.pyspark.python) at an interpreter that has it; a relative PYTHONPATH is "
                "not seen by executors."
            ) from None
        raise
    return launched


def _query_addresses(engine: SparkEngine) -> list[str | None]:
    addresses = engine.query_addresses
    return [addresses.get(slot) for slot in range(max(addresses, default=-1) + 1)]


def _is_local(session: SparkSession) -> bool:
    return str(session.sparkContext.master).startswith("local")


def _is_one_machine(session: SparkSession) -> bool:
    """Whether tasks run in the driver's own JVM; `local-cluster` has executors, and stands in for real clusters."""
    master = str(session.sparkContext.master)
    return master == "local" or master.startswith("local[")


def _listen_at(sockets: ScratchDirectory | None, name: str, host: str) -> str:
    return f"tcp:{host}:0" if sockets is None else f"unix:{sockets.name}/{name}.sock"


def _driver_host(session: SparkSession) -> str:
    if _is_local(session):
        return "127.0.0.1"
    return str(session.sparkContext.getConf().get("spark.driver.host", "127.0.0.1"))
