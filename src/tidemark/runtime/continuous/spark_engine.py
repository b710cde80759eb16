"""Runs the tasks of a continuous job on Spark: one job per attempt, whose tasks last as long as the attempt."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidemark.errors import ConfigError, ExecutionError
from tidemark.plan.job_plan import JobPlan
from tidemark.protocol.tasks import TaskCommand, TaskDirective, TaskEvent, TaskLost
from tidemark.runtime.continuous.cores import ExecutorLoad, may_all_start
from tidemark.runtime.continuous.spark_task import TaskMessage, endless_function
from tidemark.runtime.continuous.task_links import TaskLinks
from tidemark.runtime.slot_limits import SlotLimits
from tidemark.runtime.slot_manager import SlotManager
from tidemark.runtime.spark_engine import SparkEngine, mapped_frame, spark_reason
from tidemark.tls import TlsFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ContinuousSparkEngine"]

_log = logging.getLogger(__name__)

_START_S = 30.0
"""How long some tasks of a submitted Spark job may wait before it is looked whether there are cores for them."""
_LOOK_S = 0.5
"""How often Spark is asked how many tasks it has started."""
_CONNECT_S = 600.0
"""How long they may take to connect where there are cores; only a machine that is much too busy is that slow."""
_GRACE_S = 1.0
"""How long tasks may take to end by themselves before their Spark job is cancelled; workers that end stay warm."""


class ContinuousSparkEngine(SparkEngine):
    """Engine of the Spark executor for continuous jobs."""

    def __init__(
        self,
        session: SparkSession,
        job_id: str,
        token: bytes,
        slots: SlotManager,
        links: TaskLinks,
        tasks: int,
        limits: SlotLimits,
        shipped_files: bool = False,
        tls: TlsFiles | None = None,
        has_run: bool = False,
    ) -> None:
        """Run one job; see `SparkEngine`.

        Args:
            session: Where its Spark jobs run.
            job_id: The job.
            token: What every peer has to know.
            slots: Its slots.
            links: The control links of its tasks.
            tasks: How many tasks an attempt has.
            limits: Heartbeat, and patience with what does not end.
            shipped_files: Whether tasks run where Spark puts the files of the job.
            tls: What TCP connections of tasks are encrypted with.
            has_run: Whether a former driver has run the job, so that there were cores enough for it.
        """
        super().__init__(session, job_id, token, slots, limits.cancellation, shipped_files, tls)
        self.tasks = tasks
        self.moved = False
        self._links = links
        self.on_event: Callable[[], None] = lambda: None
        """Called, from any thread, when a task has said something."""
        links.on_event = lambda: self.on_event()
        self._limits = limits
        self._has_run = has_run
        self._spark_job: _SparkJob | None = None

    def start_tasks(self, directive: TaskDirective) -> None:
        """Start the Spark job and wait until every task has connected.

        Raises:
            ConfigError: Some do not start: Spark has not enough free cores.
            ExecutionError: The same of a job that has run before, in this driver or a former one: an executor may come
                back, or a former driver that is frozen give its cores up.
        """
        assert self._closure is not None
        assert self._plan is not None
        self._links.begin(directive.attempt)
        message = TaskMessage(
            directive, self._slots.addresses(), self._links.address, self._limits.heartbeat_timeout_s
        )
        job = self._spark_job = _SparkJob(
            self._session,
            self._tag,
            f"{self._tag}-{directive.attempt}",
            f"{self._plan.job_name}: tasks of attempt {directive.attempt}",
            directive.tasks,
            endless_function(self._closure, message),
            lambda: self.on_event(),
        )
        self._await_tasks(job, directive)

    def _await_tasks(self, job: _SparkJob, directive: TaskDirective) -> None:
        """Wait until every task has connected; how long it takes is no matter as long as each has a core."""
        begun = look = time.monotonic()
        submitted: float | None = None
        while self._links.connected() < directive.tasks and job.over is None:
            self.worker.while_waiting()
            now = time.monotonic()
            if now >= look:
                look = now + _LOOK_S
                late = submitted is not None and now - submitted > _START_S
                executors = job.executors() if late else []
                started = job.started()
                if submitted is None and started is not None:
                    submitted = now
                if late and not may_all_start(directive.tasks, started or 0, executors, job.settings()):
                    raise self._too_few(started or 0, directive)
            if now - begun > _CONNECT_S:
                raise ExecutionError(
                    f"Only {self._links.connected()} of {directive.tasks} tasks have connected to the driver at "
                    f"{self._links.address} within {_CONNECT_S:.0f} s.",
                    job_id=self._job_id,
                )
            time.sleep(0.005)

    def _too_few(self, started: int, directive: TaskDirective) -> Exception:
        text = (
            f"The job needs {directive.tasks} free cores for its tasks for as long as it runs, and has {started}: the "
            f"others have not started within {_START_S:.0f} s. Give Spark more cores, lower the parallelism of the "
            "job's sources, or set execution.mode to epochs."
        )
        if directive.attempt or self._has_run:
            return ExecutionError(text, job_id=self._job_id)
        return ConfigError(text, key="execution.mode")

    def tell(self, task: int, command: TaskCommand) -> None:
        """Send a command over the task's control link."""
        self._links.tell(task, command)

    def task_events(self) -> list[TaskEvent]:
        """What tasks said; that they are gone, if Spark says so first."""
        events = self._links.events()
        self.moved = bool(events)
        job = self._spark_job
        if not events and job is not None and job.over is not None:
            return [TaskLost(task, job.over) for task in range(self.tasks)]
        return events

    def end_tasks(self) -> None:
        """Tell every task to end; cancel the Spark job if one does not."""
        self._links.end()
        job, self._spark_job = self._spark_job, None
        if job is None or job.join(_GRACE_S):
            return
        deadline = time.monotonic() + self._cancellation.timeout_s
        while not self._cancellation.timeout_s or time.monotonic() < deadline:
            # Again and again: its thread may have been about to submit the job when it was first done.
            self.interrupt()
            if job.join(0.5):
                return
        _log.warning("The Spark job of the tasks has not ended after it was cancelled; it is left behind.")

    def settle(self) -> None:
        """End the tasks, then the operators of every slot."""
        self.end_tasks()
        super().settle()

    def start(self, plan: JobPlan, attempt: int) -> None:
        """End the tasks of the attempt before, and have every slot alive."""
        self.end_tasks()
        super().start(plan, attempt)

    def stop(self) -> None:
        """End tasks and slots."""
        self.end_tasks()
        self._links.close()
        super().stop()


