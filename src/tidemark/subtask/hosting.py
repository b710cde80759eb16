"""How the operators of one deployment come to life in a slot: built, restored, opened."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tidemark.checkpoint.local_copies import LocalCopies
from tidemark.checkpoint.snapshot_writer import SnapshotWriter, WriterOptions
from tidemark.checkpoint.storage.base import Storage
from tidemark.checkpoint.storage.filesystem import FileSystemStorage
from tidemark.clock import Clock
from tidemark.errors import ConfigError
from tidemark.metrics.registry import MetricRegistry
from tidemark.operators.base import Operator, OperatorEnvironment, Output, RestoredState, SubtaskInfo
from tidemark.operators.source import SourceOperator
from tidemark.paths import local_path
from tidemark.private_files import make_directories
from tidemark.protocol.batch import MIN_WATERMARK
from tidemark.protocol.codec import BatchCodec, codec_for
from tidemark.protocol.deployment import Deployment, create_keyed_backend
from tidemark.scratch import ScratchDirectory, sweep_scratch
from tidemark.state.backend import KeyedStateBackend
from tidemark.state.descriptors import StateDescriptor
from tidemark.state.key_groups import compute_key_group_range_for_operator_index
from tidemark.state.key_tokens import key_serializer_for
from tidemark.subtask.building import operator_of
from tidemark.subtask.restoring import load_restored_state

__all__ = ["Hosted", "Hosting", "SlotMeans"]

_log = logging.getLogger(__name__)

Publish = Callable[[StateDescriptor, KeyedStateBackend, str], None]
"""Makes a state of the operator with that uid queryable."""


@dataclass(slots=True)
class Hosted:
    """One operator of a slot with what is needed to talk to it."""

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


@dataclass(frozen=True, slots=True)
class SlotMeans:
    """What a slot has for all attempts: the time, where snapshots lie, a private local directory, metrics."""

    clock: Clock
    storage: Storage
    scratch: Path
    metrics: MetricRegistry


class Hosting:
    """Builds and opens the operators of one deployment, and has what all of them share.

    Attributes:
        deployment: What is deployed.
        local: Copies of checkpoints on this machine, if local recovery is on.
        writer: Writes the snapshots of this attempt.
    """

    def __init__(self, deployment: Deployment, means: SlotMeans) -> None:
        """Prepare; nothing is built yet."""
        self.deployment = deployment
        choice = deployment.storage
        if isinstance(means.storage, FileSystemStorage):
            means = replace(means, storage=means.storage.with_umask(choice.umask))
        self._means = means
        self._chosen: ScratchDirectory | None = None
        """Below the directory the user chose for files of backends, once it is needed."""
        self.local = _local_copies(deployment)
        self.writer = SnapshotWriter(
            means.storage,
            WriterOptions(
                choice.inline_threshold, choice.compression, choice.max_state_size, choice.frame_size
            ),
            self.local,
        )

    def build(self, vertex: Any) -> Hosted:
        """The operator of a vertex, not yet set up."""
        key_groups = None
        if vertex.keyed or vertex.single_key:
            key_groups = compute_key_group_range_for_operator_index(
                vertex.max_parallelism, vertex.parallelism, self.deployment.slot
            )
        key = key_serializer_for(vertex.key_type()) if vertex.keyed else None
        return Hosted(
            vertex,
            operator_of(vertex),
            [codec_for(kind, key) for kind in vertex.input_types],
            codec_for(vertex.output_type),
            {tag: codec_for(kind) for tag, kind in vertex.side_types.items()},
            key_groups,
        )

    def open(self, hosted: Hosted, publish: Publish, on_ready: Callable[[], None]) -> None:
        """Set an operator up, restore its state and open it.

        Args:
            hosted: From `build`; whoever holds it closes it, also if this fails.
            publish: For states that may be queried.
            on_ready: For sources that have something new.
        """
        deployment, vertex, operator = self.deployment, hosted.vertex, hosted.operator
        scratch = self._scratch_of(vertex)

        def make_backend(serializer: Any) -> KeyedStateBackend:
            assert hosted.key_groups is not None
            return create_keyed_backend(
                deployment.backend,
                serializer,
                vertex.max_parallelism,
                hosted.key_groups,
                self._means.clock,
                scratch,
                batch_mode=deployment.batch_mode,
            )

        def publish_own(descriptor: StateDescriptor, backend: KeyedStateBackend) -> None:
            publish(descriptor, backend, vertex.uid)

        operator.setup(
            OperatorEnvironment(
                self._info(vertex),
                self._means.clock,
                self._means.metrics.group(vertex.name),
                make_backend,
                publish_own if deployment.queryable else None,
                deployment.batch_mode,
            )
        )
        if isinstance(operator, SourceOperator):
            operator.on_ready = on_ready
        hosted.watermark = deployment.watermarks.get(vertex.uid, MIN_WATERMARK)
        operator.restore_watermark(hosted.watermark)
        operator.initialize(self._restored(vertex.uid, scratch))
        operator.open()

    def close(self) -> None:
        """Every operator is closed: remove their files, wherever the user wanted them to be."""
        if self._chosen is not None:
            self._chosen.cleanup()

    def _info(self, vertex: Any) -> SubtaskInfo:
        return SubtaskInfo(
            vertex.name,
            vertex.uid,
            self.deployment.slot,
            vertex.parallelism,
            vertex.max_parallelism,
            self.deployment.attempt,
            self.deployment.job_parameters,
        )

    def _scratch_of(self, vertex: Any) -> Path:
        return self._scratch_root() / f"attempt-{self.deployment.attempt}" / f"vertex-{vertex.id}"

    def _scratch_root(self) -> Path:
        deployment, directories = self.deployment, self.deployment.backend.directories
        if not directories:
            return self._means.scratch
        if self._chosen is None:
            base = local_path(directories[deployment.slot % len(directories)])
            make_directories(base, 0o700)
            sweep_scratch(base)
            self._chosen = ScratchDirectory(f"tidemark-{deployment.job_id[:8]}-{deployment.slot}-", base)
        return Path(self._chosen.name)

    def _restored(self, uid: str, scratch: Path) -> RestoredState | None:
        deployment = self.deployment
        if deployment.restore is None:
            return None
        share = deployment.restore.get(uid)
        if share is None:
            return RestoredState()
        if deployment.same_job and deployment.restored_id is not None and share.natives:
            self.writer.seed(uid, deployment.slot, deployment.restored_id, tuple(share.natives))
        return load_restored_state(share, self._means.storage, scratch / "restore", self.local)


def _local_copies(deployment: Deployment) -> LocalCopies | None:
    choice = deployment.storage
    if not choice.local_recovery:
        return None
    # Outside of the slot's scratch directory, so that a slot launched again on this machine finds them.
    root = Path((choice.local_directory or tempfile.gettempdir()).split(",")[0])
    try:
        return LocalCopies(root, deployment.job_id, deployment.slot)
    except (ConfigError, OSError) as exc:
        _log.warning("Slot %s keeps no local copies of checkpoints: %s", deployment.slot, exc)
        return None
