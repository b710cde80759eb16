"""A slot without its process: the operators of one subtask index, fenced, driven one call at a time.

The server wraps a host with sockets and threads; the local executor calls it directly. What a host is
told in one epoch by one channel must come in order and once: a frame of another attempt, of an older
epoch, or out of sequence is refused. A retried Spark task therefore fails its epoch instead of applying
records twice.
"""

from __future__ import annotations

import logging
import pickle
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidemark.checkpoint.local_copies import LocalCopies
from tidemark.checkpoint.metadata.model import SubtaskState
from tidemark.checkpoint.storage.base import Storage
from tidemark.clock import Clock
from tidemark.errors import (
    ExecutionError,
    IllegalStateError,
    RestoreError,
    StaleChannelError,
    StorageError,
)
from tidemark.metrics.registry import MetricRegistry
from tidemark.operators.source import SourceOperator
from tidemark.plan.vertex import load_functions
from tidemark.protocol.batch import MAX_WATERMARK, SMALL_BATCH
from tidemark.protocol.deployment import Deployment
from tidemark.protocol.failure import FailureInfo, OperatorFailed
from tidemark.protocol.frames import EMPTY, BatchHeader, CutRequest
from tidemark.slot.mailbox import Mailbox
from tidemark.state.backend import KeyedStateBackend
from tidemark.state.descriptors import StateDescriptor
from tidemark.subtask.cuts import PendingCuts, write_cuts
from tidemark.subtask.hosting import Hosted, Hosting, SlotMeans

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
        self._means = SlotMeans(clock, storage, scratch, self.metrics)
        self._lock = threading.RLock()
        self._mailbox = Mailbox(self._lock)
        self._hosted: dict[int, Hosted] = {}
        self._channels: dict[tuple[int, int, int], int] = {}
        self._epoch = -1
        self._failed: FailureInfo | None = None
        self._hosting: Hosting | None = None
        """What is deployed, None while nothing is."""
        self._local: LocalCopies | None = None
        """Copies of checkpoints on this machine; they outlive the attempt."""
        self._cuts = PendingCuts()
        self.queryable: dict[str, tuple[StateDescriptor, KeyedStateBackend, str]] = {}
        self.on_ready: Callable[[], None] = lambda: None
        """Called, from any thread, when a source function has something new."""

    def deploy(self, deployment: Deployment) -> None:
        """Build, restore and open every operator; a previous attempt is closed first.

        Raises:
            StorageError, RestoreError: The snapshot cannot be used.
            ExecutionError: The user's code failed: names the operator and chains the cause. The host is
                then empty again.
        """
        with self._lock:
            self.reset()
            hosting = self._hosting = Hosting(deployment, self._means)
            self._local = hosting.local
            try:
                for vertex in load_functions(deployment.vertices):
                    if deployment.slot < vertex.parallelism:
                        self._host(vertex, hosting)
            except BaseException:
                self.reset()
                raise

    def reset(self) -> None:
        """Close every operator and forget the attempt."""
        with self._lock:
            for hosted in reversed(list(self._hosted.values())):
                try:
                    hosted.operator.close()
                except Exception:
                    _log.warning("close() of operator '%s' failed", hosted.vertex.name, exc_info=True)
            self._cuts.clear()
            self._hosted.clear()
            self._channels.clear()
            self.queryable.clear()
            self._failed = None
            self._epoch = -1
            if self._hosting is not None:
                self._hosting.close()
            self._hosting = None
            shutil.rmtree(self._means.scratch, ignore_errors=True)

    def finish(self) -> None:
        """The input has ended and everything is processed: close every operator.

        Raises:
            ExecutionError: A user's `close` failed; the others were closed all the same.
        """
        failure: FailureInfo | None = None
        with self._lock:
            for hosted in reversed(list(self._hosted.values())):
                try:
                    hosted.operator.close()
                except Exception as exc:
                    failure = failure or self._describe(exc, hosted)
            self._hosted.clear()
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
        hosted: Hosted | None = None
        with self._lock:
            self._mailbox.run()
            try:
                hosted = self._enter(header)
                return self._process(hosted, header, body)
            except Exception as exc:
                info = self._describe(exc, hosted)
                if not isinstance(exc, StaleChannelError):
                    self._failed = info
                return ("error",), pickle.dumps(info)

    def cut(self, request: CutRequest) -> int:
        """Synchronous part of a snapshot of every operator; returns how long it took in ms.

        Raises:
            CheckpointError: `DECLINED`: a user function failed in `snapshot_state`.
        """
        started = time.perf_counter()
        with self._lock:
            if self._hosting is not None:
                self._cuts.make(request, self._hosted.values())
        return round((time.perf_counter() - started) * 1000)

    def write(self, request: CutRequest) -> dict[str, SubtaskState]:
        """Asynchronous part of the snapshot cut before; call it from any one thread.

        Raises:
            StorageError: The bytes could not be written.
            CheckpointError: The snapshot was given up meanwhile, or the state is larger than the memory
                backend may carry.
        """
        with self._lock:
            cuts, hosting = self._cuts.take(request.checkpoint_id), self._hosting
        # Nothing can be cut while nothing is deployed, and `reset` gives up what was.
        assert hosting is not None
        return write_cuts(cuts, request, hosting.deployment.slot, hosting.writer)

    def notify_complete(self, checkpoint_id: int) -> None:
        """The checkpoint is complete for the whole job.

        Raises:
            Whatever a user's `notify_checkpoint_complete` raises; it fails the attempt.
        """
        with self._lock:
            if self._local is not None:
                self._local.completed(checkpoint_id)
            for hosted in self._hosted.values():
                hosted.operator.notify_checkpoint_complete(checkpoint_id)

    def notify_aborted(self, checkpoint_id: int) -> None:
        """The checkpoint was given up."""
        with self._lock:
            self._cuts.drop(checkpoint_id)
            if self._local is not None:
                self._local.aborted(checkpoint_id)
            for hosted in self._hosted.values():
                hosted.operator.notify_checkpoint_aborted(checkpoint_id)

    def source_status(self) -> dict[int, dict[str, Any]]:
        """Vertex -> status of each source function here (see `SourceOperator.status`)."""
        return {
            vertex_id: hosted.operator.status()
            for vertex_id, hosted in list(self._hosted.items())
            if isinstance(hosted.operator, SourceOperator)
        }

    def current_attempt(self) -> int:
        """The attempt that is deployed, -1 if none is or if it has failed here, perhaps amid a record."""
        hosting = self._hosting
        return -1 if hosting is None or self._failed is not None else hosting.deployment.attempt

    def published(self) -> dict[str, tuple[int, int]]:
        """Queryable name -> (max parallelism, parallelism) of the operator that published it here."""
        vertices = {hosted.vertex.uid: hosted.vertex for hosted in self._hosted.values()}
        return {
            name: (vertices[uid].max_parallelism, vertices[uid].parallelism)
            for name, (_descriptor, _backend, uid) in self.queryable.items()
        }

    def stats(self, timeout: float | None = None) -> dict[str, Any]:
        """Number of keyed entries and user metrics of this slot.

        Raises:
            TimeoutError: User code did not let the question in within `timeout` seconds.
        """

        def collect() -> dict[str, Any]:
            entries = 0
            for hosted in self._hosted.values():
                backend = getattr(hosted.operator, "backend", None)
                if backend is not None:
                    entries += backend.num_entries()
            return {"entries": entries, "metrics": self.metrics.snapshot()}

        return self._mailbox.ask(collect, timeout)  # type: ignore[no-any-return]

    def ask(self, question: Callable[[], Any]) -> Any:
        """Run `question` between two chunks of records, never inside one; from any thread."""
        return self._mailbox.ask(question)

    def abandon(self) -> None:
        """Refuse everything from now on without waiting for user code, whose thread is left behind.

        Records of the attempt are refused, snapshots are not written, questions fail and source functions emit
        nothing any more.
        """
        self._hosting = None
        self._mailbox.close()
        for hosted in list(self._hosted.values()):
            if isinstance(hosted.operator, SourceOperator):
                hosted.operator.disconnect()

    def _enter(self, header: BatchHeader) -> Hosted:
        attempt = None if self._hosting is None else self._hosting.deployment.attempt
        if header.attempt != attempt:
            raise StaleChannelError(
                f"Attempt {header.attempt} sent records to a slot of attempt {attempt}; they were refused."
            )
        if header.epoch < self._epoch:
            raise StaleChannelError(
                f"Records of epoch {header.epoch} came in epoch {self._epoch}; they were refused."
            )
        if self._failed is not None:
            # Whoever comes later, of whatever task and vertex, learns what happened, not that something did.
            raise OperatorFailed(self._failed)
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
        return self._hosted[header.vertex]

    def _process(self, hosted: Hosted, header: BatchHeader, body: Any) -> tuple[Any, Any]:
        operator, out = hosted.operator, hosted.out
        if hosted.epoch != header.epoch:
            hosted.epoch = header.epoch
            self._begin_epoch(hosted, header.watermark)
        status = None
        if isinstance(operator, SourceOperator):
            status = operator.take(out)
        elif header.flags != EMPTY:
            index = hosted.vertex.inputs[header.edge].input_index
            limit = SMALL_BATCH if self.queryable else operator.batch_limit
            for batch in hosted.codecs[header.edge].decode_parts(header.flags, body, limit):
                operator.process(index, batch, out)
                self._mailbox.run()
        main, sides = out.drain()
        sections: list[tuple[str | None, int, int]] = []
        bodies: list[Any] = []
        for tag, codec, batch in [
            (None, hosted.main, main),
            *((t, hosted.sides.get(t), b) for t, b in sides.items()),
        ]:
            if codec is not None and batch.values:
                flags, data = codec.encode(batch)
                view = memoryview(data)
                sections.append((tag, flags, view.nbytes))
                bodies.append(view)
        answer = bodies[0] if len(bodies) == 1 else b"".join(bodies)
        return ("ok", operator.next_processing_timer(), sections, status), answer

    def _begin_epoch(self, hosted: Hosted, watermark: int) -> None:
        operator, out = hosted.operator, hosted.out
        if watermark > hosted.watermark:
            hosted.watermark = watermark
            operator.advance_watermark(watermark, out)
            if watermark == MAX_WATERMARK and not hosted.ended:
                hosted.ended = True
                for index in sorted({edge.input_index for edge in hosted.vertex.inputs}):
                    operator.end_input(index, out)
        operator.advance_processing_time(self._means.clock.now(), out)

    def _describe(self, exc: Exception, hosted: Hosted | None) -> FailureInfo:
        slot = self._hosting.deployment.slot if self._hosting is not None else None
        if hosted is None:
            return FailureInfo.of(exc, slot=slot)
        return FailureInfo.of(exc, hosted.vertex.name, hosted.vertex.uid, slot)

    def _host(self, vertex: Any, hosting: Hosting) -> None:
        try:
            hosted = self._hosted[vertex.id] = hosting.build(vertex)
            hosting.open(hosted, self._publish, self.on_ready)
        except (ExecutionError, StorageError, RestoreError):
            # Whoever chose the snapshot tells a damaged one from a failing function by the type.
            raise
        except Exception as exc:
            info = FailureInfo.of(exc, vertex.name, vertex.uid, hosting.deployment.slot)
            raise info.error(job_id=hosting.deployment.job_id) from exc

    def _publish(self, descriptor: StateDescriptor, backend: KeyedStateBackend, uid: str) -> None:
        name = descriptor.get_queryable_state_name()
        assert name is not None
        known = self.queryable.get(name)
        if known is not None and known[2] != uid:
            raise IllegalStateError(
                f"Two states are published under the queryable name '{name}'. Names must be unique in a job."
            )
        self.queryable[name] = (descriptor, backend, uid)
