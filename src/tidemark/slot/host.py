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
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tidemark.checkpoint.layout import SnapshotLocation
from tidemark.checkpoint.local_copies import LocalCopies
from tidemark.checkpoint.metadata.model import SubtaskState
from tidemark.checkpoint.snapshot_writer import SnapshotWriter, SubtaskTarget, WriterOptions
from tidemark.checkpoint.storage.base import Storage
from tidemark.clock import Clock
from tidemark.errors import (
    CheckpointError,
    ExecutionError,
    FailureReason,
    IllegalStateError,
    RestoreError,
    StaleChannelError,
    StorageError,
)
from tidemark.metrics.registry import MetricRegistry
from tidemark.operators.base import (
    MAX_WATERMARK,
    MIN_WATERMARK,
    SMALL_BATCH,
    Operator,
    OperatorEnvironment,
    Output,
    RestoredState,
    SubtaskInfo,
)
from tidemark.operators.routing import key_serializer_for
from tidemark.operators.source import SourceOperator
from tidemark.slot.building import operator_of
from tidemark.slot.codec import BatchCodec, codec_for
from tidemark.slot.deploy import Deployment, create_keyed_backend
from tidemark.slot.failure import FailureInfo
from tidemark.slot.restoring import load_restored_state
from tidemark.slot.vertex import load_functions
from tidemark.state.backend import KeyedStateBackend
from tidemark.state.descriptors import StateDescriptor
from tidemark.state.key_groups import compute_key_group_range_for_operator_index
from tidemark.state.snapshot import OperatorCut

__all__ = ["EMPTY", "BatchHeader", "CutRequest", "SlotHost"]

_log = logging.getLogger(__name__)

EMPTY = -1
"""Flags of a frame without records: it only lets what is due fire (and drains a source)."""


class BatchHeader(NamedTuple):
    """Header of a data frame; see `SlotHost` for what is checked."""

    vertex: int
    edge: int
    source: int
    partition: int
    sequence: int
    attempt: int
    epoch: int
    watermark: int
    flags: int


@dataclass(frozen=True, slots=True)
class CutRequest:
    """Barrier of a checkpoint or savepoint."""

    checkpoint_id: int
    timestamp: int
    location: SnapshotLocation
    incremental: bool = False
    base: int | None = None
    """Completed checkpoint whose shared files may be referred to."""
    savepoint: bool = False
    synchronous: bool = False
    """Write before the stream goes on (`state.backend.async: false`)."""


@dataclass(slots=True)
class _Hosted:
    """One operator of this slot with what is needed to talk to it."""

    vertex: Any
    operator: Operator
    codecs: list[BatchCodec]
    main: BatchCodec
    sides: dict[str, BatchCodec]
    key_groups: tuple[int, int] | None
    out: Output = field(default_factory=Output)
    watermark: int = MIN_WATERMARK
    epoch: int = -1
    ended: bool = False


