"""Row keys: how an address (key, namespace, map key) becomes bytes that RocksDB keeps in a useful order.

::

    key_group:u16be | state:u16be | [key_len:varint] | key | namespace | tail

    namespace   nothing, one or two integers, each u64be of (n + 2**63), so byte order is numeric order
    tail        value-like: nothing     list: segment number u64be     map: bytes of the map key

The key group comes first, so that rescaling moves contiguous ranges; then the state, so that a snapshot
reads one state of one key group in one sweep. The length stands in front of the key unless all keys have
the same width, so that the rows of one key are exactly those with its prefix.

Values carry the stamp of time-to-live in front: `[last_access:i64be] | bytes`. A list segment is a sequence
of units `len:u32be | [last_access:i64be] | bytes`, `len` counting everything behind it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tidemark.errors import StateError
from tidemark.state.key_groups import key_groups_of, stable_hash, stable_hash_array, stable_hash_words
from tidemark.state.key_tokens import KeyTokens
from tidemark.state.namespace import Namespace, NamespaceKind
from tidemark.state.serializers.base import length_prefix, read_length

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tidemark.state.backend import KeyToken
    from tidemark.state.serializers.base import TypeSerializer

__all__ = [
    "STAMP_WIDTH",
    "KeyCodec",
    "Place",
    "decode_namespace",
    "decode_segment",
    "encode_namespace",
    "encode_segment",
    "encode_stamp",
    "key_group_prefix",
    "state_prefix",
    "too_large_list",
    "unit_codec",
]

Place = tuple[bytes, bytes]
"""Key group (two bytes) and key part of a row key; the state stands between them."""

STAMP_WIDTH = 8

_BIAS = 1 << 63
_HEAD = 4
_KNOWN_PLACES = 50_000
_ONE = struct.Struct(">Q")
_TWO = struct.Struct(">QQ")
_STAMP = struct.Struct(">q")
_LENGTH = struct.Struct(">I")


def key_group_prefix(key_group: int) -> bytes:
    """What the rows of a key group start with."""
    return key_group.to_bytes(2, "big")


def state_prefix(key_group: int, state: int) -> bytes:
    """What the rows of a state in a key group start with."""
    return key_group.to_bytes(2, "big") + state.to_bytes(2, "big")


def encode_namespace(namespace: Namespace) -> bytes:
    """Bytes of a namespace, in numeric order."""
    if not namespace:
        return b""
    if len(namespace) == 1:
        return _ONE.pack(namespace[0] + _BIAS)
    return _TWO.pack(namespace[0] + _BIAS, namespace[1] + _BIAS)


def decode_namespace(kind: NamespaceKind, row: bytes, at: int) -> Namespace:
    """The namespace that starts at position `at` of a row key."""
    if kind is NamespaceKind.VOID:
        return ()
    if kind is NamespaceKind.SINGLE:
        return (_ONE.unpack_from(row, at)[0] - _BIAS,)
    start, end = _TWO.unpack_from(row, at)
    return (start - _BIAS, end - _BIAS)


class KeyCodec:
    """Translates between key tokens and the parts of row keys they determine."""

    def __init__(self, serializer: TypeSerializer[Any], max_parallelism: int) -> None:
        self._tokens = KeyTokens(serializer)
        self._max_parallelism = max_parallelism
        self._width = serializer.fixed_width
        self._plain_long = self._tokens.are_keys and getattr(serializer, "struct_code", None) == "q"
        self._places: dict[KeyToken, Place] = {}

    def place(self, token: KeyToken) -> Place:
        """Key group and key part of a token."""
        found = self._places.get(token)
        return found if found is not None else self._find(token)

    def _find(self, token: KeyToken) -> Place:
        key = self.key_bytes(token)
        group = stable_hash(key) % self._max_parallelism
        place = (group.to_bytes(2, "big"), self.key_part(key))
        if len(self._places) >= _KNOWN_PLACES:
            self._places.clear()
        self._places[token] = place
        return place

    def rows(self, tokens: Sequence[KeyToken], state: bytes) -> list[bytes]:
        """Row keys of many tokens in a state without namespace, made together."""
        if self._width is None:
            keys = self._tokens.all_bytes(list(tokens))
            groups = self._groups(stable_hash_array(pa.array(keys, pa.binary()))).tobytes()
            part = self.key_part
            return [groups[2 * at : 2 * at + 2] + state + part(key) for at, key in enumerate(keys)]
        data = self._fixed_width_keys(tokens)
        width = _HEAD + self._width
        rows = np.empty((len(tokens), width), np.uint8)
        rows[:, :2] = self._groups(self._hashes(data)).view(np.uint8).reshape(-1, 2)
        rows[:, 2:_HEAD] = np.frombuffer(state, np.uint8)
        rows[:, _HEAD:] = data
        joined = rows.tobytes()
        return [joined[at : at + width] for at in range(0, len(joined), width)]

    def row_keys(self, tokens: NDArray[Any], state: bytes) -> tuple[list[bytes], NDArray[Any]]:
        """Row keys of many tokens in a state, sorted, and where each came from.

        Args:
            tokens: 64-bit integers, or objects, or these with the `start` and `end` of a window each.
            state: Of which state.
        """
        spaces: NDArray[Any] = np.empty((len(tokens), 0), np.uint8)
        if tokens.dtype.names is not None:
            bounds = np.stack([tokens["start"], tokens["end"]], axis=1)
            # With the sign bit turned over, so that the order of the bytes is that of the numbers.
            spaces = (bounds ^ np.int64(-(1 << 63))).astype(">i8").view(np.uint8).reshape(-1, 16)
            tokens = np.ascontiguousarray(tokens["token"])
        if tokens.dtype.kind == "O" or not self._plain_long:
            rows = self.rows(tokens.tolist(), state)
            if spaces.shape[1]:
                rows = [row + space.tobytes() for row, space in zip(rows, spaces, strict=True)]
            places = sorted(range(len(rows)), key=rows.__getitem__)
            return [rows[at] for at in places], np.array(places, np.int64)
        # Sorted as numbers: group, then key as an unsigned one, which is the order of the bytes.
        keys = tokens.astype(">i8")
        groups = key_groups_of(stable_hash_words(keys.view("<u8"), 8), self._max_parallelism)
        order = np.argsort(tokens.view(np.uint64))
        if spaces.shape[1]:
            order = np.lexsort((bounds[:, 1], bounds[:, 0], tokens.view(np.uint64)))
        order = order[np.argsort(groups[order], kind="stable")]
        width = _HEAD + 8 + spaces.shape[1]
        joined = np.empty((len(keys), width), np.uint8)
        joined[:, :2] = groups[order].astype(">u2").view(np.uint8).reshape(-1, 2)
        joined[:, 2:_HEAD] = np.frombuffer(state, np.uint8)
        joined[:, _HEAD : _HEAD + 8] = keys[order].view(np.uint8).reshape(-1, 8)
        joined[:, _HEAD + 8 :] = spaces[order]
        data = joined.tobytes()
        return [data[at : at + width] for at in range(0, len(data), width)], order

    def _fixed_width_keys(self, tokens: Sequence[KeyToken]) -> NDArray[Any]:
        """Key bytes, one row per token."""
        if self._plain_long:
            return np.fromiter(tokens, np.int64, len(tokens)).astype(">i8").view(np.uint8).reshape(-1, 8)
        joined = b"".join(self._tokens.all_bytes(list(tokens)))
        return np.frombuffer(joined, np.uint8).reshape(len(tokens), -1)

    def _hashes(self, keys: NDArray[Any]) -> NDArray[Any]:
        if self._width == 8:
            return stable_hash_words(keys.view("<u8").ravel(), 8)
        flat = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(keys.shape[1]), len(keys), [None, pa.py_buffer(np.ascontiguousarray(keys))]
        )
        return stable_hash_array(flat.cast(pa.binary()))

    def _groups(self, hashes: NDArray[Any]) -> NDArray[Any]:
        return key_groups_of(hashes, self._max_parallelism).astype(">u2")

    def key_bytes(self, token: KeyToken) -> bytes:
        """Serialised key behind a token."""
        to_bytes = self._tokens.to_bytes
        return token if to_bytes is None else to_bytes(token)

    def key_part(self, key: bytes) -> bytes:
        """The key as it stands in row keys."""
        return key if self._width is not None else length_prefix(len(key)) + key

    def split(self, row: bytes) -> tuple[bytes, int]:
        """Key bytes of a row key, and the position behind them."""
        if self._width is not None:
            end = _HEAD + self._width
            return row[_HEAD:end], end
        length, start = read_length(row, _HEAD)
        return row[start : start + length], start + length

    def split_all(self, rows: list[bytes]) -> tuple[list[bytes], list[int]]:
        """`split` of many rows: the keys, and where each ends."""
        if self._width is not None:
            end = _HEAD + self._width
            return [row[_HEAD:end] for row in rows], [end] * len(rows)
        split = [self.split(row) for row in rows]
        return [key for key, _ in split], [end for _, end in split]

    def token(self, key: bytes) -> KeyToken:
        """Token of serialised key bytes."""
        from_bytes = self._tokens.from_bytes
        return key if from_bytes is None else from_bytes(key)


def encode_stamp(stamp: int) -> bytes:
    """How a unit with time-to-live begins."""
    return _STAMP.pack(stamp)


def unit_codec(
    serializer: TypeSerializer[Any], ttl: bool
) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    """Functions from a unit to its bytes and back; with time-to-live a unit is `(value, stamp)`."""
    to_bytes, from_bytes = serializer.to_bytes, serializer.from_bytes
    if not ttl:
        return to_bytes, from_bytes
    code = getattr(serializer, "struct_code", None)
    if code is not None:
        return _stamped_number(struct.Struct(f">q{code}"), to_bytes)
    pack, unpack_from = _STAMP.pack, _STAMP.unpack_from

    def encode(unit: tuple[Any, int]) -> bytes:
        return pack(unit[1]) + to_bytes(unit[0])

    def decode(raw: bytes) -> tuple[Any, int]:
        return from_bytes(raw[STAMP_WIDTH:]), unpack_from(raw)[0]

    return encode, decode


def _stamped_number(
    codec: struct.Struct, to_bytes: Callable[[Any], bytes]
) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    """The codec of a number with its stamp in one go; `to_bytes` deals with what does not fit at once."""
    pack, unpack = codec.pack, codec.unpack

    def encode(unit: tuple[Any, int]) -> bytes:
        value, stamp = unit
        try:
            return pack(stamp, value)
        except struct.error:
            return _STAMP.pack(stamp) + to_bytes(value)

    def decode(raw: bytes) -> tuple[Any, int]:
        stamp, value = unpack(raw)
        return value, stamp

    return encode, decode


def encode_segment(encoded: Iterable[bytes]) -> bytes:
    """One list segment of encoded units."""
    pack = _LENGTH.pack
    return b"".join([part for unit in encoded for part in (pack(len(unit)), unit)])


def decode_segment(segment: bytes) -> list[bytes]:
    """The encoded units of a list segment."""
    units = []
    at, end = 0, len(segment)
    while at < end:
        start = at + 4
        at = start + _LENGTH.unpack_from(segment, at)[0]
        units.append(segment[start:at])
    return units


def too_large_list(name: str, size: int, most: int) -> StateError:
    """The error for a list that no snapshot and no reader can hold as one value."""
    return StateError(
        f"A list of state '{name}' has {size} bytes, but a value of the RocksDB backend may have {most}. Use a "
        "MapState with an entry per element, or drop elements in time.",
        state_name=name,
    )