class _SparkJob:
    """The Spark job of one attempt, in a thread of its own.

    Attributes:
        over: Why it has ended, None while it runs.
    """

    def __init__(
        self,
        session: SparkSession,
        tag: str,
        group: str,
        description: str,
        tasks: int,
        function: Any,
        on_end: Callable[[], None],
    ) -> None:
        from pyspark import InheritableThread

        self.over: str | None = None
        self._session = session
        self._group = group
        self._on_end = on_end
        # Unlike others, such a thread leaves no connection to the JVM behind.
        self._thread = InheritableThread(
            target=self._run,
            args=(tag, description, tasks, function),
            name=f"tasks-{group[9:17]}",
            daemon=True,
        )
        self._thread.start()

    def _run(self, tag: str, description: str, tasks: int, function: Any) -> None:
        context = self._session.sparkContext
        try:
            context.setJobGroup(self._group, description)
            context.addJobTag(tag)
            mapped_frame(self._session.range(0, tasks, 1, tasks), function).toArrow()
            self.over = "its Spark job has ended"
        except Exception as exc:
            self.over = f"its Spark job failed: {spark_reason(exc)}"
        self._on_end()

    def started(self) -> int | None:
        """How many of its tasks Spark has found a core for; None while the query is still being planned."""
        tracker = self._session.sparkContext.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._group)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        active = [stage.numActiveTasks for stage in stages if stage is not None]
        return sum(active) if active else None

    def executors(self) -> list[ExecutorLoad]:
        """Where Spark runs tasks."""
        found = self._session.sparkContext._jsc.sc().statusStore().executorList(True)
        each = [found.apply(at) for at in range(found.size())]
        return [ExecutorLoad(executor.totalCores(), executor.activeTasks()) for executor in each]

    def settings(self) -> dict[str, str]:
        """What was set when Spark started."""
        return dict(self._session.sparkContext.getConf().getAll())

    def join(self, seconds: float) -> bool:
        """Wait for its end; whether it has come."""
        self._thread.join(seconds)
        return not self._thread.is_alive()
