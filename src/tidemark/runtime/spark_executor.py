"""`execution.target: spark` (the default): jobs run in the active Spark session, or in a local one we make."""

from __future__ import annotations

import logging
import os
import re
import secrets
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from tidemark.api.executor import JobSettings, PlannedMode
from tidemark.api.graph import Graph
from tidemark.api.job import JobClient
from tidemark.clock import SystemClock
from tidemark.config import ExecutionMode, Options
from tidemark.plan.job_plan import build_plan
from tidemark.ports import parse_port_range
from tidemark.protocol.deployment import BackendChoice
from tidemark.rpc import socket_directory
from tidemark.runtime.admission import admit
from tidemark.runtime.artifacts import ship_artifacts
from tidemark.runtime.continuous.choice import (
    choose_mode,
    might_be_continuous,
    number_of_tasks,
    planned_mode,
)
from tidemark.runtime.continuous.execution import ContinuousExecution
from tidemark.runtime.continuous.spark_engine import ContinuousSparkEngine
from tidemark.runtime.continuous.task_links import TaskLinks
from tidemark.runtime.control import Endpoint, JobControl, ports_of
from tidemark.runtime.driver_log import SlotLogging
from tidemark.runtime.execution import JobExecution
from tidemark.runtime.job_handle import JobHandle
from tidemark.runtime.leadership import Leadership, job_id_of, lead
from tidemark.runtime.progress import timed_accesses
from tidemark.runtime.runner import JobRunner
from tidemark.runtime.session import (
    active_session,
    find_or_create_session,
    master_of_session,
    runs_in_driver,
)
from tidemark.runtime.slot_limits import SlotLimits
from tidemark.runtime.slot_manager import SlotManager
from tidemark.runtime.sources.factory import make_source
from tidemark.runtime.spark_engine import SparkEngine
from tidemark.runtime.spark_slots import SlotLauncher
from tidemark.runtime.storage_plan import StoragePlan, check_travels
from tidemark.scratch import ScratchDirectory
from tidemark.tls import TlsFiles, server_side

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkExecutor"]

_log = logging.getLogger(__name__)

_LOCAL_CORES = re.compile(
    r"local(\[(?P<cores>\d+|\*)(,\s*\d+)?\]|-cluster\[\s*(?P<executors>\d+)\s*,\s*(?P<each>\d+)\s*,\s*\d+\s*\])?"
)
"""Masters that say how many cores there are."""
_IDLE_TIMEOUTS = [
    ("spark.python.worker.killOnIdleTimeout", "spark.python.worker.idleTimeoutSeconds"),
    (
        "spark.sql.execution.pyspark.udf.killOnIdleTimeout",
        "spark.sql.execution.pyspark.udf.idleTimeoutSeconds",
    ),
]


class SparkExecutor:
    """Runs jobs on Spark."""

    def __init__(self) -> None:
        self._own_session: SparkSession | None = None

    def close(self) -> None:
        """Stop the Spark session, if it was created for this executor."""
        session, self._own_session = self._own_session, None
        if session is not None:
            session.stop()

    def planned_mode(self, graph: Graph, settings: JobSettings) -> PlannedMode:
        """How the job would run in the session that is active; without one, in one that we would make."""
        session = active_session()
        if session is None:
            master = settings.configuration.to_dict().get("spark.master", "")
            return planned_mode(graph, settings, cores=_cores_of(master))
        return planned_mode(graph, settings, cores=_cores(session, settings), obstacle=_obstacle(session))

    def submit(self, graph: Graph, settings: JobSettings) -> JobClient:
        """Start the job; slots are launched by its own thread."""
        limits = SlotLimits.of(settings.configuration)
        for option in (Options.DRIVER_PORTS, Options.SLOT_PORTS):
            parse_port_range(settings.configuration.get(option))
        storage, tls = admit(graph, settings)
        check_travels(storage)
        # A driver that waits for its turn has no session yet.
        leadership = lead(settings, storage)
        if leadership is not None:
            settings = leadership.settings
        try:
            return self._start(graph, settings, storage, limits, leadership, tls)
        except BaseException:
            if leadership is not None:
                leadership.release()
            raise

    def _session(self, configuration: dict[str, str], spare: int) -> SparkSession:
        session, created = find_or_create_session(configuration, spare)
        if created:
            self._own_session = session
        return session

    def _start(
        self,
        graph: Graph,
        settings: JobSettings,
        storage: StoragePlan,
        limits: SlotLimits,
        leadership: Leadership | None,
        tls: TlsFiles | None,
    ) -> JobClient:
        configuration = settings.configuration
        wanted = configuration.to_dict()
        spare = number_of_tasks(graph, settings) if might_be_continuous(graph, settings) else 0
        if settings.artifacts.executable is not None:
            wanted.setdefault("spark.pyspark.python", settings.artifacts.executable)
        master = master_of_session(wanted, spare)
        is_local = master.startswith("local")
        session = active_session() if is_local else self._session(wanted, spare)
        job_id = job_id_of(leadership)
        token = secrets.token_bytes(32)
        host = "127.0.0.1" if session is None else _driver_host(session)
        doors = f"{host}:{configuration.get(Options.DRIVER_PORTS)}"
        if tls is not None and is_local:
            tls = tls.absolute()
        with ExitStack() as undo:
            sockets = socket_directory(job_id) if runs_in_driver(master) else None
            if sockets is not None:
                undo.callback(sockets.cleanup)
            launch = SlotLauncher(job_id, settings, session, runs_in_driver(master))
            slots = SlotManager(
                job_id,
                token,
                _listen_at(sockets, "slots", doors),
                launch,
                "127.0.0.1" if is_local else None,
                ports_of(settings, Options.QUERYABLE_SERVER_PORTS),
                limits,
                SlotLogging.of(configuration),
                tls,
                configuration.get(Options.SLOT_PORTS),
                launch.spares,
            )
            undo.callback(slots.stop)
            if launch.by_driver:
                # They need no JVM, and come up while it does.
                slots.launch_ahead(build_plan(graph, settings, job_id).slots)
            session = launch.session = self._session(wanted, spare)
            ship_artifacts(session.sparkContext, settings.artifacts)
            if tls is not None and not is_local:
                _warn_of_open_channels(session)
            choice = choose_mode(
                graph, settings, cores=_cores(session, settings), obstacle=_obstacle(session)
            )
            shipped_files = launch.runs_beside_files(session)
            backend = BackendChoice.of(settings.state_backend, timed_accesses(settings.configuration))
            execution: JobExecution
            engine: SparkEngine
            if choice.continuous:
                listen_at = _listen_at(sockets, "tasks", doors)
                links = TaskLinks(
                    token,
                    listen_at,
                    limits.heartbeat_interval_s,
                    limits.heartbeat_timeout_s,
                    server_side(tls),
                )
                tasks = number_of_tasks(graph, settings)
                has_run = leadership is not None and bool(leadership.recovered)
                engine = ContinuousSparkEngine(
                    session, job_id, token, slots, links, tasks, limits, shipped_files, tls, has_run
                )
                execution = ContinuousExecution(
                    graph, settings, job_id, engine, SystemClock(), storage, backend, leadership
                )
            else:
                engine = SparkEngine(session, job_id, token, slots, limits.cancellation, shipped_files, tls)
                sources = partial(make_source, session=session)
                execution = JobExecution(
                    graph, settings, job_id, engine, sources, SystemClock(), storage, backend, leadership
                )
            execution.progress.note_mode(choice.continuous, choice.reason)
            application = str(session.sparkContext.applicationId)
            control = JobControl(
                Endpoint(
                    token,
                    _listen_at(sockets, "control", doors),
                    host,
                    application,
                    tls,
                    lambda: _query_addresses(engine),
                    (lambda: None) if sockets is None else sockets.cleanup,
                )
            )
            runner = JobRunner(execution, on_end=control.close)
            control.open(runner)
            undo.pop_all()
        slots.on_event = runner.wake.set
        if isinstance(engine, ContinuousSparkEngine):
            engine.on_event = runner.wake.set
        runner.start()
        return JobHandle(runner)


