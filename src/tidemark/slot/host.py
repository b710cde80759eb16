"""A slot without its process: the operators of one subtask index, fenced, driven one call at a time.

The server wraps a host with sockets and threads; the local executor calls it directly. What a host is
told by one channel must come in order and once: a frame of another attempt, of an older epoch, or out of
sequence is refused. A retried Spark task therefore fails its epoch (in continuous execution: its attempt) instead
of applying records twice.

In epochs the driver has every operator cut at once, when nothing is in flight (`cut`). In continuous execution
barriers come on the channels, and each operator is cut when the last one has reached it (`offer`, `slot.gate`).
"""

from __future__ import annotations

import logging
import pickle
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tidemark.api.graph import NodeKind
from tidemark.checkpoint.local_copies import LocalCopies
from tidemark.checkpoint.messages import BarrierTimes
from tidemark.checkpoint.metadata.model import SubtaskState
from tidemark.checkpoint.storage.base import Storage
from tidemark.clock import Clock
from tidemark.errors import (
    CheckpointError,
    ExecutionError,
    IllegalStateError,
    RestoreError,
    StaleChannelError,
    StorageError,
)
from tidemark.metrics.registry import MetricRegistry
from tidemark.operators.base import Operator
from tidemark.operators.keyed_operator import KeyedOperator
from tidemark.operators.source import SourceOperator
from tidemark.plan.vertex import Vertex, load_functions
from tidemark.protocol.channels import ChannelAnswer, ChannelHeader, FrameKind
from tidemark.protocol.deployment import Deployment
from tidemark.protocol.failure import FailureInfo, OperatorFailed
from tidemark.protocol.frames import BatchHeader, CutRequest, EraseRequest
from tidemark.slot.alignment import Alignment
from tidemark.slot.figures import operator_figures
from tidemark.slot.gate import Gate
from tidemark.slot.mailbox import Mailbox
from tidemark.slot.slot_subtask import SlotSubtask
from tidemark.state.backend import KeyedStateBackend
from tidemark.state.descriptors import StateDescriptor
from tidemark.subtask.snapshots import PendingCuts, write_cuts
from tidemark.subtask.task_state import TaskStateManager

__all__ = ["SlotHost"]

_log = logging.getLogger(__name__)


