"""What a driver that was killed leaves outside of scratch directories: staged output, its record, its logs.

A driver notes in `$TIDEMARK_HOME/places/<job id>.json` where its sinks stage output and where its snapshots lie, and
takes the note away when its job ends. A note whose process is gone is that of a dead job. Of what is staged for it,
files that a snapshot names may still be published by whoever is started from that snapshot; the others never will be,
and go. Whatever cannot be read, or belongs to somebody else by now, stays.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from tidemark.checkpoint.local_copies import copies_root, sweep_copies
from tidemark.checkpoint.metadata.model import CheckpointMetadata
from tidemark.checkpoint.metadata.registry import read_metadata
from tidemark.checkpoint.presence import holds_metadata
from tidemark.checkpoint.storage.base import Storage
from tidemark.checkpoint.storage.filesystem import FileSystemStorage
from tidemark.config import Configuration, Options
from tidemark.errors import ConfigError, TidemarkError
from tidemark.job_logs import prune_logs
from tidemark.jobs import list_jobs, registry_directory
from tidemark.paths import is_local, join, local_path, name_of
from tidemark.private_files import open_private, private_directory, replace_private
from tidemark.processes import is_process_alive, process_started, this_machine
from tidemark.runtime.claim import areas_of, newest_claim
from tidemark.runtime.places import open_place
from tidemark.runtime.sinks.frontier import NOTES
from tidemark.runtime.sinks.kafka_commits import listed_files
from tidemark.scratch import sweep_scratch, tidy_up_after_signals

__all__ = ["Belongings", "Cleaned", "StagingPlace", "clean_machine", "sweep_at_start"]

_log = logging.getLogger(__name__)


class StagingPlace(msgspec.Struct, frozen=True):
    """Where a sink stages output: a claimed directory below a base path."""

    uid: str
    base: str
    directory: str


class _Note(msgspec.Struct, frozen=True):
    job_id: str
    pid: int
    since: int
    """Milliseconds since the epoch."""
    machine: str
    staging: tuple[StagingPlace, ...]
    checkpoints: str
    """Directory of the job's checkpoints; empty if they are in memory."""
    savepoints: tuple[str, ...] = ()
    started_from: str = ""
    """Snapshot of another job that the newest attempt started from, whose staged output it has taken over."""
    started: float = 0.0
    """What `process_started` says of the driver."""


class Cleaned(msgspec.Struct, frozen=True):
    """What was removed, and what had to stay and why."""

    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


class Belongings:
    """The note of one running job. Nothing here ever fails a job."""

    def __init__(self, job_id: str, checkpoints: str, since: int) -> None:
        """Note nothing yet."""
        self._note = _Note(
            str(job_id), os.getpid(), since, this_machine(), (), checkpoints, started=process_started()
        )

    def stages_at(self, places: Iterable[StagingPlace], started_from: str) -> None:
        """The job's sinks stage output there, and have taken over what the snapshot lists that it starts from."""
        self._write(msgspec.structs.replace(self._note, staging=tuple(places), started_from=started_from))

    def took_savepoint(self, directory: str) -> None:
        """A snapshot lies somewhere else than the others."""
        self._write(msgspec.structs.replace(self._note, savepoints=(*self._note.savepoints, directory)))

    def forget(self) -> None:
        """The job has ended: whatever is left is left on purpose."""
        note = _read(_path(self._note.job_id))
        if note is not None and note.pid == self._note.pid:
            _path(self._note.job_id).unlink(missing_ok=True)

    def _write(self, note: _Note) -> None:
        self._note = note
        if not note.staging:
            return
        try:
            private_directory(registry_directory())
            private_directory(registry_directory() / "places")
            replace_private(_path(note.job_id), msgspec.json.encode(note))
        except (OSError, ConfigError) as exc:
            _log.warning("What job %s leaves behind if it is killed will not be found: %s", note.job_id, exc)


def sweep_at_start(configuration: Configuration) -> None:
    """A job starts on this machine: remove what dead ones left, and leave nothing at a signal. Never raises."""
    tidy_up_after_signals()
    sweep_scratch()
    sweep_copies(copies_root(configuration.get(Options.LOCAL_RECOVERY_DIRS)))
    with suppress(Exception):
        _staged_output(remote=False)


