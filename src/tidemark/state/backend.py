"""The contract of a keyed state backend: how operators reach state, whatever keeps it.

An operator drives a backend like this, for each batch::

    backend.start_batch(tokens)            # the clock is read once; RocksDB prefetches
    for token, value in zip(tokens, values):
        backend.context.token = token      # from here on handles see this key
        ...                                # user code touches handles
    backend.context.token = NO_KEY
    backend.end_batch()                    # RocksDB writes back

Between two batches, and only there, `cut` may be called. A backend is used by one thread at a time; only
the object that `cut` returns may be read from another thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemark.errors import NoCurrentKeyError, UnsupportedOperationException
from tidemark.state.key_tokens import KeyTokens
from tidemark.state.namespace import VOID, Namespace, NamespaceKind

if TYPE_CHECKING:
    import pyarrow as pa

    from tidemark.clock import Clock
    from tidemark.state.column_keys import Keys
    from tidemark.state.descriptors import StateDescriptor
    from tidemark.state.expired_state import ExpiredUnit
    from tidemark.state.expiry import Expiry
    from tidemark.state.primitives import State
    from tidemark.state.serializers.base import TypeSerializer
    from tidemark.state.snapshot import Increment, KeyedCut, StateMeta

__all__ = [
    "MIN_TIME",
    "NO_KEY",
    "AccessContext",
    "BackendParameters",
    "EventTimeContext",
    "KeyContext",
    "KeyToken",
    "KeyedStateBackend",
    "Windows",
]

MIN_TIME = -(2**63)
"""Event time before there is any."""

Windows = tuple[Any, Any]
"""Starts and ends of windows, two numpy arrays of 64-bit integers."""

KeyToken = Any
"""What identifies a key inside a slot; made by `tidemark.state.key_tokens.KeyTokens`."""


class _NoKey:
    """Stands for "no key is current". Hashing it raises, so a handle needs no check of its own."""

    __slots__ = ()

    def __hash__(self) -> int:
        raise NoCurrentKeyError(
            "Keyed state was used while no key is current (in open, close, snapshot_state or on the "
            "broadcast side). Use it while an element or a timer is being processed."
        )

    def __repr__(self) -> str:
        return "NO_KEY"

    def __reduce__(self) -> str:
        return "NO_KEY"


NO_KEY = _NoKey()


class KeyContext:
    """The current key of one operator subtask, shared by its backend, its handles and its timers."""

    __slots__ = ("batch", "event", "now", "stamp", "token")

    def __init__(self) -> None:
        self.token: KeyToken = NO_KEY
        self.batch: object = None
        """Stands for the batch whose `Keys` are good now; None between batches."""
        self.now: int = 0
        """Processing time in ms of the current batch; TTL reads only this."""
        self.stamp: int = 0
        """The time that units accessed now are stamped with: `now`."""
        self.event = EventTimeContext(self)

    def start_batch(self, now: int) -> None:
        """A batch begins at `now`."""
        self.now = self.stamp = now

    def time_of(self, expiry: Expiry, clock: Clock) -> int:
        """The time by which units of a state are judged between two batches."""
        return self.event.now if expiry.event_time else clock.now()


class EventTimeContext:
    """The same current key for states whose time-to-live is event time; the operator moves its time."""

    __slots__ = ("_keys", "now", "stamp")

    def __init__(self, keys: KeyContext) -> None:
        self._keys = keys
        self.now: int = MIN_TIME
        """The watermark; while an event-time timer fires, the timer's time."""
        self.stamp: int = MIN_TIME
        """The timestamp of the current record, or `now` if that is later or there is none."""

    @property
    def token(self) -> KeyToken:
        """The current key."""
        return self._keys.token

    def stand_at(self, time: int) -> None:
        """Time is `time`, and so are accesses until a record says otherwise."""
        self.now = self.stamp = time

    def access_at(self, timestamp: int | None) -> None:
        """A record with this timestamp is the current one; a late one counts as of now."""
        self.stamp = self.now if timestamp is None or timestamp < self.now else timestamp


AccessContext = KeyContext | EventTimeContext
"""What a handle sees of the current key and of the time its state lives by."""


