"""Carrying out deletions the coordinator asked for, in an order that no crash can turn into a lie.

`_metadata` goes first: a snapshot that is half deleted has none and is therefore never restored from.
A deletion that fails is logged and left; it costs space, not correctness.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from tidemark.checkpoint.layout import JobLayout, SnapshotLocation, resolve_snapshot_path, savepoint_location
from tidemark.checkpoint.messages import Discard
from tidemark.checkpoint.metadata.registry import read_metadata
from tidemark.checkpoint.storage.base import Storage, join
from tidemark.errors import StorageError

__all__ = ["discard", "discard_job", "discard_unfinished", "dispose_savepoint"]

_log = logging.getLogger(__name__)


def discard(storage: Storage, layout: JobLayout, command: Discard) -> None:
    """Delete a checkpoint, an aborted snapshot, or shared files nobody needs. Never raises `StorageError`."""
    try:
        if command.savepoint is not None:
            _delete_snapshot(storage, savepoint_location(command.savepoint.directory))
        elif command.checkpoint_id is not None:
            _delete_snapshot(storage, layout.checkpoint(command.checkpoint_id))
        for name in command.shared:
            storage.delete(join(layout.shared, name))
    except StorageError as exc:
        _log.warning("Old checkpoint files could not be deleted and stay behind: %s", exc)


def discard_job(storage: Storage, layout: JobLayout) -> None:
    """Delete everything of a job. Never raises `StorageError`."""
    try:
        storage.delete_tree(layout.directory)
    except StorageError as exc:
        _log.warning("The checkpoint directory of job %s stays behind: %s", layout.job_id, exc)


def discard_unfinished(
    storage: Storage,
    layout: JobLayout,
    kept: Collection[int] | None = None,
    is_needed: Callable[[str], bool] = lambda _name: True,
) -> list[str]:
    """Delete checkpoint directories left by a crash; return them.

    Only call this while no checkpoint of the job is pending.

    Args:
        storage: Where they are.
        layout: Of the job.
        kept: Checkpoints that stay; None: all that have `_metadata`.
        is_needed: Whether a file in `shared/` stays.

    Raises:
        StorageError: Something could not be listed or deleted.
    """
    for name in storage.list(layout.shared):
        if not is_needed(name):
            storage.delete(join(layout.shared, name))
    gone = []
    for name in storage.list(layout.directory):
        number = name.removeprefix("chk-")
        if number == name or not number.isdigit():
            continue
        location = layout.checkpoint(int(number))
        complete = storage.is_file(location.metadata_path)
        if not complete or (kept is not None and int(number) not in kept):
            _delete_snapshot(storage, location)
            gone.append(location.directory)
    return gone


def dispose_savepoint(storage: Storage, path: str) -> str:
    """Delete a savepoint a user no longer wants; return its directory.

    Raises:
        SavepointNotFoundError: There is none.
        MetadataError: It is not one of ours, so it is not touched.
        StorageError: It could not be deleted.
    """
    directory = resolve_snapshot_path(storage, path)
    read_metadata(storage, directory)
    _delete_snapshot(storage, savepoint_location(directory))
    return directory


def _delete_snapshot(storage: Storage, location: SnapshotLocation) -> None:
    storage.delete(location.metadata_path)
    storage.delete_tree(location.directory)
