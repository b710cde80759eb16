"""The loop that keeps a job going: epochs while there is work, barriers, restarts, the user's requests.

It runs in a thread of its own. Everything a client asks for goes through a queue and is answered there, so
`JobExecution` and the engine are used by one thread only (what other threads may call says so). That thread
never runs user code nor touches a storage: it waits for them (`runtime.worker`) and meanwhile serves `cancel`,
lets checkpoints and requests for savepoints expire and notices lost slots.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tidemark.api.job import JobExecutionResult, JobStatus
from tidemark.checkpoint.messages import JobEnd
from tidemark.checkpoint.restart import GiveUp, decide
from tidemark.clock import has_passed
from tidemark.errors import (
    CheckpointError,
    ExecutionError,
    FailureReason,
    IllegalStateError,
    SparkLostError,
    UnsupportedOperationException,
)
from tidemark.futures import CompletableFuture
from tidemark.ids import JobID
from tidemark.job_logs import bind_thread
from tidemark.plan.job_plan import JobPlan
from tidemark.protocol.failure import is_curable
from tidemark.runtime.cancellation import Cancellation
from tidemark.runtime.execution import JobExecution

__all__ = ["AttemptFailure", "JobRunner"]

_log = logging.getLogger(__name__)

_IDLE_S = 0.02
"""Longest sleep of an idle loop; sources without notification are polled this often."""


_LAST_STATISTICS_S = 60.0
"""How long the last statistics of a job may take; no user code runs any more."""

_FINAL_TRIES = 3
"""How often the checkpoint at the end of input is tried where failures are tolerated."""


_FAILURES_KEPT = 100
"""Attempts whose failures displays can show."""


@dataclass(frozen=True, slots=True)
class AttemptFailure:
    """Why an attempt ended."""

    at: int
    """Milliseconds since the epoch."""
    attempt: int
    error: BaseException


class _Cancelled(Exception):
    """The user cancelled the job."""


class _Stopped(Exception):
    """The job was stopped with a savepoint."""


class _Rescaled(Exception):
    """The checkpoint is complete from which the job goes on with another parallelism."""


@dataclass(slots=True)
class _Rescale:
    """A change of the parallelism under way."""

    parallelism: int
    plan: JobPlan
    before: tuple[JobPlan, int]
    """Plan and parallelism to go back to if the new ones cannot be started."""
    outcome: CompletableFuture[str] = field(default_factory=CompletableFuture)


@dataclass(slots=True)
class _Request:
    """What a client asks of the job's thread, and when (ms)."""

    asked_at: int
    begin: Callable[[], CompletableFuture[str]]
    outcome: CompletableFuture[str] = field(default_factory=CompletableFuture)

    def serve(self) -> None:
        """Begin; the outcome follows what was begun."""
        try:
            inner = self.begin()
        except Exception as exc:
            self.outcome.set_exception(exc)
            return
        inner.add_done_callback(lambda done: _copy(done, self.outcome))


