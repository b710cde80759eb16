"""Which storage and backend the settings of a job mean, for the driver and for its slots."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass

from tidemark.api.checkpoint_storage import (
    CustomCheckpointStorage,
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
)
from tidemark.api.executor import JobSettings
from tidemark.checkpoint.snapshot_writer import WriterOptions
from tidemark.checkpoint.storage.base import Storage
from tidemark.checkpoint.storage.filesystem import FileSystemStorage
from tidemark.checkpoint.storage.mapping import MappedStorage
from tidemark.checkpoint.storage.memory import MemoryStorage
from tidemark.config import Configuration, Options
from tidemark.errors import ConfigError
from tidemark.paths import absolute, is_local, local_path
from tidemark.private_files import who_else_may_replace
from tidemark.protocol.deployment import StorageChoice

__all__ = ["StoragePlan", "storage_plan", "umask_of", "warn_of_shared_root"]

_MEMORY_ROOT = "/memory"
_UMASK = re.compile("0?0[0-7]{2}")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoragePlan:
    """Where snapshots of a job go."""

    driver: Storage
    """Holds `_metadata` of checkpoints (and everything else of them, for file storage)."""
    savepoints: Storage
    root: str
    choice: StorageChoice
    queryable: bool = False

    def for_directory(self, directory: str) -> Storage:
        """Storage of a snapshot in that directory."""
        if self.driver is not self.savepoints and directory.startswith(_MEMORY_ROOT + "/"):
            return self.driver
        return self.savepoints


def storage_plan(settings: JobSettings) -> StoragePlan:
    """What the checkpoint storage of `settings` means."""
    configuration = settings.configuration
    umask = umask_of(configuration)
    chosen = settings.checkpoint_storage
    built_in = (FileSystemCheckpointStorage, CustomCheckpointStorage, JobManagerCheckpointStorage)
    storage = chosen if isinstance(chosen, built_in) else JobManagerCheckpointStorage()
    path = storage.get_checkpoint_path()
    roots = tuple(absolute(root) for root in (path, settings.savepoint_directory) if root)
    files = FileSystemStorage(umask=umask, roots=roots)
    queryable = bool(configuration.get(Options.QUERYABLE_STATE_ENABLE))
    compression = settings.snapshot_compression
    if isinstance(storage, FileSystemCheckpointStorage):
        choice = StorageChoice(
            WriterOptions(storage.get_min_file_size_threshold(), compression),
            umask,
            roots,
            local_recovery=bool(configuration.get(Options.LOCAL_RECOVERY)),
            local_directory=configuration.get(Options.LOCAL_RECOVERY_DIRS),
        )
        return StoragePlan(files, files, path or "", choice, queryable)
    if isinstance(storage, CustomCheckpointStorage):
        custom = MappedStorage(storage.storage)
        choice = StorageChoice(WriterOptions(None, compression), umask)
        return StoragePlan(custom, custom, path or "", choice, queryable)
    frame_size = int(configuration.get(Options.AKKA_FRAMESIZE))
    options = WriterOptions(None, compression, storage.get_max_state_size(), frame_size)
    choice = StorageChoice(options, umask, roots)
    if path is not None:
        return StoragePlan(files, files, path, choice, queryable)
    return StoragePlan(MemoryStorage(), files, _MEMORY_ROOT, choice, queryable)


def warn_of_shared_root(plan: StoragePlan) -> None:
    """Say so if others may replace what a job keeps in its checkpoint directory; one line, no refusal."""
    if not isinstance(plan.driver, FileSystemStorage) or not is_local(plan.root):
        return
    root = local_path(absolute(plan.root))
    try:
        who = who_else_may_replace(root)
    except OSError:
        # Not there yet: it will be made for this user alone. Any other trouble shows with the first checkpoint.
        return
    if who is not None:
        _log.warning(
            "The checkpoint directory %s may be changed by %s, so they can move checkpoints away and make the job "
            "lose them. Use a directory that belongs to you, with mode 0700 or at least the sticky bit (chmod +t).",
            root,
            who,
        )


def umask_of(configuration: Configuration) -> int:
    """Permissions that files of checkpoints and savepoints on local disks do not have.

    Raises:
        ConfigError: The value is no octal number, or would keep the owner out.
    """
    text = configuration.get(Options.FS_UMASK).strip()
    if _UMASK.fullmatch(text) is None:
        raise ConfigError(
            f"{Options.FS_UMASK.key} is {text!r}, but has to be three octal digits that leave the owner alone, such "
            "as '077' (nobody else), '027' (the group may read) or '022'. Quote it in YAML.",
            key=Options.FS_UMASK.key,
        )
    return int(text, 8)
