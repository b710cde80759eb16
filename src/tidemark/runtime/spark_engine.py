"""Runs epochs on Spark: one job with one stage per epoch, slots beside the executors."""

from __future__ import annotations

import logging
import pickle
import threading
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidemark.api.graph import NodeKind
from tidemark.errors import ExecutionError, SlotLostError
from tidemark.plan.job_plan import JobPlan
from tidemark.plan.vertex import Placement, Vertex, dump_functions
from tidemark.protocol.deployment import Deployment
from tidemark.protocol.events import SlotEvent
from tidemark.protocol.frames import CutRequest, EraseRequest
from tidemark.runtime.cancellation import Cancellation
from tidemark.runtime.engine import EpochResult, EpochWork
from tidemark.runtime.session import lost
from tidemark.runtime.sinks.dataframes import frame_schema
from tidemark.runtime.sinks.factory import wants_frame
from tidemark.runtime.sinks.task import row_tag, small_tag
from tidemark.runtime.slot_manager import SlotManager
from tidemark.runtime.slot_statistics import SlotStatistics
from tidemark.runtime.spark_task import (
    EPOCH_PROPERTY,
    REPORT_TAG,
    ROW_SCHEMA,
    EpochMessage,
    TaskClosure,
    task_function,
)
from tidemark.runtime.worker import Worker
from tidemark.tls import TlsFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SparkEngine", "mapped_frame", "spark_reason"]

_log = logging.getLogger(__name__)

_BLOCKED_S = 1.0
"""Patience with slots that are asked whether user code keeps them; they answer at once."""


