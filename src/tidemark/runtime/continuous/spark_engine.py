"""Runs the tasks of a continuous job on Spark: one job per attempt, whose tasks last as long as the attempt."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidemark.errors import ConfigError
from tidemark.plan.job_plan import JobPlan
from tidemark.protocol.tasks import TaskCommand, TaskDirective, TaskEvent, TaskLost
from tidemark.runtime.continuous.spark_task import TaskMessage, endless_function
from tidemark.runtime.continuous.task_links import TaskLinks
from tidemark.runtime.slot_limits import SlotLimits
from tidemark.runtime.slot_manager import SlotManager
from tidemark.runtime.spark_engine import SparkEngine, mapped_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ContinuousSparkEngine"]

_log = logging.getLogger(__name__)

_START_S = 30.0
"""How long tasks may take to start before cores are taken to be missing."""
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
        """
        super().__init__(session, job_id, token, slots, limits.cancellation, shipped_files)
        self.tasks = tasks
        self.moved = False
        self._links = links
        self.on_event: Callable[[], None] = lambda: None
        """Called, from any thread, when a task has said something."""
        links.on_event = lambda: self.on_event()
        self._limits = limits
        self._spark_job: threading.Thread | None = None
        self._failed: str | None = None

    def start_tasks(self, directive: TaskDirective) -> None:
        """Start the Spark job and wait until every task has connected.

        Raises:
            ConfigError: Some do not start: Spark has not enough free cores.
        """
        self._links.begin(directive.attempt)
        message = TaskMessage(
            directive, self._slots.addresses(), self._links.address, self._limits.heartbeat_timeout_s
        )
        self._failed = None
        self._spark_job = threading.Thread(
            target=self._run_tasks, args=(message,), name=f"tasks-{self._job_id[:8]}", daemon=True
        )
        self._spark_job.start()
        deadline = time.monotonic() + _START_S
        while self._links.connected() < directive.tasks and self._failed is None:
            self.worker.while_waiting()
            if time.monotonic() > deadline:
                raise ConfigError(
                    f"Only {self._links.connected()} of {directive.tasks} tasks have started within "
                    f"{_START_S:.0f} s: a continuous job holds as many cores for as long as it runs. Give Spark more "
                    "cores, lower the parallelism of its sources, or set execution.mode to epochs.",
                    key="execution.mode",
                )
            time.sleep(0.005)

    def _run_tasks(self, message: TaskMessage) -> None:
        assert self._closure is not None
        assert self._plan is not None
        context = self._session.sparkContext
        try:
            context.addJobTag(self._tag)
            context.setLocalProperty("spark.job.description", f"{self._plan.job_name}: tasks")
            frame = self._session.range(0, self.tasks, 1, self.tasks)
            mapped_frame(frame, endless_function(self._closure, message)).toArrow()
            self._failed = "its Spark job has ended"
        except Exception as exc:
            lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
            self._failed = f"its Spark job failed: {(lines or [type(exc).__name__])[0][:300]}"
        self._links.on_event()

    def tell(self, task: int, command: TaskCommand) -> None:
        """Send a command over the task's control link."""
        self._links.tell(task, command)

    def task_events(self) -> list[TaskEvent]:
        """What tasks said; that they are gone, if Spark says so first."""
        events = self._links.events()
        self.moved = bool(events)
        if not events and self._failed is not None and self._spark_job is not None:
            return [TaskLost(task, self._failed) for task in range(self.tasks)]
        return events

    def end_tasks(self) -> None:
        """Tell every task to end; cancel the Spark job if one does not."""
        self._links.end()
        job, self._spark_job = self._spark_job, None
        if job is None:
            return
        job.join(_GRACE_S)
        deadline = time.monotonic() + self._cancellation.timeout_s
        while job.is_alive():
            self.interrupt()
            job.join(0.5)
            if self._cancellation.timeout_s and time.monotonic() > deadline:
                _log.warning(
                    "The Spark job of the tasks has not ended after it was cancelled; it is left behind."
                )
                return

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
