"""How payloads and errors become bytes. A codec belongs to a protocol; what pickles is for the job's own slots only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from tidemark import errors
from tidemark.errors import FailureReason, TidemarkError

__all__ = ["MSGPACK", "Codec", "describe_error", "restore_error"]


@dataclass(frozen=True, slots=True)
class Codec:
    """The body of a message, by the kind of message."""

    encode: Callable[[Any], Any]
    """Payload, result or event -> anything with the buffer protocol."""
    decode: Callable[[bytearray], Any]
    encode_error: Callable[[BaseException], bytes]
    decode_error: Callable[[bytearray], BaseException]
    """What the one who asked is to raise."""


def describe_error(error: BaseException) -> dict[str, Any]:
    """An error as plain data, for an answer."""
    ours = error if isinstance(error, TidemarkError) else TidemarkError(f"{type(error).__name__}: {error}")
    facts = {k: v for k, v in ours.facts().items() if isinstance(v, (str, int, float, list, tuple))}
    return {"type": type(ours).__name__, "message": str(ours), "facts": facts}


def restore_error(description: dict[str, Any]) -> TidemarkError:
    """The error behind `describe_error`; a class that is not ours becomes a plain `TidemarkError`."""
    found = getattr(errors, str(description.get("type")), None)
    known = isinstance(found, type) and issubclass(found, TidemarkError)
    error = cast("type[TidemarkError]", found if known else TidemarkError)(str(description.get("message")))
    facts = description.get("facts") or {}
    for name, value in facts.items():
        if name in error.__dict__:
            setattr(error, name, FailureReason(value) if name == "reason" else value)
    return error


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode

MSGPACK = Codec(
    _encode, _decode, lambda error: _encode(describe_error(error)), lambda body: restore_error(_decode(body))
)
"""Plain data in both directions: neither side unpickles what the other sent."""