@dataclass(frozen=True, slots=True)
class BackendParameters:
    """All that a backend needs to know about the operator subtask it serves."""

    key_serializer: TypeSerializer[Any]
    max_parallelism: int
    key_groups: tuple[int, int]
    """First and last key group, both included."""
    clock: Clock
    asynchronous: bool = True
    directory: Path | None = None
    """Private scratch directory for backends that keep files; they may create it and delete it."""
    options: dict[str, Any] = field(default_factory=dict)
    """Backend-specific settings, plain data (see each backend's `options` module)."""
    tokens: KeyTokens = field(init=False, repr=False, compare=False)
    """The tokens of its keys."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokens", KeyTokens(self.key_serializer))


class KeyedStateBackend(ABC):
    """Keeps the keyed state of one operator subtask.

    Attributes:
        context: Current key and batch time; the operator writes it, handles read it.
        parameters: What it was created with.
        by_column: Whether it has `column_state`.
        expired: What has expired and is still to be reported; None unless some state asked for reports.
        prefetches: Whether the keys told to `start_batch` are fetched together: large batches are cheaper.
    """

    by_column = False
    prefetches = False
    expired: list[ExpiredUnit] | None = None
    context: KeyContext
    parameters: BackendParameters

    @abstractmethod
    def state(self, descriptor: StateDescriptor, namespace: NamespaceKind = NamespaceKind.VOID) -> State:
        """Register the state, or find it again, and return its handle.

        The same name with another kind, type or TTL switch in one backend is refused. If restored state is
        waiting under this name, the compatibility of its serializers is decided here.
        Handles of states with a namespace also have `set_namespace(namespace)`; merging kinds have
        `merge_namespaces(target, sources)`.

        Raises:
            ConfigError: The name is taken by another kind or type.
            StateMigrationException: The restored state cannot be read as asked.
        """

    @abstractmethod
    def start_batch(self, tokens: Sequence[KeyToken] | None = None) -> None:
        """Begin a batch: read the clock into `context.now`; `tokens` are the keys it will touch, if known."""

    @abstractmethod
    def end_batch(self) -> None:
        """End a batch: everything written in it is in the store (and in the next `cut`)."""

    def column_state(
        self, descriptor: StateDescriptor, namespace: NamespaceKind = NamespaceKind.VOID
    ) -> State:
        """Like `state`, for whoever reads and writes the state of many keys at once.

        In windows that is aggregating state, whose handle reads and writes accumulators as value state does.

        Raises:
            UnsupportedOperationException: The backend does not do that.
        """
        raise self._no_columns()

    def column_keys(self, tokens: pa.Array, windows: Windows | None = None) -> Keys:
        """Within a batch: the keys behind a column of tokens, for handles of `column_state`.

        They are good until `end_batch`, or the next call. With `windows` these are windows of keys, for states that
        have such a namespace: each pair of a key and a window counts as one key.

        Raises:
            UnsupportedOperationException: The backend does not do that.
        """
        raise self._no_columns()

    def _no_columns(self) -> UnsupportedOperationException:
        return UnsupportedOperationException(
            f"{type(self).__name__} does not keep state by column, which batch functions need. Use the heap or "
            "the RocksDB backend."
        )

    @abstractmethod
    def record_processed(self) -> None:
        """Per-record hook of incremental TTL clean-up; operators call it only if `wants_records`."""

    @property
    @abstractmethod
    def wants_records(self) -> bool:
        """Whether some registered state asked for clean-up on every record."""

    def next_expiry(self) -> int | None:
        """The processing time at which state may expire whose expiry is reported, if there is any."""
        return None

    def look_everywhere(self) -> None:
        """Let the ends of the next batches look at all state that expires in event time and reports it.

        Each looks at some of it, until `is_looking` says that all was looked at.
        """

    @property
    def is_looking(self) -> bool:
        """Whether something is left that `look_everywhere` asked to look at."""
        return False

    @abstractmethod
    def keys(self, state_name: str, namespace: Namespace = VOID, limit: int | None = None) -> list[KeyToken]:
        """Tokens of the keys that hold a value in that state (by TTL visibility), fixed at the call.

        With a `limit`, any that many of them, without looking at all the others.
        """

    @abstractmethod
    def namespaces(self, state_name: str, token: KeyToken) -> list[Namespace]:
        """Namespaces in which `token` holds a value of that state."""

    @abstractmethod
    def num_entries(self, state_name: str | None = None) -> int:
        """Physical entries, expired ones included: one per key (value-like, list), one per map entry."""

    def registered(self) -> Sequence[StateDescriptor]:
        """The states that have a handle, for displays."""
        return ()

    def known_entries(self, state_name: str) -> int | None:
        """What `num_entries` says, if it is known without counting; displays ask again and again."""
        return None

    def native_metrics(self) -> dict[str, int]:
        """Figures of the store behind it that somebody asked for; none by default."""
        return {}

    @abstractmethod
    def erase(self, token: KeyToken) -> dict[str, int]:
        """Forget a key in every state and namespace, restored states that nobody registered included.

        Between two batches only. Files of the backend's own, which later cuts may show, are rid of it, too.

        Returns:
            State -> rows (one per value or list, one per map entry) of the states that held any.
        """

    @abstractmethod
    def query(
        self, state_name: str, token: KeyToken, namespace: Namespace = VOID, *, accumulator: bool = False
    ) -> tuple[bool, Any]:
        """Read for an outside client without changing anything: `(found, value)`.

        List state gives a list, map state a dict, reducing/aggregating/folding state what `get()` gives;
        with `accumulator`, aggregating state gives its accumulator, which has the descriptor's type.
        """

    @abstractmethod
    def cut(self, *, incremental: Increment | None = None) -> KeyedCut:
        """The synchronous part of a snapshot: freeze the content as it is now, at little cost.

        `incremental` asks for native files where the backend has them; without it, or them, canonical tables.
        """

    @abstractmethod
    def restore_table(self, meta: StateMeta, batches: Iterable[pa.RecordBatch]) -> None:
        """Take over canonical rows of one state (only rows of this subtask's key groups are passed).

        Called before any `state()`; may be called several times for one state (rescaling).
        """

    @abstractmethod
    def restored_states(self) -> list[StateMeta]:
        """States that came by restore, registered since or not."""

    @abstractmethod
    def restore_native(
        self, kind: str, files: dict[str, Path], extra: bytes, metas: Sequence[StateMeta]
    ) -> None:
        """Take over one native snapshot made by the same kind of backend (file name -> local copy).

        May be called for several old subtasks; rows outside this subtask's key groups are dropped.

        Raises:
            RestoreError: Another kind of backend made it; no restart cures that.
        """

    @abstractmethod
    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The checkpoint is durable; incremental bases may move on."""

    @abstractmethod
    def close(self) -> None:
        """Release memory, files and locks. Idempotent."""

    def key_of(self, token: KeyToken) -> Any:
        """The user's key behind a token."""
        to_key = self.parameters.tokens.to_key
        return token if to_key is None else to_key(token)

    def iterate_tokens(self, state_names: Iterable[str]) -> Iterator[KeyToken]:
        """Every token that holds a value in any of the states, each once."""
        seen: set[KeyToken] = set()
        for name in state_names:
            for token in self.keys(name):
                if token not in seen:
                    seen.add(token)
                    yield token