def _query_addresses(engine: SparkEngine) -> list[str | None]:
    addresses = engine.query_addresses
    return [addresses.get(slot) for slot in range(max(addresses, default=-1) + 1)]


def _cores(session: SparkSession, settings: JobSettings) -> int | None:
    """How many tasks Spark runs at the same time; None where executors come and go, or have not come yet.

    Whoever leaves the choice to us does not want a job that waits for executors: then those count that are here.
    """
    cores = _cores_of(str(session.sparkContext.master))
    if cores is None and settings.configuration.get(Options.EXECUTION_MODE) is ExecutionMode.AUTO:
        told = _setting(session, "spark.default.parallelism", "")
        # Without that setting it is the number of cores of the executors that have registered.
        cores = 0 if told else int(session.sparkContext.defaultParallelism)
    return None if cores is None else cores // int(_setting(session, "spark.task.cpus", "1"))


def _cores_of(master: str) -> int | None:
    match = _LOCAL_CORES.fullmatch(master)
    if match is None:
        return None
    executors, cores = match["executors"], match["each"] or match["cores"] or "1"
    every = (os.cpu_count() or 1) if cores == "*" else int(cores)
    return int(executors or 1) * every


def _obstacle(session: SparkSession) -> str | None:
    """What in Spark's settings keeps tasks from lasting."""
    if _setting(session, "spark.speculation", "false") == "true":
        return "spark.speculation is on, which starts tasks twice"
    for kill, idle in _IDLE_TIMEOUTS:
        # An own setting of the session goes before that of the context, which Spark falls back to.
        if str(session.conf.get(kill, "false")) == "true" and str(session.conf.get(idle, "0")).strip("0s"):
            return f"{kill} is on, which kills tasks that have nothing to do for {idle}"
    return None


def _setting(session: SparkSession, key: str, default: str) -> str:
    """What was set when Spark started; the session's own settings do not change how tasks are run."""
    return str(session.sparkContext.getConf().get(key, default))


def _warn_of_open_channels(session: SparkSession) -> None:
    """Tell that Spark's own connections, over which plan and token travel, would let others read them."""
    encrypted = (
        "spark.network.crypto.enabled",
        "spark.ssl.rpc.enabled",
        "spark.authenticate.enableSaslEncryption",
    )
    if not any(_setting(session, key, "false") == "true" for key in encrypted):
        _log.warning(
            "security.ssl.internal.enabled is on, but Spark's own channels, over which the job's code and token "
            "travel, are not encrypted: set spark.authenticate and spark.network.crypto.enabled, or "
            "spark.ssl.rpc.enabled."
        )


def _is_local(session: SparkSession) -> bool:
    return str(session.sparkContext.master).startswith("local")


def _listen_at(sockets: ScratchDirectory | None, name: str, doors: str) -> str:
    return f"tcp:{doors}" if sockets is None else f"unix:{sockets.name}/{name}.sock"


def _driver_host(session: SparkSession) -> str:
    if _is_local(session):
        return "127.0.0.1"
    return str(session.sparkContext.getConf().get("spark.driver.host", "127.0.0.1"))
