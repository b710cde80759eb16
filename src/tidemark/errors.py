"""Every exception tidemark raises, in one tree.

::

    TidemarkError
    ├─ ConfigError (ValueError)                  IllegalArgumentException
    ├─ IllegalStateError (RuntimeError)          IllegalStateException
    ├─ UnsupportedOperationException (NotImplementedError)
    ├─ StateError
    │  ├─ NoCurrentKeyError (RuntimeError)
    │  ├─ UnknownStateError (ValueError)
    │  ├─ SerializationError
    │  ├─ StateMigrationException                SchemaIncompatibleError
    │  └─ MissingClassError                      both of the two above
    │     └─ ForbiddenClassError
    ├─ BackendError
    │  ├─ BackendLockedError
    │  └─ BackendCorruptedError
    ├─ StorageError                              verdict: StorageVerdict
    ├─ FencedError
    ├─ CheckpointError                           reason: FailureReason
    ├─ RestoreError
    │  ├─ SavepointNotFoundError
    │  ├─ MetadataError
    │  ├─ OffsetsOutOfRangeError
    │  ├─ UnmappedStateError (IllegalStateError)
    │  └─ MaxParallelismError (IllegalStateError)
    ├─ QueryError
    │  ├─ StateNotServedError                    UnknownKvStateError
    │  └─ UnknownKeyError                        UnknownKeyOrNamespaceException
    ├─ JobNotFoundError
    └─ ExecutionError (RuntimeError)             JobExecutionException
       ├─ SlotLostError
       ├─ SparkLostError
       └─ StaleChannelError

The right-hand column holds the names Flink users know, or other names; they are aliases of the class on their line.
Builtin bases stand in brackets. Facts are attributes, `code` is stable across releases, and every
class survives pickling with its attributes and, where possible, its `__cause__`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, ClassVar

__all__ = [
    "BackendCorruptedError",
    "BackendError",
    "BackendLockedError",
    "CheckpointError",
    "ConfigError",
    "ExecutionError",
    "FailureReason",
    "FencedError",
    "ForbiddenClassError",
    "IllegalArgumentException",
    "IllegalStateError",
    "IllegalStateException",
    "JobExecutionException",
    "JobNotFoundError",
    "MaxParallelismError",
    "MetadataError",
    "MissingClassError",
    "NoCurrentKeyError",
    "OffsetsOutOfRangeError",
    "QueryError",
    "RestoreError",
    "SavepointNotFoundError",
    "SchemaIncompatibleError",
    "SerializationError",
    "SlotLostError",
    "SparkLostError",
    "StaleChannelError",
    "StateError",
    "StateMigrationException",
    "StateNotServedError",
    "StorageError",
    "StorageVerdict",
    "TidemarkError",
    "UnknownKeyError",
    "UnknownKeyOrNamespaceException",
    "UnknownKvStateError",
    "UnknownKvStateIdException",
    "UnknownKvStateLocation",
    "UnknownStateError",
    "UnmappedStateError",
    "UnsupportedOperationException",
]


def _dump_cause(cause: BaseException | None) -> bytes | None:
    """Pickle a foreign cause, or give up on it: losing a cause must never lose the error itself."""
    if cause is None:
        return None
    try:
        # cloudpickle because user exceptions often live in the driver's __main__; it also maps such a
        # class back to the very same object when it returns to the process that sent it.
        import cloudpickle

        data: bytes = cloudpickle.dumps(cause)
    except Exception:
        return None
    return data


def _rebuild(
    cls: type[TidemarkError], args: tuple[Any, ...], facts: dict[str, Any], cause: bytes | None
) -> TidemarkError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(facts)
    if cause is not None:
        import pickle

        try:
            error.__cause__ = pickle.loads(cause)
        except Exception:
            # The user's exception cannot be rebuilt here; our message already quotes it.
            error.__cause__ = None
    return error


class TidemarkError(Exception):
    """Root of the tree: catch it to catch everything tidemark raises on purpose."""

    code: ClassVar[str] = "ERROR"

    def __init__(self, message: str = "") -> None:
        """Keep the message; subclasses add their facts as attributes."""
        super().__init__(message)

    @property
    def message(self) -> str:
        """The text given at construction."""
        return str(self.args[0]) if self.args else ""

    def facts(self) -> dict[str, Any]:
        """Return the attributes that are set, for JSON output and REST bodies."""
        plain = {k: v for k, v in self.__dict__.items() if v is not None and not k.startswith("_")}
        return {k: v.value if isinstance(v, Enum) else v for k, v in plain.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle class, arguments and attributes without running a constructor on the other side."""
        return _rebuild, (type(self), self.args, dict(self.__dict__), _dump_cause(self.__cause__))


