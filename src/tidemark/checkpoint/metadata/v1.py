"""Version 1 of the `_metadata` file.

Layout: `magic "TDMK":4 | version:u16be | length:u64be | xxh3_128 of payload:16 | payload`; the payload is
MessagePack of the model in `model.py`, maps keyed by field name, so that a later release may add fields
with defaults. The header is common to all versions; see `registry.py`.
"""

from __future__ import annotations

import msgspec

from tidemark.checkpoint.metadata.model import CheckpointMetadata

__all__ = ["VERSION", "decode_payload", "encode_payload"]

VERSION = 1

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(CheckpointMetadata)


def encode_payload(metadata: CheckpointMetadata) -> bytes:
    """Encode the model as MessagePack."""
    return _encoder.encode(metadata)


def decode_payload(payload: bytes) -> CheckpointMetadata:
    """Decode the model.

    Raises:
        ValueError: The payload is no MessagePack of this model.
    """
    try:
        return _decoder.decode(payload)
    except (msgspec.MsgspecError, RecursionError) as exc:
        raise ValueError(str(exc)) from exc