class SparkEngine:
    """Engine of the Spark executor."""

    def __init__(
        self,
        session: SparkSession,
        job_id: str,
        token: bytes,
        slots: SlotManager,
        cancellation: Cancellation | None = None,
        shipped_files: bool = False,
        tls: TlsFiles | None = None,
    ) -> None:
        """Run epochs of one job.

        Args:
            session: Where its Spark jobs run.
            job_id: The job.
            token: What every peer of a slot has to know.
            slots: Its slots.
            cancellation: Patience with a Spark job that does not end when it is cancelled.
            shipped_files: Whether tasks run where Spark puts the files of the job.
            tls: What TCP connections of tasks are encrypted with.
        """
        self._session = session
        self._job_id = job_id
        self._token = token
        self._slots = slots
        self._shipped_files = shipped_files
        self._tls = tls
        self._tag = f"tidemark-{job_id}"
        self._plan: JobPlan | None = None
        self._closure: TaskClosure | None = None
        self._own: dict[int, DataFrame] = {}
        self._columns: dict[int | None, Any] = {}
        self._tagged = threading.local()
        self._statistics = SlotStatistics()
        self._figures = SlotStatistics()
        self._cancellation = cancellation or Cancellation()
        self.worker = Worker(f"epochs-{job_id[:8]}")
        self.query_addresses: dict[int, str] = {}
        """Slot -> where it answers queries, of those that do."""
        slots.on_silent = self.interrupt
        slots.while_waiting = lambda: self.worker.while_waiting()

    def start(self, plan: JobPlan, attempt: int) -> None:
        """Settle the attempt before, prepare the task function and have every slot alive."""
        if attempt:
            self.settle()
        self._statistics.clear()
        self._figures.clear()
        if self._closure is None or plan is not self._plan:
            self._plan = plan
            self._closure = TaskClosure(
                plan.with_vertices({}),
                dump_functions([_for_tasks(vertex) for vertex in plan.vertices.values()]),
                self._token,
                self._shipped_files,
                self._tls,
            )
            self._own.clear()
            self._columns.clear()
        self.worker.call(self._slots.ensure, plan.slots)

    def settle(self) -> None:
        """End the running Spark job, then close the operators of every slot; kill slots that do not return."""

        def complain(seconds: float) -> None:
            _log.warning("A Spark job has not ended %.0f s after it was cancelled.", seconds)

        def interrupt() -> None:
            # Again and again: the thread may have been about to submit a job when it was first done.
            self.interrupt()
            self.worker.while_waiting()

        last = self.worker.post(lambda: None)
        if not self._cancellation.settled([last], interrupt, complain):
            _log.warning("The thread that waits for a Spark job is left behind. %s", self.worker.stack())
            self.worker.abandon()
        self._slots.settle()

    def deploy(self, deployments: list[Deployment]) -> None:
        """Deploy to all slots at once."""
        answers = self._request_all("deploy", deployments)
        self.query_addresses = {
            slot: answer["query_address"]
            for slot, answer in answers.items()
            if answer["query_address"] is not None
        }

    def _request_all(self, name: str, payloads: Any = None) -> dict[int, Any]:
        """Ask every slot; raises what the first one answered that failed."""
        answers = self._slots.request_all(name, payloads)
        for answer in answers.values():
            if isinstance(answer, BaseException):
                raise answer
        return answers

    def run_epoch(self, work: EpochWork) -> EpochResult:
        """Run the epoch as one Spark job.

        Raises:
            ExecutionError: A Spark task or worker died.
        """
        return self.worker.call(self._run_epoch, work)

    def _run_epoch(self, work: EpochWork) -> EpochResult:
        assert self._plan is not None
        context = self._session.sparkContext
        if not hasattr(self._tagged, "done"):
            # Lets `interrupt` reach the Spark jobs of this thread, those of sinks among them.
            context.addJobTag(self._tag)
            self._tagged.done = True
        message = EpochMessage(work.directive, work.inputs, self._slots.addresses())
        context.setLocalProperty(EPOCH_PROPERTY, message.encode())
        context.setLocalProperty(
            "spark.job.description", f"{self._plan.job_name}: epoch {work.directive.epoch}"
        )
        try:
            result = self._collect(self._frame(work))
        except ExecutionError:
            raise
        except Exception as exc:
            raise _spark_failure(exc, work.directive.epoch, self._job_id) from exc
        if not result.reports:
            # A DataFrame without partitions ran no task at all; time still has to move.
            result.release()
            return self._run_epoch(EpochWork(work.directive))
        return result

    def _frame(self, work: EpochWork) -> DataFrame:
        frames = []
        if work.inputs or not work.dataframes:
            frames.append(self._own_frame(max(1, len(work.inputs))))
        for source, frame in work.dataframes.items():
            frames.append(self._mapped(frame, source))
        whole = frames[0]
        for other in frames[1:]:
            whole = whole.union(other)
        return whole

    def _own_frame(self, count: int) -> DataFrame:
        frame = self._own.get(count)
        if frame is None:
            # The plan of a frame without shuffle can be run again and again; it reads the local property anew.
            frame = self._own[count] = self._mapped(self._session.range(0, count, 1, count), None)
        return frame

    def _mapped(self, frame: DataFrame, source: int | None) -> DataFrame:
        assert self._closure is not None
        column = self._columns.get(source)
        if column is None:
            column = self._columns[source] = _map_column(frame, task_function(self._closure, source))
        return _map(frame, column)

    def _collect(self, frame: DataFrame) -> EpochResult:
        assert self._plan is not None
        sinks = [v for v in self._plan.of_kind(NodeKind.SINK) if wants_frame(v.spec)]
        result = EpochResult()
        if not sinks:
            _sort_rows(frame.toArrow(), result)
            return result
        cached = frame.persist()
        result.release = lambda: cached.unpersist(blocking=False)
        try:
            self._take_frames(cached, sinks, result)
        except BaseException:
            result.release()
            raise
        return result

    def _take_frames(self, cached: DataFrame, sinks: list[Vertex], result: EpochResult) -> None:
        from pyspark.sql import DataFrame

        large = [row_tag(vertex.id) for vertex in sinks]
        _sort_rows(cached.filter(~cached.tag.isin(large)).toArrow(), result)
        for vertex in sinks:
            parts = []
            small = result.rows.pop(small_tag(vertex.id), None)
            if small is not None:
                parts.append(_local(self._session, small, vertex))
            if any(vertex.id in report.large_frames for report in result.reports):
                parts.append(_decoded(cached, vertex))
            if parts:
                result.frames[vertex.id] = reduce(DataFrame.union, parts)

    def cut(self, request: CutRequest) -> list[tuple[int, BaseException | int]]:
        """Synchronous part on every slot."""
        return list(self._slots.request_all("cut", request).items())

    def notify_complete(self, checkpoint_id: int) -> None:
        """Tell every slot; raises what a user's listener raised."""
        self._request_all("complete", checkpoint_id)
        # Not before: what starts or restores a job needs the cores itself.
        self._slots.keep_spares()

    def notify_aborted(self, checkpoint_id: int) -> None:
        """Tell every slot."""
        self._slots.send_all("aborted", checkpoint_id)

    def finish(self) -> None:
        """Close the operators of every slot."""
        self._request_all("finish")

    def source_status(self) -> dict[int, dict[int, dict[str, Any]]]:
        """Statuses of all source functions.

        Raises:
            SlotLostError: A slot is gone.
        """
        statuses: dict[int, dict[int, dict[str, Any]]] = {}
        for slot, answer in self._request_all("sources").items():
            for vertex, status in answer.items():
                statuses.setdefault(vertex, {})[slot] = status
        return statuses

    def blocked_ms(self) -> int:
        """The longest wait for user code in a slot; of slots that do not say, their heartbeat tells."""
        answers = self._slots.ask_all("blocked", None, _BLOCKED_S).values()
        return max((answer for answer in answers if isinstance(answer, int)), default=0)

    def stats(self, timeout: float) -> list[dict[str, Any]]:
        """Statistics of every slot; what it said last of one that is busy."""
        answers = self._slots.ask_all("stats", timeout / 2, timeout)
        return self._statistics.update(answers, list(answers))

    def erase(self, request: EraseRequest, timeout: float) -> list[dict[str, dict[str, int]]]:
        """Forget a key in every slot."""
        answers = self._slots.ask_all("erase", request, timeout)
        for answer in answers.values():
            if isinstance(answer, BaseException):
                raise answer
        return list(answers.values())

    def figures(self, timeout: float) -> list[dict[str, Any]]:
        """Figures of every slot; what it said last of one that is busy."""
        answers = self._slots.ask_all("figures", timeout / 2, timeout)
        return self._figures.update(answers, list(answers))

    def slot_log(self, slot: int, timeout: float) -> str | None:
        """The end of a slot's log file, wherever it runs."""
        try:
            told: str | None = self._slots.request(slot, "log").result(timeout)
        except Exception as exc:
            _log.debug("Slot %s did not tell its log: %s", slot, exc)
            return None
        return told

    def slot_pids(self) -> dict[int, int]:
        """Process id of every slot."""
        return self._slots.pids()

    def spare_pids(self) -> list[int]:
        """Process ids of the slots that wait to be needed."""
        return self._slots.spare_pids()

    def events(self) -> list[SlotEvent]:
        """What slots said since the last call."""
        return self._slots.events()

    def lost(self) -> str | None:
        """Whether Spark itself is gone."""
        return lost(self._session)

    def interrupt(self) -> None:
        """Cancel the running Spark job, from another thread."""
        try:
            self._session.sparkContext.cancelJobsWithTag(self._tag)
        except Exception as exc:
            _log.debug("Cancelling the epoch's Spark job failed: %s", exc)

    def stop(self) -> None:
        """End every slot."""
        try:
            self._slots.stop()
        except (SlotLostError, OSError) as exc:
            _log.warning("Ending the slots was not clean: %s", exc)
        self.worker.close()