class ConfigError(TidemarkError, ValueError):
    """An argument or configuration value is not acceptable; correct the value named in the message."""

    code = "CONFIG"

    def __init__(self, message: str = "", *, key: str | None = None) -> None:
        """Remember the configuration key, if one is to blame."""
        super().__init__(message)
        self.key = key


class IllegalStateError(TidemarkError, RuntimeError):
    """The call is valid in itself but not now, or not twice; change the order of calls."""

    code = "ILLEGAL_STATE"


class UnsupportedOperationException(TidemarkError, NotImplementedError):
    """The object exists for reading or for other contexts only; this operation never works on it."""

    code = "UNSUPPORTED"


class StateError(TidemarkError):
    """Something is wrong with one named state of one operator."""

    code = "STATE"

    def __init__(
        self, message: str = "", *, state_name: str | None = None, operator_uid: str | None = None
    ) -> None:
        """Remember which state of which operator."""
        super().__init__(message)
        self.state_name = state_name
        self.operator_uid = operator_uid


class NoCurrentKeyError(StateError, RuntimeError):
    """Keyed state was touched while no key is current; use it only inside element or timer callbacks."""

    code = "NO_CURRENT_KEY"


class UnknownStateError(StateError, ValueError):
    """No state of that name is registered here; pass its descriptor where the stream is built."""

    code = "UNKNOWN_STATE"


class SerializationError(StateError):
    """A value does not fit its declared type, or bytes do not decode; fix the type or the value."""

    code = "SERIALIZATION"


class StateMigrationException(StateError):
    """Stored state cannot be read with the new serializer; migrate it or give the operator a new uid."""

    code = "SCHEMA_INCOMPATIBLE"


class MissingClassError(SerializationError, StateMigrationException):
    """Stored bytes name a class that cannot be imported; bring it back under its name or drop the state."""

    code = "MISSING_CLASS"


class ForbiddenClassError(MissingClassError):
    """Stored bytes name a class that `state.restore.allowed-classes` does not allow; add it there if you trust them."""

    code = "FORBIDDEN_CLASS"


class BackendError(TidemarkError):
    """A state backend failed at its own work (open, read, write, flush)."""

    code = "BACKEND"

    def __init__(self, message: str = "", *, backend: str | None = None, path: str | None = None) -> None:
        """Remember the backend's name and the local path it was working in."""
        super().__init__(message)
        self.backend = backend
        self.path = path


class BackendLockedError(BackendError):
    """Another process holds the local store; end it or choose another directory."""

    code = "BACKEND_LOCKED"


class BackendCorruptedError(BackendError):
    """The local store does not verify; it is rebuilt from the last checkpoint on restart."""

    code = "BACKEND_CORRUPTED"


class StorageVerdict(Enum):
    """What a `StorageError` says about the bytes; decided once, where the error is mapped or found."""

    TRANSIENT = "transient"
    """The place did not answer or refused (time-out, I/O error, connection, 5xx, permission): try again."""
    MISSING = "missing"
    """The place answered: nothing is there."""
    DAMAGED = "damaged"
    """The bytes came, but they are not those that were written, or no reader understands them."""
    UNUSABLE = "unusable"
    """Nothing can be had from there: no driver for such a place, or no trust in who wrote it; do not try again."""


