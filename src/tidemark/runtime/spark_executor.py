"""`execution.target: spark` (the default): jobs run in the active Spark session, or in a local one we make."""

from __future__ import annotations

import secrets
from functools import partial
from typing import TYPE_CHECKING, Any

from tidemark.api.executor import JobSettings
from tidemark.api.graph import Graph
from tidemark.api.job import JobClient
from tidemark.checkpoint.local_copies import copies_root, sweep_copies
from tidemark.clock import SystemClock
from tidemark.config import Options
from tidemark.errors import ConfigError
from tidemark.ids import new_job_id
from tidemark.protocol.deployment import BackendChoice
from tidemark.rpc import socket_directory
from tidemark.runtime.artifacts import ship_artifacts, wants_directory
from tidemark.runtime.continuous.choice import choose_mode, might_be_continuous, number_of_tasks
from tidemark.runtime.continuous.execution import ContinuousExecution
from tidemark.runtime.continuous.spark_engine import ContinuousSparkEngine
from tidemark.runtime.continuous.task_links import TaskLinks
from tidemark.runtime.control import Endpoint, JobControl, ports_of, server_threads_of
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
from tidemark.runtime.storage_plan import check_travels, storage_plan, warn_of_others
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
        sweep_copies(copies_root(settings.configuration.get(Options.LOCAL_RECOVERY_DIRS)))
        storage = storage_plan(settings)
        check_travels(storage)
        warn_of_others(storage, settings)
        configuration = settings.configuration
        limits = SlotLimits.of(configuration)
        wanted = configuration.to_dict()
        spare = number_of_tasks(graph, settings) if might_be_continuous(graph, settings) else 0
        if settings.artifacts.executable is not None:
            wanted.setdefault("spark.pyspark.python", settings.artifacts.executable)
        session, created = find_or_create_session(wanted, spare)
        if created:
            self._own_session = session
        ship_artifacts(session.sparkContext, settings.artifacts)
        choice = choose_mode(graph, settings, cores=_cores(session) - 1, obstacle=_obstacle(session))
        shipped_files = wants_directory(settings.artifacts)
        threads = server_threads_of(settings)
        more = {"shipped_files": shipped_files, "query_threads": (threads.network, threads.query)}
        job_id = new_job_id()
        token = secrets.token_bytes(32)
        host = _driver_host(session)
        ports = ports_of(settings, Options.QUERYABLE_SERVER_PORTS)
        sockets = socket_directory(job_id) if _is_one_machine(session) else None
        slots = SlotManager(
            job_id,
            token,
            _listen_at(sockets, "slots", host),
            lambda wanted: _launch(session, [{**slot, **more} for slot in wanted]),
            "127.0.0.1" if _is_local(session) else None,
            ports,
            limits,
            SlotLogging.of(configuration),
        )

        def release() -> None:
            if sockets is not None:
                sockets.cleanup()

        try:
            backend = BackendChoice.of(settings.state_backend, timed_accesses(settings.configuration))
            execution: JobExecution
            engine: SparkEngine
            if choice.continuous:
                listen_at = _listen_at(sockets, "tasks", host)
                links = TaskLinks(token, listen_at, limits.heartbeat_interval_s)
                tasks = number_of_tasks(graph, settings)
                engine = ContinuousSparkEngine(
                    session, job_id, token, slots, links, tasks, limits, shipped_files
                )
                execution = ContinuousExecution(
                    graph, settings, job_id, engine, SystemClock(), storage, backend
                )
            else:
                engine = SparkEngine(session, job_id, token, slots, limits.cancellation, shipped_files)
                sources = partial(make_source, session=session)
                execution = JobExecution(
                    graph, settings, job_id, engine, sources, SystemClock(), storage, backend
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
            # The engine may not have been made.
            slots.stop()
            release()
            raise
        slots.on_event = runner.wake.set
        if isinstance(engine, ContinuousSparkEngine):
            engine.on_event = runner.wake.set
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


def _cores(session: SparkSession) -> int:
    """How many tasks Spark runs at the same time."""
    return int(session.sparkContext.defaultParallelism)


def _obstacle(session: SparkSession) -> str | None:
    """What in Spark's settings keeps tasks from lasting."""
    conf = session.sparkContext.getConf()
    if conf.get("spark.speculation", "false") == "true":
        return "spark.speculation is on, which starts tasks twice"
    if conf.get("spark.python.worker.killOnIdleTimeout", "false") == "true":
        return "spark.python.worker.killOnIdleTimeout is on, which kills tasks that have nothing to do"
    return None


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