class SlotHost:
    """Hosts subtask `index` of every operator of a job."""

    def __init__(self, clock: Clock, storage: Storage, scratch: Path) -> None:
        """Create an empty host.

        Args:
            clock: Time of all operators.
            storage: Where snapshots are written and read.
            scratch: Private local directory; the host creates and deletes what is below.
        """
        self._clock = clock
        self._storage = storage
        self._scratch = scratch
        self._lock = threading.RLock()
        self._errands: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._hosted: dict[int, _Hosted] = {}
        self._channels: dict[tuple[int, int, int], int] = {}
        self._epoch = -1
        self._failed: FailureInfo | None = None
        self._deployment: Deployment | None = None
        self._writer: SnapshotWriter | None = None
        self._local: LocalCopies | None = None
        self._cuts: dict[int, list[tuple[_Hosted, OperatorCut, int]]] = {}
        self.metrics = MetricRegistry()
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
            self._deployment = deployment
            choice = deployment.storage
            self._local = _local_copies(deployment)
            self._writer = SnapshotWriter(
                self._storage,
                WriterOptions(
                    choice.inline_threshold, choice.compression, choice.max_state_size, choice.frame_size
                ),
                self._local,
            )
            try:
                for vertex in load_functions(deployment.vertices):
                    if deployment.slot < vertex.parallelism:
                        self._host_named(vertex, deployment)
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
            for cuts in self._cuts.values():
                for _hosted, cut, _ms in cuts:
                    cut.release()
            self._cuts.clear()
            self._hosted.clear()
            self._channels.clear()
            self.queryable.clear()
            self._failed = None
            self._epoch = -1
            self._deployment = None
            shutil.rmtree(self._scratch, ignore_errors=True)

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
        hosted: _Hosted | None = None
        with self._lock:
            self._run_errands()
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
        cuts: list[tuple[_Hosted, OperatorCut, int]] = []
        with self._lock:
            try:
                for hosted in self._hosted.values():
                    at = time.perf_counter()
                    cut = hosted.operator.cut(
                        request.checkpoint_id, request.timestamp, incremental=request.incremental
                    )
                    cuts.append((hosted, cut, round((time.perf_counter() - at) * 1000)))
            except Exception as exc:
                for _hosted, cut, _ms in cuts:
                    cut.release()
                if isinstance(exc, CheckpointError):
                    raise
                raise CheckpointError(
                    f"Checkpoint {request.checkpoint_id} was declined by operator '{hosted.vertex.name}': "
                    f"{type(exc).__name__}: {exc}",
                    reason=FailureReason.DECLINED,
                    checkpoint_id=request.checkpoint_id,
                ) from exc
            self._cuts[request.checkpoint_id] = cuts
        return round((time.perf_counter() - started) * 1000)

    def write(self, request: CutRequest) -> dict[str, SubtaskState]:
        """Asynchronous part of the snapshot cut before; call it from any one thread.

        Raises:
            StorageError: The bytes could not be written.
            CheckpointError: The state is larger than the memory backend may carry.
        """
        with self._lock:
            cuts = self._cuts.pop(request.checkpoint_id, None)
            deployment, writer = self._deployment, self._writer
        if cuts is None or deployment is None or writer is None:
            raise CheckpointError(
                f"Checkpoint {request.checkpoint_id} is not known to this slot any more.",
                reason=FailureReason.DECLINED,
                checkpoint_id=request.checkpoint_id,
            )
        states: dict[str, SubtaskState] = {}
        pending = list(cuts)
        try:
            while pending:
                hosted, cut, sync_ms = pending.pop(0)
                target = SubtaskTarget(
                    request.checkpoint_id,
                    request.location,
                    hosted.vertex.uid,
                    deployment.slot,
                    hosted.key_groups,
                    request.base,
                )
                states[hosted.vertex.uid] = writer.write_subtask(target, cut, sync_ms=sync_ms)
        finally:
            for _hosted, cut, _ms in pending:
                cut.release()
        return states

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
            for _hosted, cut, _ms in self._cuts.pop(checkpoint_id, ()):
                cut.release()
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

    def cancel_sources(self) -> None:
        """Ask every source function to return from `run`; does not wait."""
        for hosted in list(self._hosted.values()):
            if isinstance(hosted.operator, SourceOperator):
                hosted.operator.cancel()

    def current_attempt(self) -> int:
        """The attempt that is deployed, -1 if none is or if it has failed here, perhaps amid a record."""
        deployment = self._deployment
        return -1 if deployment is None or self._failed is not None else deployment.attempt

    def published(self) -> dict[str, tuple[int, int]]:
        """Queryable name -> (max parallelism, parallelism) of the operator that published it here."""
        vertices = {hosted.vertex.uid: hosted.vertex for hosted in self._hosted.values()}
        return {
            name: (vertices[uid].max_parallelism, vertices[uid].parallelism)
            for name, (_descriptor, _backend, uid) in self.queryable.items()
        }

    def stats(self) -> dict[str, Any]:
        """Number of keyed entries and user metrics of this slot."""

        def collect() -> dict[str, Any]:
            entries = 0
            for hosted in self._hosted.values():
                backend = getattr(hosted.operator, "backend", None)
                if backend is not None:
                    entries += backend.num_entries()
            return {"entries": entries, "metrics": self.metrics.snapshot()}

        return self.ask(collect)  # type: ignore[no-any-return]

    def ask(self, question: Callable[[], Any]) -> Any:
        """Run `question` between two chunks of records, never inside one; from any thread.

        Whoever holds the lock runs waiting questions; if nobody does, the caller runs them itself.
        """
        answer: Future[Any] = Future()
        self._errands.append((question, answer))
        while not answer.done():
            if self._lock.acquire(timeout=0.002):
                try:
                    self._run_errands()
                finally:
                    self._lock.release()
        return answer.result()

    def _run_errands(self) -> None:
        while self._errands:
            question, answer = self._errands.popleft()
            try:
                answer.set_result(question())
            except BaseException as exc:
                answer.set_exception(exc)

    def _enter(self, header: BatchHeader) -> _Hosted:
        deployment = self._deployment
        if deployment is None or header.attempt != deployment.attempt:
            raise StaleChannelError(
                f"Attempt {header.attempt} sent records to a slot of attempt "
                f"{None if deployment is None else deployment.attempt}; they were refused."
            )
        if header.epoch < self._epoch:
            raise StaleChannelError(
                f"Records of epoch {header.epoch} came in epoch {self._epoch}; they were refused."
            )
        if self._failed is not None:
            raise StaleChannelError(f"The slot has failed in this attempt: {self._failed.summary}")
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

    def _process(self, hosted: _Hosted, header: BatchHeader, body: Any) -> tuple[Any, Any]:
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
                self._run_errands()
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

    def _begin_epoch(self, hosted: _Hosted, watermark: int) -> None:
        operator, out = hosted.operator, hosted.out
        if watermark > hosted.watermark:
            hosted.watermark = watermark
            operator.advance_watermark(watermark, out)
            if watermark == MAX_WATERMARK and not hosted.ended:
                hosted.ended = True
                for index in sorted({edge.input_index for edge in hosted.vertex.inputs}):
                    operator.end_input(index, out)
        operator.advance_processing_time(self._clock.now(), out)

    def _describe(self, exc: Exception, hosted: _Hosted | None) -> FailureInfo:
        slot = self._deployment.slot if self._deployment is not None else None
        if hosted is None:
            return FailureInfo.of(exc, slot=slot)
        return FailureInfo.of(exc, hosted.vertex.name, hosted.vertex.uid, slot)

    def _host_named(self, vertex: Any, deployment: Deployment) -> None:
        try:
            self._host(vertex, deployment)
        except (ExecutionError, StorageError, RestoreError):
            # Whoever chose the snapshot tells a damaged one from a failing function by the type.
            raise
        except Exception as exc:
            info = FailureInfo.of(exc, vertex.name, vertex.uid, deployment.slot)
            raise info.error(job_id=deployment.job_id) from exc

    def _host(self, vertex: Any, deployment: Deployment) -> None:
        key_groups = None
        if vertex.keyed or vertex.single_key:
            key_groups = compute_key_group_range_for_operator_index(
                vertex.max_parallelism, vertex.parallelism, deployment.slot
            )
        key = key_serializer_for(vertex.key_type()) if vertex.keyed else None
        hosted = _Hosted(
            vertex,
            operator_of(vertex),
            [codec_for(kind, key) for kind in vertex.input_types],
            codec_for(vertex.output_type),
            {tag: codec_for(kind) for tag, kind in vertex.side_types.items()},
            key_groups,
        )
        scratch = self._scratch_of(vertex, deployment)
        info = SubtaskInfo(
            vertex.name,
            vertex.uid,
            deployment.slot,
            vertex.parallelism,
            vertex.max_parallelism,
            deployment.attempt,
            deployment.job_parameters,
        )

        def make_backend(serializer: Any) -> KeyedStateBackend:
            assert key_groups is not None
            return create_keyed_backend(
                deployment.backend,
                serializer,
                vertex.max_parallelism,
                key_groups,
                self._clock,
                scratch,
                batch_mode=deployment.batch_mode,
            )

        def publish(descriptor: StateDescriptor, backend: KeyedStateBackend) -> None:
            self._publish(descriptor, backend, vertex.uid)

        operator = hosted.operator
        self._hosted[vertex.id] = hosted
        operator.setup(
            OperatorEnvironment(
                info,
                self._clock,
                self.metrics.group(vertex.name),
                make_backend,
                publish if deployment.queryable else None,
                deployment.batch_mode,
            )
        )
        if isinstance(operator, SourceOperator):
            operator.on_ready = self.on_ready
        hosted.watermark = deployment.watermarks.get(vertex.uid, MIN_WATERMARK)
        operator.restore_watermark(hosted.watermark)
        operator.initialize(self._restored(vertex.uid, deployment, scratch))
        operator.open()

    def _scratch_of(self, vertex: Any, deployment: Deployment) -> Path:
        root = self._scratch
        if deployment.backend.directories:
            chosen = deployment.backend.directories[deployment.slot % len(deployment.backend.directories)]
            root = Path(chosen.removeprefix("file://")) / f"{deployment.job_id}-{deployment.slot}"
        return root / f"attempt-{deployment.attempt}" / f"vertex-{vertex.id}"

    def _publish(self, descriptor: StateDescriptor, backend: KeyedStateBackend, uid: str) -> None:
        name = descriptor.get_queryable_state_name()
        assert name is not None
        known = self.queryable.get(name)
        if known is not None and known[2] != uid:
            raise IllegalStateError(
                f"Two states are published under the queryable name '{name}'. Names must be unique in a job."
            )
        self.queryable[name] = (descriptor, backend, uid)

    def _restored(self, uid: str, deployment: Deployment, scratch: Path) -> RestoredState | None:
        if deployment.restore is None:
            return None
        share = deployment.restore.get(uid)
        if share is None:
            return RestoredState()
        if deployment.same_job and deployment.restored_id is not None and share.natives:
            assert self._writer is not None
            self._writer.seed(uid, deployment.slot, deployment.restored_id, tuple(share.natives))
        return load_restored_state(share, self._storage, scratch / "restore", self._local)


def _local_copies(deployment: Deployment) -> LocalCopies | None:
    choice = deployment.storage
    if not choice.local_recovery:
        return None
    # Outside of the slot's scratch directory, so that a slot launched again on this machine finds them.
    root = Path((choice.local_directory or f"{tempfile.gettempdir()}/tidemark-local").split(",")[0])
    return LocalCopies(root / f"slot-{deployment.slot}", deployment.job_id)