class StorageError(TidemarkError):
    """Checkpoint bytes could not be read or written; check the path, permissions and free space."""

    code = "STORAGE"

    def __init__(
        self,
        message: str = "",
        *,
        path: str | None = None,
        verdict: StorageVerdict = StorageVerdict.TRANSIENT,
    ) -> None:
        """Remember the path or URI, and what is known of the bytes: nothing, unless somebody looked."""
        super().__init__(message)
        self.path = path
        self.verdict = verdict


class FencedError(TidemarkError):
    """A newer driver of the same lineage has taken over, or published further; stop one of the two."""

    code = "FENCED"

    def __init__(self, message: str = "", *, path: str | None = None) -> None:
        """Remember the directory that was claimed."""
        super().__init__(message)
        self.path = path


class FailureReason(Enum):
    """Why a checkpoint attempt did not complete."""

    EXPIRED = "expired"
    DECLINED = "declined"
    STORAGE = "storage"
    SIZE_LIMIT = "size-limit"
    FINALIZE = "finalize"
    NOT_RUNNING = "not-running"
    JOB_STOPPING = "job-stopping"
    JOB_RESTARTING = "job-restarting"

    @property
    def counts_as_failure(self) -> bool:
        """Whether the attempt counts against the tolerable number of failed checkpoints."""
        return self not in (
            FailureReason.NOT_RUNNING,
            FailureReason.JOB_STOPPING,
            FailureReason.JOB_RESTARTING,
        )


class CheckpointError(TidemarkError):
    """A checkpoint or savepoint attempt failed; `reason` says in which of the known ways."""

    code = "CHECKPOINT"

    def __init__(
        self,
        message: str = "",
        *,
        reason: FailureReason = FailureReason.DECLINED,
        checkpoint_id: int | None = None,
    ) -> None:
        """Remember the reason and the id of the attempt."""
        super().__init__(message)
        self.reason = reason
        self.checkpoint_id = checkpoint_id


class RestoreError(TidemarkError):
    """A job could not be restored; retrying cannot help until path, job or savepoint change."""

    code = "RESTORE"

    def __init__(
        self, message: str = "", *, path: str | None = None, operator_uid: str | None = None
    ) -> None:
        """Remember the snapshot's path and the operator concerned."""
        super().__init__(message)
        self.path = path
        self.operator_uid = operator_uid


class SavepointNotFoundError(RestoreError):
    """No `_metadata` at the path: not a savepoint, or a checkpoint that never completed."""

    code = "SAVEPOINT_NOT_FOUND"


class OffsetsOutOfRangeError(RestoreError):
    """A partition no longer has what is to be read next: records were deleted, or the topic was made anew."""

    code = "OFFSETS_OUT_OF_RANGE"

    def __init__(
        self,
        message: str = "",
        *,
        topic: str | None = None,
        partition: int | None = None,
        wanted: int | None = None,
        earliest: int | None = None,
        latest: int | None = None,
    ) -> None:
        """Remember the partition, the offset wanted, and those it has (`latest` is behind the last record)."""
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.wanted = wanted
        self.earliest = earliest
        self.latest = latest


class MetadataError(RestoreError):
    """A `_metadata` file is damaged or of a version this release does not know."""

    code = "METADATA"


class UnmappedStateError(RestoreError, IllegalStateError):
    """The snapshot holds state of operators the job lacks; restore their uids or allow dropping it."""

    code = "UNMAPPED_STATE"

    def __init__(
        self,
        message: str = "",
        *,
        path: str | None = None,
        operator_uid: str | None = None,
        operator_uids: Sequence[str] = (),
    ) -> None:
        """Remember every operator uid whose state has no owner."""
        uids = tuple(operator_uids) or ((operator_uid,) if operator_uid is not None else ())
        super().__init__(message, path=path, operator_uid=uids[0] if uids else None)
        self.operator_uids = uids


