from __future__ import annotations

import random
from typing import Any

import pytest

from tidemark.backends.rocksdb.keys import (
    KeyCodec,
    decode_namespace,
    decode_segment,
    encode_namespace,
    encode_segment,
    state_prefix,
    unit_codec,
)
from tidemark.backends.rocksdb.store import after
from tidemark.state.key_groups import assign_to_key_group
from tidemark.state.key_tokens import KeyTokens
from tidemark.state.namespace import Namespace, NamespaceKind
from tidemark.state.serializers import serializer_for
from tidemark.types.typeinfo import Types

KEYS = [
    (Types.LONG(), [0, -1, 2**63 - 1, -(2**63), 7]),
    (Types.INT(), [0, -1, 2**31 - 1, 12]),
    (Types.STRING(), ["", "a", "ab", "é" * 200, None]),
    (Types.DOUBLE(), [0.5, -1.0, 1e300]),
    (Types.PICKLED_BYTE_ARRAY(), [("a", 1), "x", 5]),
    (Types.TUPLE([Types.LONG(), Types.STRING()]), [(1, "a"), (2, "")]),
]


@pytest.mark.parametrize(("key_type", "keys"), KEYS)
def test_row_keys_made_together_equal_those_made_one_by_one(key_type: Any, keys: list[Any]) -> None:
    serializer = serializer_for(key_type)
    codec = KeyCodec(serializer, 128)
    tokens = KeyTokens(serializer).of_stored(list(keys))

    together = codec.rows(tokens, b"\x00\x05")

    for key, token, row in zip(keys, tokens, together, strict=True):
        group, part = codec.place(token)
        assert row == group + b"\x00\x05" + part
        assert row[:4] == state_prefix(assign_to_key_group(serializer.key_bytes(key), 128), 5)
        assert codec.split(row) == (serializer.key_bytes(key), len(row))
        assert codec.token(codec.split(row)[0]) == token
    assert codec.split_all(together) == (
        [serializer.key_bytes(key) for key in keys],
        [len(row) for row in together],
    )


def test_no_key_is_a_prefix_of_another() -> None:
    codec = KeyCodec(serializer_for(Types.STRING()), 1)

    rows = [
        group + part for group, part in map(codec.place, ["a", "ab", "abc", "b" * 127, "b" * 128, "b" * 129])
    ]

    assert not [(x, y) for x in rows for y in rows if x != y and y.startswith(x)]


def test_forgotten_places_are_found_again() -> None:
    codec = KeyCodec(serializer_for(Types.LONG()), 128)
    first = codec.place(1)

    for token in range(2, 50_003):
        codec.place(token)

    assert codec.place(1) == first


@pytest.mark.parametrize(
    ("kind", "spaces"),
    [
        (NamespaceKind.VOID, [()]),
        (NamespaceKind.SINGLE, [(-(2**63),), (-1,), (0,), (5,), (2**63 - 1,)]),
        (NamespaceKind.WINDOW, [(-10, 0), (0, 5), (0, 10), (5, 7)]),
    ],
)
def test_namespaces_keep_their_order_as_bytes(kind: NamespaceKind, spaces: list[Namespace]) -> None:
    encoded = [encode_namespace(space) for space in spaces]

    assert sorted(encoded) == encoded
    assert [decode_namespace(kind, b"head" + raw, 4) for raw in encoded] == spaces


@pytest.mark.parametrize(
    "type_info", [Types.LONG(), Types.STRING(), Types.PICKLED_BYTE_ARRAY(), Types.BOOLEAN()]
)
def test_stamped_units_round_trip(type_info: Any) -> None:
    value = {"LONG": -5, "STRING": "x", "BOOLEAN": True}.get(str(serializer_for(type_info)), ["any"])
    encode, decode = unit_codec(serializer_for(type_info), ttl=True)

    raw = encode((value, 1234))

    assert raw == (1234).to_bytes(8, "big") + serializer_for(type_info).to_bytes(value)
    assert decode(raw) == (value, 1234)


def test_a_stamped_number_that_needs_coercion_is_written_all_the_same() -> None:
    encode, decode = unit_codec(serializer_for(Types.LONG()), ttl=True)

    assert decode(encode((True, 1))) == (1, 1)


def test_segments_round_trip() -> None:
    units = [random.Random(n).randbytes(n * 97 % 300) for n in range(20)]

    assert decode_segment(encode_segment(units)) == units


def test_the_end_of_a_prefix_follows_all_its_keys() -> None:
    assert after(b"\x01\xff\xff") == b"\x02"
    assert after(b"\x01\x02") == b"\x01\x03"
    with pytest.raises(ValueError, match="below 0xff"):
        after(b"\xff")
