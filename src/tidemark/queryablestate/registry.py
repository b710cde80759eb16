"""What a slot publishes, and how it is read between two chunks of records.

Everything here runs inside `QueryableHost.ask`: nobody changes state meanwhile, and what is looked up is
serialised before the next record is processed. Reading never changes state or its time-to-live.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tidemark.queryablestate.codec import StateCodec
from tidemark.queryablestate.protocol import Entry, Published, Signature
from tidemark.state.backend import KeyedStateBackend, KeyToken
from tidemark.state.descriptors import StateDescriptor, StateKind
from tidemark.state.key_groups import assign_to_key_group
from tidemark.state.key_tokens import KeyTokens
from tidemark.state.serializers.base import TypeSerializer
from tidemark.state.serializers.compatibility import dump_serializer_snapshot

__all__ = ["PublishedState", "QueryableHost", "StateRegistry"]

Registration = tuple[StateDescriptor, KeyedStateBackend, str]


class QueryableHost(Protocol):
    """A slot as queries see it."""

    @property
    def queryable(self) -> Mapping[str, Registration]:
        """Queryable name -> descriptor, backend that keeps the state, uid of the operator."""

    def ask(self, question: Callable[[], Any], /) -> Any:
        """Run `question` between two chunks of records and return its result; from any thread.

        What the question raises is raised here, to the one who asked, and nowhere else.
        """


class PublishedState:
    """One queryable state of one slot."""

    __slots__ = ("_accumulator", "_backend", "_codec", "_key_tokens", "_state_name", "_uid", "signature")

    def __init__(self, registration: Registration, codec: StateCodec, signature: Signature) -> None:
        """Prepare for reading; `codec` and its `signature` belong to the registered descriptor."""
        descriptor, self._backend, self._uid = registration
        self._state_name = descriptor.name
        self._accumulator = descriptor.kind is StateKind.AGGREGATING
        self._codec = codec
        self._key_tokens = KeyTokens(codec.key)
        self.signature = signature

    def look_up(self, keys: Sequence[bytes]) -> list[Entry | None]:
        """The entry of each key, None for a key without a value.

        Raises:
            SerializationError: Key bytes that no key has.
        """
        from_bytes = self._key_tokens.from_bytes
        return [self._entry(key if from_bytes is None else from_bytes(key)) for key in keys]

    def keys(self, limit: int) -> list[bytes]:
        """Key bytes of at most `limit` keys that hold a value."""
        return self._key_tokens.all_bytes(self._backend.keys(self._state_name, limit=limit))

    def all_keys(self) -> list[KeyToken]:
        """Tokens of all keys that hold a value."""
        return self._backend.keys(self._state_name)

    def bytes_in(self, tokens: list[KeyToken], groups: tuple[int, int]) -> list[bytes]:
        """Key bytes of those in a range of key groups. Reads no state, so it may run beside the job."""
        max_parallelism = self._backend.parameters.max_parallelism
        return [
            key
            for key in self._key_tokens.all_bytes(tokens)
            if groups[0] <= assign_to_key_group(key, max_parallelism) <= groups[1]
        ]

    def describe(self, name: str) -> Published:
        """What clients and the proxy need to know about it."""
        first, last = self._backend.parameters.key_groups
        codec = self._codec
        return Published(
            name,
            self._uid,
            self.signature,
            self._backend.parameters.max_parallelism,
            first,
            last,
            (_stored(codec.key), _stored(codec.value), _stored(codec.map_key)),
        )

    def _entry(self, key_token: KeyToken) -> Entry | None:
        found, content = self._backend.query(self._state_name, key_token, accumulator=self._accumulator)
        return self._codec.encode(content) if found else None


class StateRegistry:
    """The queryable states of a host by name, as they are at the moment."""

    def __init__(self, host: QueryableHost) -> None:
        """Look at `host`, which may deploy other attempts over time."""
        self._host = host
        # Codecs only: holding on to a backend would keep the state of a dead attempt in memory.
        self._codecs: dict[str, tuple[StateDescriptor, StateCodec, Signature]] = {}

    def find(self, name: str) -> PublishedState | None:
        """The state published as `name`, or None."""
        registration = self._host.queryable.get(name)
        if registration is None:
            return None
        descriptor, backend, _uid = registration
        known = self._codecs.get(name)
        if known is None or known[0] is not descriptor:
            codec = StateCodec.of(descriptor, backend.parameters.key_serializer)
            known = self._codecs[name] = (descriptor, codec, codec.signature())
        return PublishedState(registration, known[1], known[2])

    def published(self) -> list[Published]:
        """All of them, described."""
        found = [(name, self.find(name)) for name in sorted(self._host.queryable)]
        return [state.describe(name) for name, state in found if state is not None]


def _stored(serializer: TypeSerializer[Any] | None) -> bytes:
    if serializer is None:
        return b""
    try:
        return dump_serializer_snapshot(serializer)
    except ValueError:
        # A class that only exists inside a function cannot be described to others, only be read with it.
        return b""