class MaxParallelismError(RestoreError, IllegalStateError):
    """The job's number of key groups differs from the snapshot's; remove the explicit setting."""

    code = "MAX_PARALLELISM"

    def __init__(
        self,
        message: str = "",
        *,
        path: str | None = None,
        operator_uid: str | None = None,
        restored: int | None = None,
        requested: int | None = None,
    ) -> None:
        """Remember both numbers."""
        super().__init__(message, path=path, operator_uid=operator_uid)
        self.restored = restored
        self.requested = requested


class QueryError(TidemarkError):
    """A queryable-state request failed."""

    code = "QUERY"

    def __init__(self, message: str = "", *, job_id: str | None = None, name: str | None = None) -> None:
        """Remember the job and the queryable name asked for."""
        super().__init__(message)
        self.job_id = job_id
        self.name = name


class StateNotServedError(QueryError):
    """Nobody serves that name: unknown name or job, not running, or not registered yet."""

    code = "STATE_NOT_SERVED"

    @classmethod
    def by_job(cls, job_id: str, name: str) -> StateNotServedError:
        """The job runs, but serves no queries of any state."""
        message = f"Job {job_id} serves no queries. Set queryable-state.enable to true."
        return cls(message, job_id=job_id, name=name)


class UnknownKeyError(QueryError):
    """The state is served but holds no value for the key."""

    code = "UNKNOWN_KEY"


class JobNotFoundError(TidemarkError):
    """No running job has that id; `tidemark list -a` shows the known ones."""

    code = "JOB_NOT_FOUND"

    def __init__(self, message: str = "", *, job_id: str | None = None) -> None:
        """Remember the id asked for."""
        super().__init__(message)
        self.job_id = job_id


class ExecutionError(TidemarkError, RuntimeError):
    """The job failed and will not be restarted; the user's exception is `__cause__` and is quoted."""

    code = "EXECUTION"

    def __init__(
        self,
        message: str = "",
        *,
        job_id: str | None = None,
        operator_uid: str | None = None,
        epoch: int | None = None,
        slot: int | None = None,
    ) -> None:
        """Remember where it happened."""
        super().__init__(message)
        self.job_id = job_id
        self.operator_uid = operator_uid
        self.epoch = epoch
        self.slot = slot

    @classmethod
    def from_cause(
        cls,
        what: str,
        cause: BaseException,
        *,
        job_id: str | None = None,
        operator_uid: str | None = None,
        epoch: int | None = None,
        slot: int | None = None,
    ) -> ExecutionError:
        """Build an error that quotes `cause` (type and text) after `what` and chains it."""
        error = cls(
            f"{what}: {type(cause).__name__}: {cause}",
            job_id=job_id,
            operator_uid=operator_uid,
            epoch=epoch,
            slot=slot,
        )
        error.__cause__ = cause
        return error


class SlotLostError(ExecutionError):
    """A slot process died or stopped answering; the attempt ends and the restart strategy decides."""

    code = "SLOT_LOST"


class SparkLostError(ExecutionError):
    """The JVM of Spark's driver has ended, or its context was stopped: no attempt can run in this process any more."""

    code = "SPARK_LOST"


class StaleChannelError(ExecutionError):
    """A slot refused a channel of an old attempt, or one delivered twice; the epoch fails, state is safe."""

    code = "STALE_CHANNEL"


IllegalArgumentException = ConfigError
IllegalStateException = IllegalStateError
SchemaIncompatibleError = StateMigrationException
JobExecutionException = ExecutionError
UnknownKeyOrNamespaceException = UnknownKeyError
UnknownKvStateError = StateNotServedError
UnknownKvStateIdException = StateNotServedError
UnknownKvStateLocation = StateNotServedError
