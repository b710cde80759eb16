from __future__ import annotations

import struct

import pytest

from tidemark.checkpoint.metadata import (
    CheckpointMetadata,
    FileHandle,
    NativeHandle,
    OperatorState,
    RowGroup,
    SubtaskState,
    TableHandle,
    decode,
    encode,
    read_metadata,
    write_metadata,
)
from tidemark.checkpoint.storage import MemoryStorage
from tidemark.errors import MetadataError, SavepointNotFoundError
from tidemark.state.descriptors import StateKind
from tidemark.state.namespace import NamespaceKind
from tidemark.state.snapshot import OperatorStatePart, Redistribution, StateMeta

META = StateMeta("cart", StateKind.MAP, b"k", b"v", b"mk", NamespaceKind.WINDOW, True)
METADATA = CheckpointMetadata(
    checkpoint_id=7,
    timestamp=1000,
    job_id="ab" * 16,
    job_name="shop",
    is_savepoint=True,
    source_positions={"source": b"\x00\x01"},
    sink_commits={"sink": b"staged"},
    operators=(
        OperatorState(
            "counter",
            "Counter",
            1,
            128,
            (
                SubtaskState(
                    0,
                    (0, 127),
                    (
                        TableHandle(
                            META, 3, 48, 900, "a/b.parquet", None, (RowGroup(0, 5, 3, 700, b"c" * 16),), b"f"
                        ),
                    ),
                    NativeHandle(
                        "rocksdb", (FileHandle("1.sst", 5, b"x", "u-1.sst", True),), (META,), b"extra"
                    ),
                    (OperatorStatePart("offsets", Redistribution.UNION, (b"1", b"2"), b"ser"),),
                    100,
                    60,
                    1,
                    2,
                ),
            ),
        ),
    ),
    properties={"release": "0.1"},
)

# Written by format version 1. If this fails, old checkpoints cannot be read any more: add a version instead.
GOLDEN = bytes.fromhex(
    "54444d4b000100000000000003140a7a75f5e788d7f8b40e93de69c9112d8aad636865636b706f696e745f696407a974"
    "696d657374616d70cd03e8a66a6f625f6964d92061626162616261626162616261626162616261626162616261626162"
    "61626162a86a6f625f6e616d65a473686f70ac69735f73617665706f696e74c3b0736f757263655f706f736974696f6e"
    "7381a6736f75726365c4020001ac73696e6b5f636f6d6d69747381a473696e6bc406737461676564a96f70657261746f"
    "72739185a3756964a7636f756e746572a46e616d65a7436f756e746572ab706172616c6c656c69736d01af6d61785f70"
    "6172616c6c656c69736dcc80a87375627461736b739189a5696e64657800aa6b65795f67726f75707392007fa6746162"
    "6c65739188a46d65746187a46e616d65a463617274a46b696e64a36d6170a36b6579c4016ba576616c7565c40176a76d"
    "61705f6b6579c4026d6ba96e616d65737061636502a374746cc3a4726f777303aa73746174655f73697a6530a966696c"
    "655f73697a65cd0384a470617468ab612f622e70617271756574a6696e6c696e65c0aa726f775f67726f757073919500"
    "0503cd02bcc41063636363636363636363636363636363af666f6f7465725f636865636b73756dc40166a66e61746976"
    "6584a46b696e64a7726f636b736462a566696c65739186a46e616d65a5312e737374a473697a6505a8636865636b7375"
    "6dc40178a470617468a7752d312e737374a6736861726564c3a6696e6c696e65c0a56d657461739187a46e616d65a463"
    "617274a46b696e64a36d6170a36b6579c4016ba576616c7565c40176a76d61705f6b6579c4026d6ba96e616d65737061"
    "636502a374746cc3a56578747261c4056578747261a86f70657261746f729185a46e616d65a76f666673657473a46d6f"
    "6465a5756e696f6ea8656c656d656e747392c40131c40132aa73657269616c697a6572c403736572b26d61705f6b6579"
    "5f73657269616c697a6572c400aa73746174655f73697a6564ac7772697474656e5f73697a653ca773796e635f6d7301"
    "a86173796e635f6d7302aa70726f7065727469657381a772656c65617365a3302e31ae666f726d61745f76657273696f"
    "6e01"
)


def test_metadata_survives_encoding() -> None:
    assert decode(encode(METADATA)) == METADATA


def test_version_1_is_still_read() -> None:
    assert decode(GOLDEN) == METADATA


def test_metadata_is_written_and_read_in_one_file() -> None:
    storage = MemoryStorage()

    path = write_metadata(storage, "job/chk-7", METADATA)

    assert path == "job/chk-7/_metadata"
    assert storage.list("job/chk-7") == ["_metadata"]
    assert read_metadata(storage, "job/chk-7") == METADATA


def test_no_metadata_is_no_snapshot() -> None:
    with pytest.raises(SavepointNotFoundError, match="chk-9"):
        read_metadata(MemoryStorage(), "job/chk-9")


@pytest.mark.parametrize("data", [b"", b"PAR1", b"\x80\x04pickle of something, long enough for a header"])
def test_a_foreign_file_is_refused(data: bytes) -> None:
    with pytest.raises(MetadataError, match="x/_metadata is not the metadata of a tidemark"):
        decode(data, "x/_metadata")


def test_a_truncated_file_is_refused() -> None:
    with pytest.raises(MetadataError, match="instead of"):
        decode(encode(METADATA)[:-1], "x/_metadata")


def test_a_file_with_bytes_behind_the_end_is_refused() -> None:
    with pytest.raises(MetadataError, match="instead of"):
        decode(encode(METADATA) + b"!", "x/_metadata")


def test_every_flipped_bit_is_found() -> None:
    good = encode(METADATA)
    for at in range(len(good)):
        bad = bytearray(good)
        bad[at] ^= 1
        with pytest.raises(MetadataError):
            decode(bytes(bad))


def test_a_newer_version_is_named() -> None:
    data = bytearray(encode(METADATA))
    struct.pack_into(">H", data, 4, 99)

    with pytest.raises(MetadataError, match="format version 99"):
        decode(bytes(data))


def test_facts_are_found_in_the_model() -> None:
    assert METADATA.operator("counter") is METADATA.operators[0]
    assert METADATA.operator("nobody") is None
    assert METADATA.shared_files() == {"u-1.sst"}
    assert METADATA.state_size == 100
    assert METADATA.written_size == 60
    assert METADATA.operators[0].has_state
    assert METADATA.operators[0].is_keyed


def test_empty_state_is_no_state() -> None:
    empty = SubtaskState(
        0, (0, 1), (TableHandle(META),), None, (OperatorStatePart("l", Redistribution.SPLIT, ()),)
    )

    assert not empty.has_state
