"""Carrying out deletions the coordinator asked for, in an order that no crash can turn into a lie.

`_metadata` goes first: a snapshot that is half deleted has none and is therefore never restored from.
A deletion that fails is logged and left; it costs space, not correctness. Nothing is deleted because it could
not be read: a damaged checkpoint gets a note beside its `_metadata` and stays. Nor is anything deleted behind a
link, or in somebody else's directory, where tidemark made a directory of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from tidemark.checkpoint.layout import JobLayout, SnapshotLocation, resolve_snapshot_path, savepoint_location
from tidemark.checkpoint.messages import Discard
from tidemark.checkpoint.metadata.registry import read_metadata
from tidemark.checkpoint.storage.base import Storage
from tidemark.checkpoint.storage.filesystem import within
from tidemark.errors import StorageError
from tidemark.paths import join, parent

__all__ = [
    "QUARANTINE_FILE",
    "discard",
    "discard_former_runs",
    "discard_job",
    "discard_spent",
    "dispose_savepoint",
    "mark_quarantined",
]

QUARANTINE_FILE = "_quarantined"
"""In the directory of a checkpoint that turned out to be damaged; says how."""

_log = logging.getLogger(__name__)


def discard(storage: Storage, layout: JobLayout, command: Discard) -> None:
    """Delete a checkpoint, an aborted snapshot, or shared files nobody needs. Never raises `StorageError`."""
    try:
        if command.savepoint is not None:
            _delete_snapshot(storage, savepoint_location(command.savepoint.directory))
        elif command.checkpoint_id is not None:
            _delete_snapshot(within(storage, layout.root), layout.checkpoint(command.checkpoint_id))
        storage = within(storage, layout.root)
        for name in command.shared:
            storage.delete(join(layout.shared, name))
    except StorageError as exc:
        _log.warning("Old checkpoint files could not be deleted and stay behind: %s", exc)


def discard_job(storage: Storage, layout: JobLayout) -> None:
    """Delete everything of a job. Never raises `StorageError`."""
    try:
        within(storage, layout.root).delete_tree(layout.directory)
    except StorageError as exc:
        _log.warning("The checkpoint directory of job %s stays behind: %s", layout.job_id, exc)


def discard_former_runs(storage: Storage, layout: JobLayout, *, all_runs: bool = False) -> None:
    """Delete what former drivers of a job left, with `all_runs` its own, too. Never raises `StorageError`.

    Only for who leads the job and needs nothing of theirs any more. What is in quarantine stays, and with it the
    shared files it may refer to.
    """
    storage = within(storage, layout.root)
    try:
        runs = storage.list(layout.of_all_runs)
        kept = [
            name
            for name in runs
            if (name == layout.run and not all_runs) or not _discard_run(storage, layout, name)
        ]
        if not kept:
            storage.delete_tree(layout.of_all_runs)
    except StorageError as exc:
        _log.warning("Checkpoints of former drivers of job %s stay behind: %s", layout.job_id, exc)


def _discard_run(storage: Storage, layout: JobLayout, run: str) -> bool:
    """Delete what one driver of a job left but for what is in quarantine; whether nothing of it stays."""
    directory = join(layout.of_all_runs, run)
    try:
        inside = {name: join(directory, name) for name in storage.list(directory)}
        damaged = [name for name, path in inside.items() if storage.is_file(join(path, QUARANTINE_FILE))]
        if not damaged:
            storage.delete_tree(directory)
            return True
        for name, path in inside.items():
            if name.startswith("chk-") and name not in damaged:
                storage.delete_tree(path)
    except StorageError as exc:
        _log.warning("%s, of a former driver of job %s, stays behind: %s", directory, layout.job_id, exc)
    return False


def discard_spent(
    storage: Storage,
    layout: JobLayout,
    is_spent: Callable[[int], bool],
    is_needed: Callable[[str], bool] = lambda _name: True,
) -> list[str]:
    """Delete checkpoint directories that a crash or a failed deletion left; return them.

    Only call this while no checkpoint of the job is pending. What is deleted is decided by what the job knows
    of its checkpoints, never by what can be read of them just now.

    Args:
        storage: Where they are.
        layout: Of the job.
        is_spent: Whether the checkpoint of that id was begun by this job and is of no use any more.
        is_needed: Whether a file in `shared/` stays.

    Raises:
        StorageError: Something could not be listed or deleted.
    """
    storage = within(storage, layout.root)
    for name in storage.list(layout.shared):
        if not is_needed(name):
            storage.delete(join(layout.shared, name))
    gone = []
    for name in storage.list(layout.directory):
        number = name.removeprefix("chk-")
        if number == name or not number.isdigit() or not is_spent(int(number)):
            continue
        location = layout.checkpoint(int(number))
        _delete_snapshot(storage, location)
        gone.append(location.directory)
    return gone


def mark_quarantined(storage: Storage, directory: str, problem: str) -> None:
    """Leave a note in the directory of a damaged checkpoint, for whoever looks there. Never raises `StorageError`."""
    try:
        within(storage, parent(directory)).write(join(directory, QUARANTINE_FILE), f"{problem}\n".encode())
    except StorageError as exc:
        _log.warning("%s could not be marked as damaged: %s", directory, exc)


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
    storage = within(storage, parent(location.directory))
    storage.delete(location.metadata_path)
    storage.delete_tree(location.directory)
