"""The messages between client, proxy and slots.

Each is one frame of `tidemark.wire`: a header (one of the structs below, as a MessagePack array) and a body
in MessagePack::

    LOOKUP   body: [key, ...]                answer: [entry | nil, ...]   in the order of the keys
    SCAN     body: empty                     answer: [[key, entry], ...]
    LIST     body: empty                     answer: [Published, ...]

Keys are key bytes of the job's key serializer. `nil` stands for a key without a value. An entry is an array
whose elements are bytes of the state's serializers, or nil where None is stored:

    value, reducing, folding: [value]        aggregating: [accumulator]
    list: [element, ...]                     map: [key, value, key, value, ...]

Nothing here is pickled by us. Values of a state without a declared type are pickles made by its
serializer; neither slot nor proxy loads them, only the client, who has proved to know the job's token and
to whom the job has proved the same.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, TypeAlias

import msgspec

__all__ = [
    "Entry",
    "Operation",
    "Published",
    "Request",
    "Response",
    "Signature",
    "Status",
    "decode_entries",
    "decode_keys",
    "decode_parts",
    "decode_published",
    "decode_request",
    "decode_response",
    "decode_scan",
    "encode",
]

Entry: TypeAlias = list[bytes | None]
"""The encoded content of one state for one key."""


class Operation(IntEnum):
    """What is asked for."""

    LOOKUP = 1
    SCAN = 2
    LIST = 3


class Status(IntEnum):
    """How a request ended."""

    OK = 0
    RETRY = 1
    """Not now: the job is restarting, a slot is gone or already serves another attempt."""
    NOT_SERVED = 2
    """Unknown job or name, the job has ended, or queries are off."""
    MISMATCH = 3
    """Kind or types differ; `Response.signature` holds the job's."""
    FAILED = 4
    """The request was not understood, or reading failed."""


class Signature(msgspec.Struct, frozen=True, array_like=True):
    """Kind and types of a state as text; equal on both sides or the bytes would be misread."""

    kind: str
    key: str
    value: str
    map_key: str | None = None


class Request(msgspec.Struct, frozen=True, array_like=True):
    """Header of a request."""

    operation: Operation
    job_id: str
    name: str = ""
    attempt: int = -1
    """Attempt the sender takes for the running one; filled in by the proxy."""
    signature: Signature | None = None
    limit: int = 0
    timeout_ms: int = 10_000
    """How long the sender waits for the answer."""


class Response(msgspec.Struct, frozen=True, array_like=True):
    """Header of an answer."""

    status: Status
    attempt: int = -1
    """Attempt that was read."""
    message: str = ""
    signature: Signature | None = None


class Published(msgspec.Struct, frozen=True, array_like=True):
    """One queryable state as a slot describes it; from a proxy, the slot's key groups are meaningless."""

    name: str
    uid: str
    signature: Signature
    max_parallelism: int
    first_group: int
    last_group: int
    snapshots: tuple[bytes, bytes, bytes]
    """Stored forms of the serializer snapshots of key, value and map key; empty if there is none."""


encode = msgspec.msgpack.Encoder().encode
decode_keys = msgspec.msgpack.Decoder(list[bytes]).decode
decode_entries = msgspec.msgpack.Decoder(list[Entry | None]).decode
decode_scan = msgspec.msgpack.Decoder(list[tuple[bytes, Entry]]).decode
decode_published = msgspec.msgpack.Decoder(list[Published]).decode
decode_parts = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
"""The elements of any array, undecoded, for passing on."""


def decode_request(header: Any) -> Request:
    """The request in a received header.

    Raises:
        msgspec.ValidationError: It is none.
    """
    return msgspec.convert(header, Request)


def decode_response(header: Any) -> Response:
    """The response in a received header.

    Raises:
        msgspec.ValidationError: It is none.
    """
    return msgspec.convert(header, Response)