class SlotHost:
    """Hosts subtask `index` of every operator of a job."""

    def __init__(self, clock: Clock, storage: Storage, scratch: Path) -> None:
        """Create an empty host.

        Args:
            clock: Time of all operators.
            storage: Where snapshots are written and read.
            scratch: Private local directory; the host creates and deletes what is below.
        """
        self.metrics = MetricRegistry()
        self._clock = clock
        self._storage = storage
        self._scratch = scratch
        self._lock = threading.RLock()
        self._released = threading.Condition(self._lock)
        """Notified when frames that a gate held back may go on, or will never."""
        self._mailbox = Mailbox(self._lock)
        self._tasks: dict[int, SlotSubtask] = {}
        self._gates: dict[int, Gate] = {}
        """Of every vertex, in continuous execution."""
        self._alignment = Alignment()
        self._channels: dict[tuple[int, int, int], int] = {}
        self._epoch = -1
        self._failed: FailureInfo | None = None
        self._deployment: Deployment | None = None
        """What is deployed, None while nothing is."""
        self.is_continuous = False
        """Whether barriers come on the channels of what was deployed last; late frames of it are to be understood."""
        self._state: TaskStateManager | None = None
        self._local: LocalCopies | None = None
        """Copies of checkpoints on this machine; they outlive the attempt."""
        self._cuts = PendingCuts()
        self.queryable: dict[str, tuple[StateDescriptor, KeyedStateBackend, str]] = {}
        self.on_ready: Callable[[], None] = lambda: None
        """Called, from any thread, when a source function has something new."""
        self.on_cut: Callable[[CutRequest], None] = lambda _request: None
        """Called under the lock when barriers on the channels have cut every operator: `write` it."""
        self.on_declined: Callable[[CutRequest, CheckpointError], None] = lambda _request, _why: None
        """Called under the lock when an operator could not be cut."""

    def deploy(self, deployment: Deployment) -> None:
        """Build, restore and open every operator; a previous attempt is closed first.

        Raises:
            StorageError, RestoreError: The snapshot cannot be used.
            ExecutionError: The user's code failed: names the operator and chains the cause. The host is
                then empty again.
        """
        with self._lock:
            self.reset()
            state = self._state = TaskStateManager(deployment, self._storage, self._scratch)
            self._deployment = deployment
            self.is_continuous = deployment.channels > 0
            self._local = state.local
            try:
                vertices = [
                    vertex
                    for vertex in load_functions(deployment.vertices)
                    if deployment.slot < vertex.parallelism
                ]
                stores = sum(vertex.keyed or vertex.single_key for vertex in vertices)
                shared = replace(deployment, backend=deployment.backend.shared_by(stores))
                for vertex in vertices:
                    self._start(vertex, shared, state)
                    if deployment.channels:
                        at = self._tasks[vertex.id].watermark
                        self._gates[vertex.id] = _gate(vertex, deployment, at)
            except BaseException:
                self.reset()
                raise

    def reset(self) -> None:
        """Close every operator and forget the attempt."""
        with self._lock:
            for task in reversed(list(self._tasks.values())):
                try:
                    task.close()
                except Exception:
                    _log.warning("close() of operator '%s' failed", task.info.name, exc_info=True)
            self._cuts.clear()
            self._tasks.clear()
            self._channels.clear()
            self._gates.clear()
            self._alignment = Alignment()
            self._released.notify_all()
            self.queryable.clear()
            self._failed = None
            self._epoch = -1
            if self._state is not None:
                self._state.close()
            self._deployment = self._state = None
            shutil.rmtree(self._scratch, ignore_errors=True)

    def finish(self) -> None:
        """The input has ended and everything is processed: close every operator.

        Raises:
            ExecutionError: A user's `close` failed; the others were closed all the same.
        """
        failure: FailureInfo | None = None
        with self._lock:
            for task in reversed(list(self._tasks.values())):
                try:
                    task.close()
                except Exception as exc:
                    failure = failure or self._describe(exc, task)
            self._tasks.clear()
            self.queryable.clear()
        if failure is not None:
            raise failure.error()

    def close(self) -> None:
        """The job is over: close every operator and delete local copies of its checkpoints."""
        self.reset()
        if self._local is not None:
            self._local.close()

    def handle(self, raw_header: Any, body: Any) -> tuple[Any, Any]:
        """Process one data frame and return the answering frame; failures are answers too."""
        header = BatchHeader(*raw_header)
        task: SlotSubtask | None = None
        with self._lock:
            self._mailbox.run()
            try:
                task = self._enter(header)
                return task.process(header, body, self._mailbox.run, self.queryable)
            except Exception as exc:
                return ("error",), self._fail(exc, task)

    def handle_channel(self, raw_header: Any, body: Any) -> tuple[Any, Any]:
        """`offer` a frame until its gate lets it in, and return the answering frame; failures are answers too."""
        header = ChannelHeader(*raw_header)
        if header.wait_ms and isinstance(source := self._operator(header.vertex), SourceOperator):
            source.wait_ready(header.wait_ms / 1000)
        with self._released:
            while (answer := self.offer(header, body)) is None:
                self._released.wait()
        return answer

    def offer(self, raw_header: Any, body: Any) -> tuple[Any, Any] | None:
        """Process one frame of a channel, as `handle` does; None if its gate holds it back for now."""
        header = ChannelHeader(*raw_header)
        task: SlotSubtask | None = None
        with self._lock:
            self._mailbox.run()
            try:
                self._refuse_stale(header.attempt)
                task, gate = self._tasks[header.vertex], self._gates[header.vertex]
                if header.kind == FrameKind.BARRIER:
                    gate.enter(header.channel, header.sequence)
                    return self._barrier(task, gate, header, pickle.loads(body)), b""
                if gate.holds(header.channel):
                    gate.note_held(header.channel, header.sequence)
                    return None
                gate.enter(header.channel, header.sequence)
                return task.process_channel(header, body, gate, self._mailbox.run, self.queryable)
            except Exception as exc:
                return ChannelAnswer("error"), self._fail(exc, task)

    def _barrier(
        self, task: SlotSubtask, gate: Gate, header: ChannelHeader, request: CutRequest
    ) -> ChannelAnswer:
        """Take a barrier; the last one cuts the operator, the last operator completes the slot's part."""
        last = gate.barrier(header.channel, request.checkpoint_id)
        if last or gate.behind(header.channel) is not None:
            delay = self._clock.now() - request.timestamp
            self._alignment.begin(task.info.uid, request.checkpoint_id, delay)
        if last:
            self._alignment.end(task.info.uid, request.checkpoint_id)
            self._released.notify_all()
            try:
                if self._cuts.add(request, task) == len(self._tasks):
                    self.on_cut(request)
            except CheckpointError as exc:
                self.on_declined(request, exc)
        timer = task.operator.next_processing_timer()
        return ChannelAnswer("ok", timer, gate.watermark, gate.idle)

    def _operator(self, vertex: int) -> Operator | None:
        task = self._tasks.get(vertex)
        return None if task is None else task.operator

    def _fail(self, exc: Exception, task: SlotSubtask | None) -> bytes:
        """Remember what went wrong with a frame; the body of the answer that tells it."""
        info = self._describe(exc, task)
        if not isinstance(exc, StaleChannelError):
            self._failed = info
            # The barriers that held frames wait for will not come any more.
            self._released.notify_all()
        return pickle.dumps(info)

    def cut(self, request: CutRequest) -> int:
        """Synchronous part of a snapshot of every operator; returns how long it took in ms.

        Raises:
            CheckpointError: `DECLINED`: a user function failed in `snapshot_state`.
        """
        started = time.perf_counter()
        with self._lock:
            self._mailbox.run()
            if self._deployment is not None:
                self._cuts.make(request, self._tasks.values())
        return round((time.perf_counter() - started) * 1000)

    def write(self, request: CutRequest) -> dict[str, SubtaskState]:
        """Asynchronous part of the snapshot cut before; call it from any one thread.

        Raises:
            StorageError: The bytes could not be written.
            CheckpointError: The snapshot was given up meanwhile, or the state is larger than the memory
                backend may carry.
        """
        with self._lock:
            cuts, state = self._cuts.take(request.checkpoint_id), self._state
        # Nothing can be cut while nothing is deployed, and `reset` gives up what was.
        assert state is not None
        return write_cuts(cuts, request, state.writer)

    def barrier_times(self, checkpoint_id: int) -> dict[str, BarrierTimes]:
        """When the barriers of a checkpoint came to each operator; told once, and empty in epochs."""
        with self._lock:
            return self._alignment.take(checkpoint_id)

    def notify_complete(self, checkpoint_id: int) -> None:
        """The checkpoint is complete for the whole job.

        Raises:
            Whatever a user's `notify_checkpoint_complete` raises; it fails the attempt.
        """
        with self._lock:
            self._mailbox.run()
            if self._local is not None:
                self._local.completed(checkpoint_id)
            for task in self._tasks.values():
                task.operator.notify_checkpoint_complete(checkpoint_id)

    def notify_aborted(self, checkpoint_id: int) -> None:
        """The checkpoint was given up."""
        with self._lock:
            self._cuts.drop(checkpoint_id)
            for gate in self._gates.values():
                gate.abort(checkpoint_id)
            self._alignment.take(checkpoint_id)
            self._released.notify_all()
            if self._local is not None:
                self._local.aborted(checkpoint_id)
            for task in self._tasks.values():
                task.operator.notify_checkpoint_aborted(checkpoint_id)

    def source_status(self) -> dict[int, dict[str, Any]]:
        """Vertex -> status of each source function here (see `SourceOperator.status`)."""
        return {
            vertex_id: task.operator.status()
            for vertex_id, task in list(self._tasks.items())
            if isinstance(task.operator, SourceOperator)
        }

    def blocked_ms(self) -> int:
        """For how long one call into user code has kept this slot, 0 if none does; from any thread, in a moment."""
        return round(self._mailbox.silent_for() * 1000)

    def current_attempt(self) -> int:
        """The attempt that is deployed, -1 if none is or if it has failed here, perhaps amid a record."""
        deployment = self._deployment
        return -1 if deployment is None or self._failed is not None else deployment.attempt

    def published(self) -> dict[str, tuple[int, int]]:
        """Queryable name -> (max parallelism, parallelism) of the operator that published it here."""
        infos = {task.info.uid: task.info for task in self._tasks.values()}
        return {
            name: (infos[uid].max_parallelism, infos[uid].parallelism)
            for name, (_descriptor, _backend, uid) in self.queryable.items()
        }

    def stats(self, timeout: float | None = None) -> dict[str, Any]:
        """Number of keyed entries, user metrics and figures of the stores of this slot.

        Raises:
            TimeoutError: User code did not let the question in within `timeout` seconds.
        """

        def collect() -> dict[str, Any]:
            entries = 0
            stores: dict[str, dict[str, int]] = {}
            for task in self._tasks.values():
                backend = getattr(task.operator, "backend", None)
                if backend is not None:
                    entries += backend.num_entries()
                    if figures := backend.native_metrics():
                        stores[task.info.uid] = figures
            return {"entries": entries, "metrics": self.metrics.snapshot(), "stores": stores}

        return self._mailbox.ask(collect, timeout)  # type: ignore[no-any-return]

    def figures(self, timeout: float | None = None) -> dict[str, Any]:
        """What displays show of this slot; nothing is counted that is not known anyway.

        Returns:
            `slot`, `attempt`, `metrics` of user functions, and `operators`: uid -> figures of its subtask here.

        Raises:
            TimeoutError: User code did not let the question in within `timeout` seconds.
        """

        def collect() -> dict[str, Any]:
            deployment = self._deployment
            return {
                "slot": None if deployment is None else deployment.slot,
                "attempt": -1 if deployment is None else deployment.attempt,
                "metrics": self.metrics.snapshot(),
                "operators": {
                    task.info.uid: operator_figures(task, self._gates.get(vertex))
                    for vertex, task in self._tasks.items()
                },
            }

        return self._mailbox.ask(collect, timeout)  # type: ignore[no-any-return]

    def erase(self, request: EraseRequest) -> dict[str, dict[str, int]]:
        """Forget a key in the keyed operators here, between two chunks of records.

        Returns:
            Operator uid -> state -> rows that were dropped.

        Raises:
            IllegalStateError: Another attempt is deployed, or it has failed here.
        """

        def forget() -> dict[str, dict[str, int]]:
            if self.current_attempt() != request.attempt:
                raise IllegalStateError(f"Attempt {request.attempt} does not run here any more.")
            return {
                task.info.uid: task.operator.erase_key(request.keys[task.info.uid])
                for task in self._tasks.values()
                if task.info.uid in request.keys and isinstance(task.operator, KeyedOperator)
            }

        return self._mailbox.ask(forget)  # type: ignore[no-any-return]

    def ask(self, question: Callable[[], Any]) -> Any:
        """Run `question` between two chunks of records, never inside one; from any thread."""
        return self._mailbox.ask(question)

    def abandon(self) -> None:
        """Refuse everything from now on without waiting for user code, whose thread is left behind.

        Records of the attempt are refused, snapshots are not written, questions fail and source functions emit
        nothing any more.
        """
        self._deployment = self._state = None
        self._mailbox.close()
        for task in list(self._tasks.values()):
            if isinstance(task.operator, SourceOperator):
                task.operator.disconnect()

    def _enter(self, header: BatchHeader) -> SlotSubtask:
        self._refuse_stale(header.attempt)
        if header.epoch < self._epoch:
            raise StaleChannelError(
                f"Records of epoch {header.epoch} came in epoch {self._epoch}; they were refused."
            )
        if header.epoch > self._epoch:
            self._epoch = header.epoch
            self._channels.clear()
        channel = (header.vertex, header.source, header.partition)
        expected = self._channels.get(channel, 0)
        if header.sequence != expected:
            raise StaleChannelError(
                f"Frame {header.sequence} of partition {header.partition} came where {expected} was expected: "
                "a Spark task was retried. The epoch fails and the job restores its last checkpoint."
            )
        self._channels[channel] = expected + 1
        return self._tasks[header.vertex]

    def _refuse_stale(self, attempt: int) -> None:
        """Let nothing in that belongs to another attempt, and nothing once an operator has failed."""
        deployed = None if self._deployment is None else self._deployment.attempt
        if attempt != deployed:
            raise StaleChannelError(
                f"Attempt {attempt} sent records to a slot of attempt {deployed}; they were refused."
            )
        if self._failed is not None:
            # Whoever comes later, of whatever task and vertex, learns what happened, not that something did.
            raise OperatorFailed(self._failed)

    def _describe(self, exc: Exception, task: SlotSubtask | None) -> FailureInfo:
        slot = self._deployment.slot if self._deployment is not None else None
        if task is None:
            return FailureInfo.of(exc, slot=slot)
        return FailureInfo.of(exc, task.info.name, task.info.uid, slot)

    def _start(self, vertex: Vertex, deployment: Deployment, state: TaskStateManager) -> None:
        try:
            task = SlotSubtask(vertex, deployment, state, self._clock, self.metrics, self._publish)
            self._tasks[vertex.id] = task
            if isinstance(task.operator, SourceOperator):
                task.operator.on_ready = self.on_ready
            task.setup()
            task.restore(state.restored(vertex), task.watermark)
            task.open()
        except (ExecutionError, StorageError, RestoreError):
            # Whoever chose the snapshot tells a damaged one from a failing function by the type.
            raise
        except Exception as exc:
            info = FailureInfo.of(exc, vertex.name, vertex.uid, deployment.slot)
            raise info.error(job_id=deployment.job_id) from exc

    def _publish(self, descriptor: StateDescriptor, backend: KeyedStateBackend, uid: str) -> None:
        name = descriptor.get_queryable_state_name()
        assert name is not None
        if name in self.queryable:
            raise IllegalStateError(
                f"Two states are published under the queryable name '{name}'. Names must be unique in a job."
            )
        self.queryable[name] = (descriptor, backend, uid)


def _gate(vertex: Vertex, deployment: Deployment, watermark: int) -> Gate:
    """The gate of a vertex: one channel per task; a source function has one, the task that pulls from it."""
    channels = range(deployment.channels)
    if vertex.kind is NodeKind.SOURCE:
        channels = range(puller := deployment.slot % deployment.channels, puller + 1)
    return Gate(channels, aligned=deployment.aligned, watermark=watermark)
