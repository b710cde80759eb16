"""High availability: of all drivers of a job one leads it, and the next one finds where it stood.

What drivers know of each other is in `<high-availability.storageDir>/<job id>/`, private to the user:

    .generation-<n>              made by the n-th driver of the job; says who leads it (`runtime.claim`)
    .area-<n>-<token>/pointer    the snapshots the job can be recovered from, newest first
    .area-<n>-<token>/pulse      another number every now and then, for as long as that driver lives
    ended                        how the job ended: nobody goes on with it

Whoever leads next takes the area away, pointer included. A snapshot counts when the pointer names it, which is
written in front of all commits and looked at behind every claim: a driver that was frozen between its `_metadata` and
its pointer finds no area, or no claim, and commits nothing. Every driver writes its checkpoints into a directory of
its own, so what a late one still writes or deletes is nobody else's.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import TypeVar

import msgspec

from tidemark.api.executor import JobSettings
from tidemark.checkpoint.completed import CompletedSnapshot, Origin
from tidemark.checkpoint.messages import JobEnd
from tidemark.checkpoint.storage.mapping import mapped
from tidemark.config import Options
from tidemark.config.modes import HighAvailability, StandbyPolicy
from tidemark.errors import ConfigError, FencedError, IllegalStateError, StorageError, StorageVerdict
from tidemark.ids import JobID, new_job_id
from tidemark.paths import absolute, is_local, join, local_path
from tidemark.private_files import make_directories
from tidemark.processes import is_process_alive, this_machine
from tidemark.runtime.claim import Claim, Holder, areas_of, newest_claim
from tidemark.runtime.places import Place, open_place
from tidemark.runtime.sealed_notes import DamagedNote, seal, unseal
from tidemark.runtime.storage_plan import StoragePlan

__all__ = ["Leadership", "job_id_of", "lead"]

_log = logging.getLogger(__name__)

_POINTER = "pointer"
_PULSE = "pulse"
_ENDED = "ended"
_BEATS = 3
"""Signs of life within one lease."""
_LOOKS = 10
"""How often within one lease a standby looks for them."""

T = TypeVar("T")


class _Snapshot(msgspec.Struct, frozen=True):
    checkpoint_id: int
    directory: str
    timestamp: int
    digest: str


class _Pointer(msgspec.Struct, frozen=True):
    snapshots: tuple[_Snapshot, ...]
    started_from: str | None = None
    """The savepoint the user started the job from, however many drivers ago."""
    asked: int = 0
    """The parallelism that program and configuration wanted."""
    parallelism: int = 0
    """The one the job had been rescaled to."""


class _Ended(msgspec.Struct, frozen=True):
    status: str
    at: int
    """Seconds since the epoch."""
    job_name: str
    started_from: str | None = None
    restorable: bool = False
    """Whether the pointer still says something: the job failed and its checkpoints were kept."""


class Leadership:
    """The right to run one job, from `lead` until it is lost or released.

    Attributes:
        job_id: The job.
        run: Names this driver among all of the job.
        recovered: The snapshots it can go on from, newest first; empty if it starts anew.
        settings: Those of the program, but with the parallelism that the job had been rescaled to.
    """

    def __init__(self, place: Place, claim: Claim, settings: JobSettings, lease_s: float) -> None:
        """Use `lead`."""
        self._place = place
        self._claim = claim
        self._settings = settings
        self.settings = settings
        self._lease_s = lease_s
        self.job_id = _stable_job_id(settings)
        self.run = f"{claim.generation:06d}-{claim.token[:8]}"
        self.recovered: tuple[CompletedSnapshot, ...] = ()
        given = settings.savepoint_path
        self._started_from = None if given is None else absolute(given)
        self._keep_area = True
        """Whether the next driver is to find the pointer."""
        self._lost: FencedError | None = None
        self._released = threading.Event()
        self._heart = threading.Thread(target=self._beat, name=f"leader-{self.job_id[:8]}", daemon=True)

    def begin(self) -> None:
        """Find out how far the job is; from now on others can see that somebody leads it.

        Raises:
            IllegalStateError: The job has ended, and nothing says that it is to run once more.
            StorageError: The storage directory cannot be reached, or what is there makes no sense.
        """
        with self._mapped("read"):
            ended = _decoded(self._place, f"{self.job_id}/{_ENDED}", _Ended)
            if ended is not None:
                self._begin_again(ended)
            pointer = _decoded(self._place, f"{self._claim.area}/{_POINTER}", _Pointer)
            if pointer is None:
                self._begin_anew()
            self._place.write(f"{self._claim.area}/{_PULSE}", b"0")
        if pointer is not None and pointer.snapshots:
            self._started_from = pointer.started_from
            self.recovered = tuple(
                CompletedSnapshot(
                    s.checkpoint_id, s.directory, Origin.EXTERNAL, s.timestamp, digest=_bytes(s)
                )
                for s in pointer.snapshots
            )
            if pointer.asked == self._settings.parallelism and pointer.parallelism:
                self.settings = replace(self._settings, parallelism=pointer.parallelism)
        self._heart.start()

    def _begin_anew(self) -> None:
        """Nobody has got anywhere yet; from now on that is what the pointer says.

        It is there before the first sign of life: one that a predecessor's pulse survived has been lost.
        """
        if _PULSE in self._place.names(self._claim.area):
            path = f"{self._claim.area}/{_POINTER}"
            raise StorageError(
                f"{path} in the directory of high availability is gone: how far the job was is not known, and starting "
                f"anew would repeat its output. Start the job under another {Options.JOB_ID.key} from its newest "
                f"checkpoint ('tidemark run -s PATH'), or delete {join(self._root, self.job_id)} to start anew.",
                path=path,
                verdict=StorageVerdict.DAMAGED,
            )
        self._point_nowhere()

    def _point_nowhere(self) -> None:
        self._place.write(f"{self._claim.area}/{_POINTER}", seal(_Pointer((), self._started_from)))

    def _begin_again(self, ended: _Ended) -> None:
        given = self._settings.savepoint_path
        if given is not None and absolute(given) != ended.started_from:
            # A new start by the user's own wish, from where no driver of the ended job was told to start.
            self._point_nowhere()
        elif not ended.restorable:
            at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(ended.at))
            raise IllegalStateError(
                f"Job {self.job_id} ('{ended.job_name}') ended at {at} UTC: it is {ended.status}, and is not started "
                "again. To run it once more, start it from another savepoint or retained checkpoint "
                f"('tidemark run -s PATH'), give it another name or {Options.JOB_ID.key}, or delete "
                f"{join(self._root, self.job_id)}."
            )
        self._place.remove(f"{self.job_id}/{_ENDED}")

    @property
    def _root(self) -> str:
        return _storage_directory(self._settings)

    def verify(self) -> None:
        """Make sure that the job is still this driver's.

        Raises:
            FencedError: Another one leads it, or has ended it.
            StorageError: It cannot be found out now.
        """
        self.check()
        with self._mapped("read"):
            self._claim.verify()

    def check(self) -> None:
        """The same as far as it is known already; touches nothing.

        Raises:
            FencedError: The job is lost.
        """
        if self._lost is not None:
            raise self._lost

    def point_to(self, snapshots: Iterable[CompletedSnapshot], parallelism: int = 0) -> None:
        """Let whoever leads the job next find these snapshots, the newest first, and its parallelism.

        Raises:
            FencedError: The job is lost; nothing of the newest snapshot may be committed.
            StorageError: Nobody knows whether the pointer was written.
        """
        found = {s.checkpoint_id: s for s in snapshots}
        pointer = _Pointer(
            tuple(
                _Snapshot(key, found[key].directory, found[key].timestamp, found[key].digest.hex())
                for key in sorted(found, reverse=True)
            ),
            self._started_from,
            self._settings.parallelism,
            parallelism,
        )
        self._write(_POINTER, seal(pointer))
        # Where files can be written into a directory that was taken away, only this tells.
        self.verify()

    def end(self, how: JobEnd, *, restorable: bool) -> None:
        """Write down that the job is over; last commits are done, checkpoints not yet deleted.

        Raises:
            FencedError: The job is lost, so this is not to be said.
            StorageError: It may not be known to others.
        """
        self.verify()
        restorable = restorable and how is JobEnd.FAILED
        ended = _Ended(
            how.name, int(time.time()), self._settings.job_name, self._started_from, restorable=restorable
        )
        with self._mapped("written"):
            self._place.write(f"{self.job_id}/{_ENDED}", seal(ended))
        self._keep_area = restorable

    def release(self) -> None:
        """This driver is done: let another one lead the job, if it has not ended. Never raises; idempotent."""
        if self._released.is_set():
            return
        self._released.set()
        try:
            self._claim.release(keep_area=self._keep_area)
        except Exception as exc:
            _log.warning("Others have to wait before they can lead job %s: %s", self.job_id, exc)

    def _beat(self) -> None:
        number = 0
        while not self._released.wait(self._lease_s / _BEATS):
            number += 1
            try:
                self._write(_PULSE, str(number).encode())
                with self._mapped("read"):
                    self._claim.verify()
            except FencedError as exc:
                if not self._released.is_set():
                    self._lost = exc
                return
            except StorageError as exc:
                _log.warning("Job %s shows no sign of life: %s", self.job_id, exc)

    def _write(self, name: str, data: bytes) -> None:
        path = f"{self._claim.area}/{name}"
        with self._mapped("written"):
            try:
                self._place.write(path, data)
            except FileNotFoundError:
                self._claim.verify()
                raise
            except OSError:
                # An answer that got lost says nothing about the request.
                if self._place.read(path) != data:
                    raise

    def _mapped(self, verb: str) -> AbstractContextManager[None]:
        return mapped(verb, join(self._root, self.job_id), OSError)


def _leads(settings: JobSettings, storage: StoragePlan) -> bool:
    """Whether drivers of this job have to agree who runs it.

    Raises:
        ConfigError: They are to, but cannot; or the options contradict each other.
    """
    configuration = settings.configuration
    if configuration.get(Options.HIGH_AVAILABILITY) is HighAvailability.NONE:
        if configuration.get(Options.JOB_ID) is not None:
            raise ConfigError(
                f"{Options.JOB_ID.key} is set, but {Options.HIGH_AVAILABILITY.key} is not, which makes sure that one "
                "driver at a time runs the job of an id. Set both or none.",
                key=Options.JOB_ID.key,
            )
        return False
    if settings.batch_mode:
        _log.warning("A job in BATCH mode has no checkpoints: it starts anew whenever its driver does.")
        return False
    _storage_directory(settings)
    if not settings.checkpointing.enabled:
        raise ConfigError(
            f"{Options.HIGH_AVAILABILITY.key} needs checkpoints to recover a job from: set "
            f"{Options.CHECKPOINTING_INTERVAL.key}.",
            key=Options.CHECKPOINTING_INTERVAL.key,
        )
    if storage.driver is not storage.savepoints:
        raise ConfigError(
            f"{Options.HIGH_AVAILABILITY.key} needs checkpoints that outlive the driver: set "
            f"{Options.CHECKPOINTS_DIR.key}.",
            key=Options.CHECKPOINTS_DIR.key,
        )
    _stable_job_id(settings)
    return True


def _stable_job_id(settings: JobSettings) -> JobID:
    """The id that every driver of the job comes to.

    Raises:
        ConfigError: There is neither an id nor a name to derive it from, or the id is none.
    """
    given = settings.configuration.get(Options.JOB_ID)
    if given is not None:
        try:
            return JobID(given)
        except ValueError as exc:
            raise ConfigError(f"{Options.JOB_ID.key}: {exc}", key=Options.JOB_ID.key) from None
    if settings.job_name == JobSettings().job_name:
        raise ConfigError(
            f"{Options.HIGH_AVAILABILITY.key} needs something to know the job by when it comes back: "
            f"env.execute('a name of its own'), or {Options.JOB_ID.key}.",
            key=Options.JOB_ID.key,
        )
    return JobID(hashlib.blake2b(settings.job_name.encode(), digest_size=16).hexdigest())


def lead(settings: JobSettings, storage: StoragePlan) -> Leadership | None:
    """Become the driver that runs the job; waits for one that does, as configured. None without high availability.

    Raises:
        ConfigError: It cannot be highly available as it is configured.
        IllegalStateError: The job has ended, or another driver runs it and this one is not to wait.
        FencedError: Yet another driver was faster, more than once.
        StorageError: The storage directory cannot be reached.
    """
    if not _leads(settings, storage):
        return None
    root, job_id = _storage_directory(settings), _stable_job_id(settings)
    lease_s = settings.configuration.get(Options.HIGH_AVAILABILITY_LEASE) / 1000
    refuse = settings.configuration.get(Options.HIGH_AVAILABILITY_STANDBY) is StandbyPolicy.REFUSE
    subject = f"Job '{settings.job_name}' (high availability in {root})"
    place = open_place(root)
    with mapped("claimed", join(root, job_id), OSError):
        if is_local(root):
            # Whoever may rename things in it could put another job's directory under this one's name.
            make_directories(local_path(root), 0o700)
        # What somebody else has put there says nothing: no one is waited for because of it.
        place.make_private(job_id)
        while True:
            gone = _await_turn(place, job_id, lease_s, refuse=refuse)
            # Of several standbys that saw the same driver die, the others wait for this one.
            with suppress(FencedError):
                claim = Claim.acquire(place, job_id, str(job_id), subject, behind=gone)
                break
    leadership = Leadership(place, claim, settings, lease_s)
    try:
        leadership.begin()
    except BaseException:
        leadership.release()
        raise
    if leadership.recovered:
        newest = leadership.recovered[0]
        _log.warning("Job %s goes on from %s.", job_id, newest.directory)
        if settings.savepoint_path is not None:
            _log.warning("It is newer than %s, which is not used again.", settings.savepoint_path)
    return leadership


def job_id_of(leadership: Leadership | None) -> JobID:
    """The id of a job that is about to start."""
    return new_job_id() if leadership is None else leadership.job_id


def _await_turn(place: Place, job_id: str, lease_s: float, *, refuse: bool) -> int:
    """Wait until nobody leads the job; returns the newest generation, which is gone or silent."""
    watched: tuple[int, bytes | None] | None = None
    since = time.monotonic()
    while True:
        generation, holder = newest_claim(place, job_id)
        if generation == 0 or (holder is not None and _is_dead(holder)):
            return generation
        seen = (generation, _pulse(place, job_id, generation))
        if watched is None:
            _log.warning("Job %s is led by %s; this driver waits for its turn.", job_id, _named(holder))
        if seen != watched:
            if watched is not None and refuse:
                raise IllegalStateError(
                    f"Job {job_id} is run by {_named(holder)}, and {Options.HIGH_AVAILABILITY_STANDBY.key} is REFUSE. "
                    "End that driver first, or set it to WAIT."
                )
            watched, since = seen, time.monotonic()
        elif time.monotonic() - since > lease_s:
            _log.warning("Job %s: no sign of life from %s for %g s.", job_id, _named(holder), lease_s)
            return generation
        time.sleep(lease_s / _LOOKS)


def _is_dead(holder: Holder) -> bool:
    """Whether its process is known to be gone; nobody can tell that of another machine."""
    here = this_machine()
    if not here or holder.machine != here:
        return False
    return not is_process_alive(holder.pid, holder.since * 1000, holder.started)


def _pulse(place: Place, job_id: str, generation: int) -> bytes | None:
    for area, number in areas_of(place, job_id).items():
        if number == generation:
            with suppress(FileNotFoundError):
                return place.read(f"{job_id}/{area}/{_PULSE}")
    return None


def _named(holder: Holder | None) -> str:
    return "another driver" if holder is None else f"process {holder.pid} on {holder.host}"


def _storage_directory(settings: JobSettings) -> str:
    directory = settings.configuration.get(Options.HIGH_AVAILABILITY_STORAGE)
    if not directory:
        raise ConfigError(
            f"{Options.HIGH_AVAILABILITY.key} is FILESYSTEM, but {Options.HIGH_AVAILABILITY_STORAGE.key} is not set. "
            "Give it a directory that every driver of the job reaches.",
            key=Options.HIGH_AVAILABILITY_STORAGE.key,
        )
    return absolute(directory)


def _decoded(place: Place, path: str, kind: type[T]) -> T | None:
    """What a file of ours says, None if it is not there.

    Raises:
        StorageError: It makes no sense; nobody may guess how far the job was.
    """
    try:
        data = place.read(path)
    except FileNotFoundError:
        return None
    try:
        return unseal(data, kind)
    except DamagedNote as exc:
        raise StorageError(
            f"{path} in the directory of high availability is damaged: {exc}. Start the job under another "
            f"{Options.JOB_ID.key} from its newest checkpoint ('tidemark run -s PATH').",
            path=path,
            verdict=StorageVerdict.DAMAGED,
        ) from exc


def _bytes(snapshot: _Snapshot) -> bytes:
    try:
        return bytes.fromhex(snapshot.digest)
    except ValueError:
        # No digest is like it, so the snapshot is not taken for the one that was written.
        return b"?"