def clean_machine(configuration: Configuration) -> Cleaned:
    """Remove everything that dead jobs of this user left on this machine, and their staged output wherever it is.

    Raises:
        ConfigError: The registry is somebody else's.
    """
    removed = sweep_scratch()
    removed += sweep_copies(copies_root(configuration.get(Options.LOCAL_RECOVERY_DIRS)))
    local = configuration.get(Options.ROCKSDB_LOCAL_DIR)
    for directory in local.replace(os.pathsep, ",").split(",") if local else ():
        removed += sweep_scratch(local_path(directory.strip()))
    # Looking at the records removes those of the dead.
    before = set(registry_directory().glob("*.json"))
    alive = {record.job_id for record in list_jobs()}
    removed += [str(path) for path in sorted(before) if not path.exists()]
    removed += prune_logs(alive)
    staged = _staged_output(remote=True)
    return Cleaned((*removed, *staged.removed), staged.kept)


def _staged_output(*, remote: bool) -> Cleaned:
    removed: list[str] = []
    kept: list[str] = []
    for path, note in _dead_notes():
        storage = FileSystemStorage()
        if not remote and not all(is_local(place.base) for place in note.staging):
            continue
        try:
            snapshots = list(_snapshots(storage, note))
            needed = {
                name_of(file.staged)
                for metadata in snapshots
                for place in note.staging
                for file in listed_files(metadata.sink_commits.get(place.uid, b""), place.uid)
            }
            for place in note.staging:
                removed += _sweep_place(note, place, needed)
        except (TidemarkError, OSError, ImportError, ValueError) as exc:
            kept.append(f"Staged output of job {note.job_id}: {exc}")
            continue
        if snapshots:
            newest = max(snapshots, key=lambda metadata: metadata.checkpoint_id)
            kept.append(f"Job {note.job_id} can be started again from checkpoint {newest.checkpoint_id}.")
        else:
            path.unlink(missing_ok=True)
    if removed:
        _log.info("Removed staged output of jobs that are gone: %s", ", ".join(removed))
    return Cleaned(tuple(removed), tuple(kept))


def _sweep_place(note: _Note, place: StagingPlace, needed: set[str]) -> list[str]:
    """Remove staged files nobody will publish, and the claim itself if nothing is left in it."""
    at = open_place(place.base)
    generation, holder = newest_claim(at, place.directory)
    if holder is None or (holder.job_id, holder.pid, holder.machine) != (note.job_id, note.pid, note.machine):
        # Released, or another driver's by now.
        return []
    removed = []
    for area in areas_of(at, place.directory):
        where = f"{place.directory}/{area}"
        for name in at.names(where):
            if name not in needed and name not in NOTES:
                at.remove(f"{where}/{name}")
                removed.append(join(place.base, where, name))
        at.remove_empty(where)
    if not needed and not areas_of(at, place.directory):
        at.remove(f"{place.directory}/.generation-{generation:08d}")
        at.remove_empty(place.directory)
    return removed


def _snapshots(storage: Storage, note: _Note) -> Iterator[CheckpointMetadata]:
    """Everything the job could be started from; what the user has deleted is not among it."""
    directories = [*note.savepoints, *([note.started_from] if note.started_from else [])]
    if note.checkpoints:
        runs = [note.checkpoints]
        runs += [
            join(note.checkpoints, n) for n in storage.list(note.checkpoints) if not n.startswith("chk-")
        ]
        directories += [join(run, n) for run in runs for n in storage.list(run) if n.startswith("chk-")]
    for directory in directories:
        if holds_metadata(storage, directory):
            yield read_metadata(storage, directory)


def _dead_notes() -> Iterator[tuple[Path, _Note]]:
    directory = registry_directory() / "places"
    if not directory.is_dir():
        return
    private_directory(directory)
    here = this_machine()
    for path in sorted(directory.glob("*.json")):
        note = _read(path)
        if note is None or note.machine != here or is_process_alive(note.pid, note.since, note.started):
            continue
        yield path, note


def _read(path: Path) -> _Note | None:
    try:
        with open(open_private(path, os.O_RDONLY), "rb") as file:
            return msgspec.json.decode(file.read(), type=_Note)
    except (OSError, ConfigError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _path(job_id: str) -> Path:
    return registry_directory() / "places" / f"{job_id}.json"