def mapped_frame(frame: DataFrame, function: Any) -> DataFrame:
    """A frame of tagged rows made by `function` from the batches of another frame."""
    return _map(frame, _map_column(frame, function))


def _map_column(frame: DataFrame, function: Any) -> Any:
    """What DataFrame.mapInArrow makes for every frame; can be kept, and does not need pandas."""
    from pyspark.sql.functions import col
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    udf = UserDefinedFunction(function, returnType=ROW_SCHEMA, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    return udf(*[col(f"`{name}`") for name in frame.columns])._jc


def _map(frame: DataFrame, column: Any) -> DataFrame:
    from pyspark.sql import DataFrame

    return DataFrame(frame._jdf.mapInArrow(column, False, None), frame.sparkSession)


def _for_tasks(vertex: Vertex) -> Vertex:
    """A vertex without what tasks never use: a source's DataFrame, a sink's driver-side objects, code of slots."""
    if vertex.kind is NodeKind.OPERATOR and vertex.placement is Placement.TASK:
        return vertex
    return replace(vertex, spec=vertex.spec.for_tasks())


def _sort_rows(table: pa.Table, result: EpochResult) -> None:
    tags = table.column(0).to_pylist()
    payloads = table.column(1).to_pylist()
    for tag, payload in zip(tags, payloads, strict=True):
        if tag == REPORT_TAG:
            result.reports.append(pickle.loads(payload))
        else:
            result.rows.setdefault(tag, []).append(payload)


def _local(session: SparkSession, payloads: list[bytes], vertex: Vertex) -> DataFrame:
    """A frame of few rows, made here: reading it takes no Python worker."""
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = frame_schema(vertex)
    batches = [batch for payload in payloads for batch in pa.ipc.open_stream(payload)]
    return session.createDataFrame(pa.Table.from_batches(batches, schema), from_arrow_schema(schema))


def _decoded(cached: DataFrame, vertex: Vertex) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = frame_schema(vertex)

    def decode(batches: Any) -> Any:
        for batch in batches:
            for payload in batch.column("payload").to_pylist():
                yield from pa.ipc.open_stream(payload)

    return cached.filter(cached.tag == row_tag(vertex.id)).mapInArrow(decode, from_arrow_schema(schema))


def spark_reason(exc: Exception) -> str:
    """The line of an error of Spark's that says most; the first one often only says which call failed."""
    lines = [line.strip(" :\t") for line in str(exc).splitlines() if line.strip(" :\t")]
    told = next(
        (
            line
            for line in lines
            if "Error" in line or "Exception" in line or "exited" in line or "lost" in line
        ),
        lines[0] if lines else type(exc).__name__,
    )
    return told[:500]


def _spark_failure(exc: Exception, epoch: int, job_id: str) -> ExecutionError:
    return ExecutionError(
        f"The Spark job of epoch {epoch} failed: {spark_reason(exc)}", job_id=job_id, epoch=epoch
    )
