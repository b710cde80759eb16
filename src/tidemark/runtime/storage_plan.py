"""Which storage and backend the settings of a job mean, for the driver and for its slots."""

from __future__ import annotations

import logging
import os
import re
from dataclasses import dataclass

import cloudpickle

from tidemark.api.checkpoint_storage import (
    CustomCheckpointStorage,
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
)
from tidemark.api.executor import JobSettings
from tidemark.checkpoint.metadata.model import METADATA_FILE
from tidemark.checkpoint.snapshot_writer import WriterOptions
from tidemark.checkpoint.storage.base import Storage
from tidemark.checkpoint.storage.filesystem import FileSystemStorage
from tidemark.checkpoint.storage.mapping import MappedStorage
from tidemark.checkpoint.storage.memory import MemoryStorage
from tidemark.checkpoint.storage.probe import probe_directory
from tidemark.config import Configuration, Options
from tidemark.config.modes import HighAvailability
from tidemark.errors import ConfigError, StorageError
from tidemark.paths import absolute, is_local, local_path
from tidemark.private_files import who_else_may_replace
from tidemark.protocol.deployment import StorageChoice

__all__ = ["StoragePlan", "check_travels", "probe", "storage_plan", "umask_of", "warn_of_others"]

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
    authors = _authors(settings.savepoint_path)
    files = FileSystemStorage(umask=umask, roots=roots, authors=authors)
    queryable = bool(configuration.get(Options.QUERYABLE_STATE_ENABLE))
    compression = settings.snapshot_compression
    if isinstance(storage, FileSystemCheckpointStorage):
        choice = StorageChoice(
            WriterOptions(storage.get_min_file_size_threshold(), compression),
            umask,
            roots,
            authors,
            local_recovery=bool(configuration.get(Options.LOCAL_RECOVERY)),
            local_directory=configuration.get(Options.LOCAL_RECOVERY_DIRS),
        )
        return StoragePlan(files, files, path or "", choice, queryable)
    if isinstance(storage, CustomCheckpointStorage):
        custom = MappedStorage(storage.storage)
        options = WriterOptions(storage.get_min_file_size_threshold(), compression)
        choice = StorageChoice(options, umask, custom=storage.storage)
        return StoragePlan(custom, custom, path or "", choice, queryable)
    frame_size = int(configuration.get(Options.AKKA_FRAMESIZE))
    options = WriterOptions(None, compression, storage.get_max_state_size(), frame_size)
    choice = StorageChoice(options, umask, roots, authors)
    if path is not None:
        return StoragePlan(files, files, path, choice, queryable)
    return StoragePlan(MemoryStorage(), files, _MEMORY_ROOT, choice, queryable)


def check_travels(plan: StoragePlan) -> None:
    """Make sure that a storage of the program's own can be sent to slots in other processes.

    Raises:
        ConfigError: It cannot be pickled.
    """
    try:
        cloudpickle.dumps(plan.choice.custom)
    except Exception as exc:
        raise ConfigError(
            f"The storage {plan.choice.custom!r} of CustomCheckpointStorage cannot be sent to the slots, which write "
            f"with it: {exc}. Leave connections and locks out of its pickle (__getstate__) and open them when they "
            "are needed."
        ) from exc


def probe(plan: StoragePlan, settings: JobSettings) -> None:
    """Write, read and delete a small file where checkpoints will go, so that a job which can keep none never starts.

    A storage of the program's own is left alone: what a probe costs or means there is the program's business.

    Raises:
        ConfigError: The directory cannot be used; names it, its option and why.
    """
    if not settings.checkpointing.enabled or not isinstance(plan.driver, FileSystemStorage):
        return
    try:
        probe_directory(plan.driver, absolute(plan.root))
    except StorageError as exc:
        raise ConfigError(
            f"Checkpoints cannot be kept in '{plan.root}' ({Options.CHECKPOINTS_DIR.key}): {exc.message} Name a "
            "directory that this user may write to, on a storage that every worker reaches."
        ) from exc


def warn_of_others(plan: StoragePlan, settings: JobSettings) -> None:
    """Say so if others may replace what a job keeps of itself, or wrote what it starts from.

    One line each, no refusal: the user chose the directories and named the snapshot.
    """
    if isinstance(plan.driver, FileSystemStorage):
        can = (
            "put files of their own in their place, which a restore loads and which may run code as you"
            if plan.choice.umask & 0o022 != 0o022
            else "put older ones in their place; files of their own are refused"
        )
        _warn_of_shared_root(
            "checkpoint directory",
            plan.root,
            f"move checkpoints away, so that the job loses them, and {can}",
        )
    leaders = settings.configuration.get(Options.HIGH_AVAILABILITY_STORAGE)
    if leaders and settings.configuration.get(Options.HIGH_AVAILABILITY) is not HighAvailability.NONE:
        _warn_of_shared_root(
            "directory of high availability",
            leaders,
            "move away what drivers know of a job, so that it begins anew or does not start, and put older notes in "
            "their place",
        )
    if isinstance(plan.savepoints, FileSystemStorage):
        for author in _authors(settings.savepoint_path):
            _log.warning(
                "The snapshot %s belongs to user %d, not to user %d, who runs this. Whoever wrote it can make this "
                "job run code (pickled values) and misplace records: go on only if you trust them. For this job "
                "their files count as your own.",
                settings.savepoint_path,
                author,
                os.geteuid(),
            )


def _warn_of_shared_root(what: str, directory: str, can: str) -> None:
    if not is_local(directory):
        return
    root = local_path(absolute(directory))
    try:
        found = who_else_may_replace(root)
    except OSError:
        # Any trouble on the way shows when it is used.
        return
    if found is None:
        return
    place, who = found
    _log.warning(
        "%s may be changed by %s. They can %s. Use directories that belong to you or root, with mode 0700 or at least "
        "the sticky bit (chmod +t).",
        f"The {what} {place}" if place == root else f"{place}, on the way to {root},",
        who,
        can,
    )


def _authors(snapshot: str | None) -> tuple[int, ...]:
    """Who wrote the snapshot a job is to start from, if it lies on a local disk and is somebody else's."""
    if snapshot is None or not is_local(snapshot):
        return ()
    directory = local_path(absolute(snapshot))
    if os.path.basename(directory) == METADATA_FILE:
        directory = os.path.dirname(directory)
    try:
        owner = os.stat(directory).st_uid
    except OSError:
        # Opening it will say what is wrong.
        return ()
    return () if owner in (os.geteuid(), 0) else (owner,)


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