class JobRunner:
    """Runs one job from submission to its end."""

    def __init__(self, execution: JobExecution, on_end: Callable[[], None] = lambda: None) -> None:
        """Prepare the loop.

        Args:
            execution: The job.
            on_end: Called once, in the job's thread, after everything has been released.
        """
        self.execution = execution
        self.status = JobStatus.CREATED
        self.result: CompletableFuture[JobExecutionResult] = CompletableFuture()
        self.wake = threading.Event()
        execution.on_input = self.wake.set
        execution.engine.worker.while_waiting = self._while_waiting
        self.failures: list[int] = []
        self.failure: BaseException | None = None
        """Why the last attempt ended, for displays."""
        self.attempt_failures: deque[AttemptFailure] = deque(maxlen=_FAILURES_KEPT)
        """Why attempts ended, oldest first, for displays."""
        self._requests: deque[_Request] = deque()
        """Served in the job's thread, oldest first, or refused when the job is over."""
        self._cancelled = threading.Event()
        self._suspended = False
        self._ended = threading.Event()
        self._stop_future: CompletableFuture[str] | None = None
        self._draining = False
        self._rescale: _Rescale | None = None
        """Under way until an attempt runs with it, or does not."""
        self._ending = False
        self._end_by: float | None = None
        """Until when (monotonic) the end of a job that was given up waits for sinks and storage."""
        self._on_end = on_end
        self.started_at = time.time()
        """Seconds since 1970."""
        self._thread = threading.Thread(target=self._run, name=f"job-{execution.job_id[:8]}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self.status = JobStatus.RUNNING
        self._thread.start()

    def join(self, timeout: float | None = None) -> None:
        """Wait until the job has released everything."""
        self._ended.wait(timeout)

    # Requests, from any thread

    def cancel(self) -> None:
        """Ask for the end of the job, without a savepoint."""
        if not self._ended.is_set():
            if not self.status.is_terminal_state():
                self.status = JobStatus.CANCELLING
            self._cancelled.set()
            self.wake.set()
            self.execution.engine.interrupt()

    def suspend(self) -> None:
        """Ask for the end of this driver: another one goes on with the job, if one can. Else the same as `cancel`.

        A `cancel` that follows changes nothing about it.
        """
        self._suspended = self.execution.leadership is not None
        self.cancel()

    def savepoint(self, target: str | None) -> CompletableFuture[str]:
        """Ask for a savepoint."""
        self._refuse_in_batch_mode()
        return self._ask(lambda: self.execution.snapshots.request_savepoint(target))

    def checkpoint(self) -> CompletableFuture[str]:
        """Ask for a checkpoint now; the future gets its id as text."""
        self._refuse_in_batch_mode()
        return self._ask(self.execution.snapshots.request_checkpoint)

    def stop(self, drain: bool, target: str | None) -> CompletableFuture[str]:
        """Ask for a savepoint and the end of the job."""
        self._refuse_in_batch_mode()

        def begin() -> CompletableFuture[str]:
            if self._stop_future is not None:
                raise IllegalStateError("The job is being stopped already.")
            future = self.execution.snapshots.request_savepoint(target)
            # From now on nothing new is read. With drain, the end of time reaches the last operator first.
            self.execution.pause()
            if drain:
                self.execution.drain()
            self._stop_future, self._draining = future, drain
            return future

        return self._ask(begin)

    def rescale(self, parallelism: int) -> CompletableFuture[str]:
        """Ask for another parallelism; the future gets it as text when the job runs with it.

        The job takes a checkpoint, reads nothing behind it, and starts its next attempt from there.
        """
        self._refuse_in_batch_mode()

        def begin() -> CompletableFuture[str]:
            if self._stop_future is not None:
                raise IllegalStateError("The job is being stopped or rescaled already.")
            execution = self.execution
            plan = execution.rescaled_plan(parallelism)
            rescale = _Rescale(parallelism, plan, (execution.plan, execution.settings.parallelism))
            future = execution.snapshots.request_checkpoint(canonical=execution.rehashes(plan))
            execution.pause()
            self._stop_future, self._rescale = future, rescale
            return rescale.outcome

        return self._ask(begin)

    def _refuse_in_batch_mode(self) -> None:
        if self.execution.plan.batch_mode:
            raise UnsupportedOperationException(
                "A job in BATCH mode has no snapshots; run it in STREAMING mode."
            )

    def _ask(self, begin: Callable[[], CompletableFuture[str]]) -> CompletableFuture[str]:
        request = _Request(self.execution.clock.now(), begin)
        self._requests.append(request)
        self.wake.set()
        if self._ended.is_set():
            self._refuse_requests()
        return request.outcome

    # The job's thread

    def _run(self) -> None:
        bind_thread(self.execution.job_id)
        end, error = JobEnd.FAILED, None
        try:
            end, error = self._attempts()
        except BaseException as exc:
            _log.exception("The job's loop failed")
            error = exc
        finally:
            try:
                end = self._release(end)
            except Exception as exc:
                _log.warning("The job ended, but not cleanly: %s", exc, exc_info=True)
                if end is JobEnd.FINISHED:
                    end, error = JobEnd.FAILED, exc
            self._ending, self._end_by = True, None
            self._stop_engine()
            self._sweep()
            if self.execution.leadership is not None:
                self.execution.leadership.release()
            self._ended.set()
            if self._rescale is not None:
                self._rescale.outcome.set_exception(
                    IllegalStateError("The job ended before it was rescaled.")
                )
            self._refuse_requests()
            self._finish(end, error)
            self._on_end()

    def _release(self, end: JobEnd) -> JobEnd:
        """Last commits and cleaning up; tells how the job really ended.

        Raises:
            Exception: It was not clean; the first part that failed tells why.
        """
        if end is JobEnd.FINISHED:
            try:
                self.execution.end(end)
                return end
            except _Cancelled:
                end = self._cancelled_end()
        self._ending = True
        # Nothing of the attempt may run beside the last commits.
        self.execution.engine.settle()
        self._set_end()
        try:
            self.execution.end(end)
        except TimeoutError:
            self.execution.engine.worker.abandon()
            raise
        return end

    def _stop_engine(self) -> None:
        try:
            self.execution.engine.stop()
        except Exception:
            # Whoever waits for the job must hear how it ended, whatever stays behind.
            _log.warning("Something of the job stays behind", exc_info=True)

    def _sweep(self) -> None:
        self._set_end()
        worker = self.execution.engine.worker
        try:
            self.execution.snapshots.sweep()
            worker.close()
        except Exception:
            _log.warning("Leftovers of unfinished snapshots stay behind", exc_info=True)
            worker.abandon()

    def _set_end(self) -> None:
        patience = Cancellation.of(self.execution.settings.configuration).timeout_s
        self._end_by = time.monotonic() + patience if patience else None

    def _attempts(self) -> tuple[JobEnd, BaseException | None]:
        while True:
            try:
                self._attempt()
                # Gauges are user code, and whoever cancels is not to wait for them.
                self.execution.engine.worker.call(self.execution.refresh_statistics, _LAST_STATISTICS_S)
                self.execution.engine.finish()
                return JobEnd.FINISHED, None
            except _Rescaled:
                self._begin_rescaled()
                continue
            except _Stopped:
                return JobEnd.FINISHED, None
            except _Cancelled:
                return self._cancelled_end(), None
            except Exception as exc:
                if self._cancelled.is_set():
                    return self._cancelled_end(), None
                failure = self._judged(exc)
            self.failure = failure
            self.attempt_failures.append(
                AttemptFailure(self.execution.clock.now(), self.execution.attempt, failure)
            )
            self._leave_attempt()
            self._settle_rescale(failure)
            delay = self._restart_delay(failure)
            if delay is None:
                return self._failed_end(failure), failure
            self._tell_restart(failure, delay)
            self.status = JobStatus.RESTARTING
            if self._sleep_cancelled(delay):
                return self._cancelled_end(), None
            self.status = JobStatus.RUNNING

    def _judged(self, failure: Exception) -> Exception:
        """The failure of an attempt, unless it comes of what has ended every attempt here."""
        why = self.execution.engine.lost()
        if why is None:
            return failure
        job_id = self.execution.job_id
        remedy = "start the program again: it goes on from its last checkpoint if it is given that (-s PATH)"
        if self.execution.leadership is not None:
            remedy = "its next driver goes on with it"
        error = SparkLostError(
            f"{why}, so job {job_id} cannot go on in this process; {remedy}.", job_id=job_id
        )
        error.__cause__ = failure
        return error

    def _failed_end(self, failure: Exception) -> JobEnd:
        """A driver without its Spark is a dead driver, not a failed job: another one may lead it."""
        handed_over = isinstance(failure, SparkLostError) and self.execution.leadership is not None
        return JobEnd.SUSPENDED if handed_over else JobEnd.FAILED

    def _begin_rescaled(self) -> None:
        """Leave the attempt, which has nothing left to do, for one with another plan."""
        assert self._rescale is not None
        self._stop_future = None
        self._leave_attempt()
        self.execution.rescale(self._rescale.plan, self._rescale.parallelism)
        self.execution.resume()

    def _settle_rescale(self, error: BaseException | None = None) -> None:
        """An attempt runs with the new parallelism, or failed before it did: then the old one is tried again."""
        rescale, self._rescale = self._rescale, None
        if rescale is None:
            return
        if error is None:
            rescale.outcome.set_result(str(rescale.parallelism))
            return
        if self._stop_future is not None:
            # Its checkpoint may be complete, which must not be taken for the end of the job.
            self._forget_stop()
        if self.execution.plan is rescale.plan:
            self.execution.rescale(*rescale.before)
        rescale.outcome.set_exception(error)

    def _leave_attempt(self) -> None:
        try:
            self.execution.abandon_attempt()
        except Exception:
            _log.warning("Leaving the attempt was not clean", exc_info=True)

    def _tell_restart(self, failure: Exception, delay: int) -> None:
        """Say the whole failure once, and as a line while it stays the same."""
        said = str(failure)
        again = len(self.attempt_failures) > 1 and str(self.attempt_failures[-2].error) == said
        _log.warning(
            "Attempt %s failed and is restarted in %.1f s (restart %s; 'restart-strategy' says how often). %s",
            self.execution.attempt,
            delay / 1000,
            len(self.failures),
            f"As before: {said.splitlines()[0]}" if again and said else said,
        )

    def _cancelled_end(self) -> JobEnd:
        return JobEnd.SUSPENDED if self._suspended else JobEnd.CANCELED

    def _restart_delay(self, failure: Exception) -> int | None:
        now = self.execution.clock.now()
        self.failures.append(now)
        if not is_curable(failure):
            return None
        spread = random.uniform(-1, 1)  # drivers that failed together shall not come back together
        decision = decide(self.execution.settings.restart_strategy, now, self.failures, spread)
        return None if isinstance(decision, GiveUp) else decision.delay_ms

    def _sleep_cancelled(self, delay: int) -> bool:
        begun = self.execution.clock.now()
        while not has_passed(delay, begun, now := self.execution.clock.now()):
            if self._cancelled.is_set():
                return True
            self.wake.wait(min((begun + delay - now) / 1000, _IDLE_S))
            self.wake.clear()
        return self._cancelled.is_set()

    def _attempt(self) -> None:
        execution = self.execution
        stop = self._stop_future
        if stop is not None and not (stop.done() and stop.exception() is None):
            self._forget_stop()
        execution.start_attempt()
        self._settle_rescale()
        while True:
            self._serve()
            self._settle_stop()
            execution.tick()
            moved = execution.advance()
            if moved:
                # An epoch that was interrupted is incomplete: no snapshot may contain it.
                self._serve()
            if self._stop_future is not None:
                if not self._draining or not execution.draining():
                    self._stop()
                elif not moved:
                    self._rest()
                continue
            execution.barrier()
            if not execution.backend.asynchronous:
                self._until_none_pending()
            if not moved:
                if execution.finished():
                    self._final_checkpoint()
                    return
                self._rest()

    def _rest(self) -> None:
        """Wait until somebody has something to say, or something is due."""
        self.wake.wait(self._idle_time())
        self.wake.clear()

    def _stop(self) -> None:
        """Take the savepoint, or the checkpoint to rescale from, and run no epoch between it and the end."""
        stop = self._stop_future
        assert stop is not None
        if self._rescale is not None:
            # Unlike a savepoint, it waits for the one under way, and would wait for a pause behind it.
            self._until_none_pending()
            self.execution.coordinator.request_checkpoint(self.execution.clock.now())
        self.execution.barrier()
        self._until(stop.done)
        self._settle_stop()

    def _settle_stop(self) -> None:
        """End the job if its last savepoint is complete; go on if it failed.

        Raises:
            CheckpointError: It failed after a drain; with time at its end the attempt cannot go on.
        """
        if self._stop_future is None or not self._stop_future.done():
            return
        error = self._stop_future.exception()
        if error is None:
            raise _Stopped if self._rescale is None else _Rescaled
        drained = self._draining
        if self._rescale is not None:
            self._settle_rescale(error)
            return
        self._forget_stop()
        if drained:
            raise error

    def _forget_stop(self) -> None:
        self._stop_future, self._draining = None, False
        self.execution.resume()

    def _serve(self) -> None:
        if self._cancelled.is_set():
            raise _Cancelled
        while self._requests:
            self._requests.popleft().serve()

    def _while_waiting(self) -> None:
        """The job's thread waits for user code or a storage: what cannot wait."""
        if self._ending:
            self._refuse_requests()
            if self._end_by is not None and time.monotonic() > self._end_by:
                raise TimeoutError("A sink or a storage did not return within task.cancellation.timeout.")
            return
        if self._cancelled.is_set():
            raise _Cancelled
        self._expire_requests()
        self.execution.observe()

    def _expire_requests(self) -> None:
        """Nobody waits longer for a savepoint to begin than it may take."""
        timeout = self.execution.settings.checkpointing.timeout
        latest = self.execution.clock.now() - timeout
        while self._requests and self._requests[0].asked_at <= latest:
            message = (
                f"The savepoint has not begun after {timeout} ms: the job waits for user code or a storage."
            )
            error = CheckpointError(message, reason=FailureReason.EXPIRED)
            self._requests.popleft().outcome.set_exception(error)

    def _final_checkpoint(self) -> None:
        """Cover everything the job produced, so that the last commits survive a crash amid them."""
        if not self.execution.settings.checkpointing.enabled:
            return
        execution, coordinator = self.execution, self.execution.coordinator
        self._until_none_pending()
        for _try in range(_FINAL_TRIES):
            wanted = coordinator.next_checkpoint_id
            coordinator.request_checkpoint(execution.clock.now())
            execution.barrier()
            self._until_none_pending()
            newest = coordinator.completed.latest_checkpoint()
            if newest is not None and newest.checkpoint_id >= wanted:
                return
        _log.warning("The final checkpoint failed; a crash during the last commits would repeat records.")

    def _until_none_pending(self) -> None:
        self._until(lambda: not self.execution.coordinator.pending())

    def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._serve()
            self.execution.tick()
            if not condition():
                self.wake.wait(_IDLE_S)
                self.wake.clear()

    def _idle_time(self) -> float:
        now = self.execution.clock.now()
        times = [_IDLE_S]
        for due in (self.execution.next_timer(), self.execution.coordinator.next_wakeup(now)):
            if due is not None:
                times.append(max(0.0, (due - now) / 1000))
        return min(times)

    def _refuse_requests(self) -> None:
        while True:
            try:
                request = self._requests.popleft()
            except IndexError:
                return
            request.outcome.set_exception(IllegalStateError("The job is not running any more."))

    def _finish(self, end: JobEnd, error: BaseException | None) -> None:
        job_id = JobID(self.execution.job_id)
        if end is JobEnd.FINISHED:
            self.status = JobStatus.FINISHED
            runtime = round((time.time() - self.started_at) * 1000)
            self.result.set_result(JobExecutionResult(job_id, runtime, self.execution.accumulators()))
        elif end is JobEnd.CANCELED:
            self.status = JobStatus.CANCELED
            self.result.set_exception(ExecutionError(f"Job {job_id} was cancelled.", job_id=job_id))
        elif end is JobEnd.SUSPENDED:
            self.status = JobStatus.SUSPENDED
            message = f"Job {job_id} was suspended: its next driver goes on with it."
            self.result.set_exception(error or ExecutionError(message, job_id=job_id))
        else:
            self.status = JobStatus.FAILED
            assert error is not None
            if not isinstance(error, ExecutionError):
                error = ExecutionError.from_cause(f"Job {job_id} failed", error, job_id=job_id)
            self.result.set_exception(error)


def _copy(done: Any, outcome: CompletableFuture[str]) -> None:
    error = done.exception()
    if error is not None:
        outcome.set_exception(error)
    else:
        outcome.set_result(done.result())
