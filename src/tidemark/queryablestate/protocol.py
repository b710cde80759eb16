"""The messages between client, proxy and slots.

The requests of `tidemark.rpc` with a `Request` as payload; everything is MessagePack::

    lookup   answer: [entry | nil, ...]   in the order of `Request.keys`
    scan     answer: [[key, entry], ...]
    keys     answer: [key, ...]           of the key groups in `Request.groups`
    list     answer: [Published, ...]

What cannot be answered is an error, a `Refused`.

Keys are key bytes of the job's key serializer. `nil` stands for a key without a value. An entry is an array
whose elements are bytes of the state's serializers, or nil where None is stored:

    value, reducing, folding: [value]        aggregating: [accumulator]
    list: [element, ...]                     map: [key, value, key, value, ...]

Nothing here is pickled by us. Values of a state without a declared type are pickles made by its
serializer; neither slot nor proxy loads them, only the client, who has proved to know the job's token and
to whom the job has proved the same.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import TypeAlias

import msgspec

from tidemark.rpc import Codec

__all__ = [
    "MAX_QUERY",
    "QUERIES",
    "Entry",
    "Operation",
    "Published",
    "Refused",
    "Request",
    "Signature",
    "Status",
    "decode_entries",
    "decode_keys",
    "decode_parts",
    "decode_published",
    "decode_request",
    "decode_scan",
    "encode",
]

MAX_QUERY = 1 << 26
"""Bytes of the largest request and of the largest answer; millions of keys, or values of that size together."""

Entry: TypeAlias = list[bytes | None]
"""The encoded content of one state for one key."""


class Operation(StrEnum):
    """What is asked for: the name of the request."""

    LOOKUP = "lookup"
    SCAN = "scan"
    KEYS = "keys"
    LIST = "list"


class Status(IntEnum):
    """Why there is no answer."""

    RETRY = 1
    """Not now: the job is restarting, a slot is gone or already serves another attempt."""
    NOT_SERVED = 2
    """Unknown job or name, the job has ended, or queries are off."""
    MISMATCH = 3
    """Kind or types differ; `Refused.signature` holds the job's."""
    FAILED = 4
    """The request was not understood, or reading failed."""


class Signature(msgspec.Struct, frozen=True, array_like=True):
    """Kind and types of a state as text; equal on both sides or the bytes would be misread."""

    kind: str
    key: str
    value: str
    map_key: str | None = None


class Request(msgspec.Struct, frozen=True, array_like=True):
    """What is read, of which job."""

    job_id: str
    name: str = ""
    attempt: int = -1
    """Attempt the sender takes for the running one; filled in by the proxy."""
    signature: Signature | None = None
    limit: int = 0
    timeout_ms: int = 10_000
    """How long the sender waits for the answer."""
    keys: list[bytes] = []
    """Of a lookup."""
    groups: tuple[int, int] = (0, -1)
    """First and last key group whose keys are asked for."""


class Refused(Exception):
    """Ends a request without an answer, on whichever side; travels as `[status, message, signature | nil]`."""

    def __init__(self, status: Status, message: str = "", signature: Signature | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.signature = signature


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
decode_request = msgspec.msgpack.Decoder(Request).decode
_decode_refusal = msgspec.msgpack.Decoder(tuple[Status, str, Signature | None]).decode
decode_entries = msgspec.msgpack.Decoder(list[Entry | None]).decode
decode_scan = msgspec.msgpack.Decoder(list[tuple[bytes, Entry]]).decode
decode_keys = msgspec.msgpack.Decoder(list[bytes]).decode
decode_published = msgspec.msgpack.Decoder(list[Published]).decode
decode_parts = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
"""The elements of any array, undecoded, for passing on."""


def _encode_refusal(error: BaseException) -> bytes:
    if isinstance(error, Refused):
        return encode((error.status, str(error), error.signature))
    return encode((Status.FAILED, f"{type(error).__name__}: {error}", None))


QUERIES = Codec(encode, lambda body: body, _encode_refusal, lambda body: Refused(*_decode_refusal(body)))
"""Payloads stay bytes until somebody who knows their type decodes them."""
