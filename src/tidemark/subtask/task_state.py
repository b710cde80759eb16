"""Where the state of one slot's subtasks comes from, lives and goes to, for one attempt."""

from __future__ import annotations

import logging
from pathlib import Path

from tidemark.checkpoint.local_copies import LocalCopies, copies_root
from tidemark.checkpoint.snapshot_writer import SnapshotWriter
from tidemark.checkpoint.storage.base import Storage
from tidemark.checkpoint.storage.filesystem import FileSystemStorage
from tidemark.checkpoint.storage.mapping import MappedStorage
from tidemark.errors import ConfigError
from tidemark.operators.base import RestoredState
from tidemark.paths import local_path, use_file_systems
from tidemark.plan.vertex import Vertex
from tidemark.private_files import make_directories
from tidemark.protocol.deployment import Deployment
from tidemark.scratch import ScratchDirectory, sweep_scratch
from tidemark.subtask.restored_state import load_restored_state

__all__ = ["TaskStateManager"]

_log = logging.getLogger(__name__)
_LOCAL_DIR = "state.backend.rocksdb.localdir"


class TaskStateManager:
    """Restores and keeps the state of the subtasks of one deployment.

    Attributes:
        local: Copies of checkpoints on this machine, if local recovery is on; they outlive the attempt.
        writer: Writes the snapshots of this attempt.
    """

    def __init__(self, deployment: Deployment, storage: Storage, scratch: Path) -> None:
        """Prepare; nothing is fetched yet.

        Args:
            deployment: What is deployed.
            storage: Where snapshots are written and read.
            scratch: Private local directory, for backends unless the user chose another.
        """
        self._deployment = deployment
        choice = deployment.storage
        use_file_systems(deployment.file_systems)
        if choice.custom is not None:
            storage = MappedStorage(choice.custom)
        elif isinstance(storage, FileSystemStorage):
            storage = storage.for_job(choice.umask, choice.roots, choice.authors)
        self._storage = storage
        self._scratch = scratch
        self._chosen: ScratchDirectory | None = None
        """Below the directory the user chose for files of backends, once it is needed."""
        self.local = _local_copies(deployment)
        self.writer = SnapshotWriter(storage, choice.options, self.local)

    def directory(self, vertex: Vertex) -> Path:
        """Where the backend of a vertex keeps its files."""
        return self._scratch_root() / f"attempt-{self._deployment.attempt}" / f"vertex-{vertex.id}"

    def restored(self, vertex: Vertex) -> RestoredState | None:
        """What the subtask takes over, None for a fresh start.

        Raises:
            StorageError: A file is missing or damaged; the message names it.
        """
        deployment = self._deployment
        if deployment.restore is None:
            return None
        share = deployment.restore.get(vertex.uid)
        if share is None:
            return RestoredState()
        if deployment.same_job and deployment.restored_id is not None and share.natives:
            self.writer.seed(vertex.uid, deployment.slot, deployment.restored_id, tuple(share.natives))
        return load_restored_state(share, self._storage, self.directory(vertex) / "restore", self.local)

    def close(self) -> None:
        """Every operator is closed: remove their files, wherever the user wanted them to be."""
        if self._chosen is not None:
            self._chosen.cleanup()

    def _scratch_root(self) -> Path:
        deployment, directories = self._deployment, self._deployment.backend.directories
        if not directories:
            return self._scratch
        if self._chosen is None:
            base = local_path(directories[deployment.slot % len(directories)])
            try:
                make_directories(base, 0o700)
                sweep_scratch(base)
                self._chosen = ScratchDirectory(f"tidemark-{deployment.job_id[:8]}-{deployment.slot}-", base)
            except (FileNotFoundError, NotADirectoryError, FileExistsError, PermissionError) as exc:
                raise ConfigError(
                    f"State cannot be kept in '{base}' ({_LOCAL_DIR}): {exc}. Name a "
                    "directory that can be made and written on every worker.",
                    key=_LOCAL_DIR,
                ) from exc
        return Path(self._chosen.name)


def _local_copies(deployment: Deployment) -> LocalCopies | None:
    choice = deployment.storage
    if not choice.local_recovery:
        return None
    # Outside of the slot's scratch directory, so that a slot launched again on this machine finds them.
    try:
        return LocalCopies(copies_root(choice.local_directory), deployment.job_id, deployment.slot)
    except (ConfigError, OSError) as exc:
        _log.warning("Slot %s keeps no local copies of checkpoints: %s", deployment.slot, exc)
        return None
