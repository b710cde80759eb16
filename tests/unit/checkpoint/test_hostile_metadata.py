"""Snapshots from a stranger: what they name is refused before anything is touched, and none of it is run."""

from __future__ import annotations

import random
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import xxhash
from click.testing import CliRunner

from tidemark.backends.rocksdb.cut import NativeExtra
from tidemark.checkpoint.format.native import NativeFiles, fetch_native
from tidemark.checkpoint.inspection import describe, verify
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
)
from tidemark.checkpoint.retention import dispose_savepoint
from tidemark.checkpoint.storage.filesystem import FileSystemStorage
from tidemark.cli.main import cli
from tidemark.errors import CheckpointError, MetadataError, RestoreError, TidemarkError
from tidemark.state.descriptors import StateKind
from tidemark.state.serializers import DataOutputView, dump_serializer_snapshot, serializer_for
from tidemark.state.serializers.naming import stored_serializer_name
from tidemark.state.snapshot import NativeCut, OperatorStatePart, Redistribution, StateMeta
from tidemark.state_processor.open_snapshot import OpenSnapshot
from tidemark.types.typeinfo import Types

EVIL = [
    "../escaped",
    "/tmp/escaped",
    "a/../../escaped",
    "..",
    "",
    "a\0b",
    "C:\\x",
    "file:///tmp/x",
    "a" * 5000,
]
LONG = dump_serializer_snapshot(serializer_for(Types.LONG()))
META = StateMeta("count", StateKind.VALUE, LONG, LONG)
GOLDEN = sorted((Path(__file__).parents[2] / "compat").glob("v*/*/**/_metadata"))


def snapshot(subtask: SubtaskState, **changes: Any) -> CheckpointMetadata:
    operator = OperatorState("count", "COUNT", 1, 128, (subtask,))
    return replace(CheckpointMetadata(3, 1000, "a" * 32, operators=(operator,)), **changes)


def subtasks(*states: SubtaskState) -> CheckpointMetadata:
    return snapshot(states[0], operators=(OperatorState("count", "COUNT", len(states), 128, states),))


def one_table(row_groups: tuple[RowGroup, ...]) -> tuple[TableHandle, ...]:
    return (TableHandle(META, 1, 8, 8, "count/part-0", None, row_groups),)


def table(**changes: Any) -> CheckpointMetadata:
    (handle,) = one_table((RowGroup(0, 1, 1, 4, b""),))
    return snapshot(SubtaskState(0, (0, 127), (replace(handle, **changes),)))


def native(**changes: Any) -> CheckpointMetadata:
    file = replace(FileHandle("1.sst", 3, b"", "x-1.sst", True), **changes)
    return snapshot(SubtaskState(0, (0, 127), native=NativeHandle("rocksdb", (file,), (META,))))


HOSTILE = [
    *(table(path=name) for name in EVIL),
    *(native(name=name) for name in EVIL),
    *(native(path=name) for name in EVIL),
    *(native(path=name, shared=False) for name in EVIL),
    table(path=None),
    native(path=None),
    table(file_size=-1),
    table(row_groups=(RowGroup(0, 1, 1, 9, b""),)),
    table(row_groups=(RowGroup(0, 1, 1, -4, b""),)),
    table(row_groups=(RowGroup(5, 1, 1, 1, b""),)),
    table(rows=1 << 62),
    table(rows=0),
    table(row_groups=()),
    table(row_groups=(RowGroup(0, 1, 0, 4, b""),), rows=0),
    table(row_groups=(RowGroup(0, 1, 1, 4, b""), RowGroup(0, 1, 1, 4, b"")), rows=2),
    table(row_groups=(RowGroup(100, 101, 1, 4, b""), RowGroup(3, 4, 1, 4, b"")), rows=2),
    table(row_groups=(RowGroup(0, 128, 1, 4, b""),)),
    table(path=None, inline=b"1234567"),
    table(path=None, inline=b"123456789"),
    native(path=None, shared=False, inline=b"12"),
    native(size=-1),
    subtasks(SubtaskState(0, (0, 64)), SubtaskState(1, (64, 127))),
    subtasks(SubtaskState(0, (0, 127)), SubtaskState(1, (3, 4))),
    subtasks(SubtaskState(0, (64, 127), one_table((RowGroup(0, 1, 1, 4, b""),)))),
    subtasks(SubtaskState(0, None, one_table((RowGroup(0, 1, 1, 4, b""),)))),
    snapshot(SubtaskState(-1)),
    snapshot(SubtaskState(0, (0, 128))),
    snapshot(SubtaskState(0), watermarks={"count": 1 << 63}),
    snapshot(SubtaskState(0), properties={"epoch": "1; rm -rf /"}),
    snapshot(SubtaskState(0), checkpoint_id=-1),
    snapshot(SubtaskState(0), operators=(OperatorState("a", "A", 1, 1 << 40),)),
    snapshot(SubtaskState(0), operators=(OperatorState("a", "A", 1, 1), OperatorState("a", "A", 1, 1))),
]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A snapshot's directory with something around it that must stay as it is."""
    directory = tmp_path / "outside" / "job" / "chk-3"
    directory.mkdir(parents=True)
    (tmp_path / "outside" / "precious").write_text("mine")
    return directory


def contents(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("metadata", HOSTILE, ids=range(len(HOSTILE)))
def test_nobody_reads_metadata_that_names_what_is_not_its_own(
    metadata: CheckpointMetadata, place: Path
) -> None:
    (place / "_metadata").write_bytes(encode(metadata))
    before = contents(place.parents[2])
    storage, path = FileSystemStorage(), str(place)

    for reader in (
        lambda: read_metadata(storage, path),
        lambda: describe(path),
        lambda: OpenSnapshot.open(path),
        lambda: dispose_savepoint(storage, path),
    ):
        with pytest.raises(MetadataError, match="is refused"):
            reader()
    assert any("is refused" in problem for problem in verify(path))
    assert contents(place.parents[2]) == before


def test_the_refusal_names_the_entry() -> None:
    with pytest.raises(MetadataError, match=r"operator 'count': subtask 0: native file '\.\./x'.*plain name"):
        decode(encode(native(name="../x")))


@pytest.mark.parametrize("command", [["inspect"], ["savepoint", "-d"], ["diff", "."]])
def test_commands_refuse_with_the_exit_code_of_their_family(command: list[str], place: Path) -> None:
    (place / "_metadata").write_bytes(encode(native(name="/etc/escaped")))

    arguments = [*(str(place) if part == "." else part for part in command), str(place)]
    result = CliRunner().invoke(cli, arguments)

    assert result.exit_code == 5
    assert "is refused" in result.output
    assert (place / "_metadata").exists()


def test_a_job_does_not_start_from_it(place: Path) -> None:
    from tidemark import Configuration, StreamExecutionEnvironment

    (place / "_metadata").write_bytes(encode(native(name="../../../escaped")))
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"execution.target": "local", "execution.savepoint.path": str(place)})
    )
    env.from_collection([1], Types.LONG()).print()

    with pytest.raises(TidemarkError, match="is refused"):
        env.execute()
    assert not (place.parents[1] / "escaped").exists()


@pytest.mark.parametrize("name", [*EVIL[:-1], 7, None])
def test_the_description_of_a_rocksdb_snapshot_names_no_path(name: Any) -> None:
    good = NativeExtra({"db-1.sst": "1.sst"}, {"count": 1}, (0, 127), 1, {})
    assert NativeExtra.from_bytes(good.to_bytes()) == good

    for files in ({"db-1.sst": name}, {name: "1.sst"} if isinstance(name, str) else {"x": name}):
        with pytest.raises(RestoreError, match="damaged"):
            NativeExtra.from_bytes(replace(good, files=files).to_bytes())


@pytest.mark.parametrize(
    "data",
    [b"", b"[" * 100_000, b"[]", b"7", b"{}", b'{"format": 1, "files": [], "states": [], "key_groups": [0]}'],
)
def test_a_description_that_makes_no_sense_is_an_error_of_ours(data: bytes) -> None:
    with pytest.raises(RestoreError):
        NativeExtra.from_bytes(data)


@pytest.mark.parametrize(
    "change",
    [
        {"states": {"count": -1}},
        {"states": {"count": 1 << 16}},
        {"states": {"count": True}},
        {"key_groups": (-1, 127)},
        {"key_groups": (0, 1 << 15)},
        {"next_segment": -1},
        {"next_segment": 1 << 63},
        {"next_segment": 1.5},
    ],
)
def test_a_number_that_no_rocksdb_snapshot_has_is_refused(change: dict[str, Any]) -> None:
    """Numbers become parts of row keys, of a fixed width each."""
    widest = NativeExtra({}, {"count": (1 << 16) - 1}, (0, (1 << 15) - 1), (1 << 63) - 1, {})
    assert NativeExtra.from_bytes(widest.to_bytes()) == widest

    with pytest.raises(RestoreError, match="damaged"):
        NativeExtra.from_bytes(replace(widest, **change).to_bytes())


def test_a_backend_cannot_write_a_name_that_restoring_would_refuse(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    cut = NativeCut("own", {"sub/file": tmp_path / "file"}, frozenset())

    with pytest.raises(CheckpointError, match="plain names"):
        NativeFiles().upload(
            cut, (), FileSystemStorage(), str(tmp_path), str(tmp_path), "p/", checkpoint_id=1, base=None
        )


def _serializer_snapshot(class_name: str, body: bytes = b"") -> bytes:
    out = DataOutputView()
    out.write(b"\x01")
    out.write_utf(class_name)
    out.write_int(1)
    out.write_bytes(body)
    return out.getvalue()


def test_looking_at_a_snapshot_imports_nothing_it_names(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = place.parents[1] / "modules"
    modules.mkdir()
    proof = modules / "proof"
    (modules / "stranger_side_effect.py").write_text(f"open({str(proof)!r}, 'w').close()\nclass Snap: ...\n")
    monkeypatch.syspath_prepend(str(modules))
    evil = "stranger_side_effect.Snap"
    text = DataOutputView()
    text.write_utf(evil)
    nested = DataOutputView()
    nested.write_int(1)
    nested.write_bytes(b"")
    nested.write_int(1)
    nested.write_bytes(_serializer_snapshot(evil))
    ours = "tidemark.state.serializers."
    meta = StateMeta(
        "count",
        StateKind.MAP,
        _serializer_snapshot(evil),
        _serializer_snapshot(f"{ours}containers.ListSerializerSnapshot", nested.getvalue()),
        _serializer_snapshot(f"{ours}compatibility.GenericSerializerSnapshot", text.getvalue()),
    )
    part = OperatorStatePart("offset", Redistribution.SPLIT, (), _serializer_snapshot(evil))
    state = SubtaskState(0, (0, 127), (TableHandle(meta),), operator=(part,))
    (place / "_metadata").write_bytes(encode(snapshot(state)))

    shown = describe(str(place))
    assert verify(str(place)) == []
    result = CliRunner().invoke(cli, ["inspect", str(place)])

    assert result.exit_code == 0, result.output
    assert "stranger_side_effect" not in sys.modules
    assert not proof.exists()
    [keyed] = shown["operators"][0]["keyed_states"]
    assert keyed["key_serializer"] == keyed["map_key_serializer"] == evil
    assert keyed["value_serializer"] == f"{ours}containers.ListSerializer"


@pytest.mark.parametrize(
    "kind",
    [
        Types.LONG(),
        Types.STRING(),
        Types.BIG_DEC(),
        Types.SQL_TIMESTAMP(),
        Types.PICKLED_BYTE_ARRAY(),
        Types.LIST(Types.LONG()),
        Types.MAP(Types.STRING(), Types.LONG()),
        Types.TUPLE([Types.LONG(), Types.STRING()]),
        Types.ROW([Types.LONG()]),
        Types.PRIMITIVE_ARRAY(Types.LONG()),
        Types.BASIC_ARRAY(Types.LONG()),
        Types.OBJECT_ARRAY(Types.STRING()),
    ],
    ids=str,
)
def test_the_name_of_a_serializer_is_that_of_its_class(kind: Any) -> None:
    serializer = serializer_for(kind)

    assert stored_serializer_name(dump_serializer_snapshot(serializer)) == serializer.qualified_name()


def _mutated(payload: bytes, chance: random.Random) -> bytes:
    data = bytearray(payload)
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(data))
        match chance.randrange(4):
            case 0:
                data[at] = chance.randrange(256)
            case 1:
                data[at] ^= 1 << chance.randrange(8)
            case 2:
                del data[at : at + chance.randint(1, 9)]
            case _:
                data[at:at] = chance.choice(
                    [b"\xdd\xff\xff\xff\xff", b"\xa4../x", b"\xdf\x7f", b"\x91" * 50, b"/"]
                )
        if not data:
            data = bytearray(b"\xc0")
    return bytes(data)


def _evil_fields(metadata: Any, chance: random.Random) -> Any:
    """The decoded model as plain data, with some of its texts, numbers and bytes replaced."""
    if isinstance(metadata, dict):
        return {key: _evil_fields(value, chance) for key, value in metadata.items()}
    if isinstance(metadata, list):
        return [_evil_fields(value, chance) for value in metadata]
    if chance.random() > 0.05:
        return metadata
    if isinstance(metadata, str):
        return chance.choice(EVIL)
    if isinstance(metadata, int) and not isinstance(metadata, bool):
        return chance.choice([-1, 0, 1 << 40, (1 << 63) - 1, 1 << 63, metadata + 1])
    return chance.choice([None, b"", b"\xff" * 16, metadata])


def test_metadata_nested_too_deeply_is_refused_by_every_command(place: Path, tmp_path: Path) -> None:
    payload = b"\x81\xa3foo" + b"\x91" * 200_000 + b"\xc0"
    header = b"TDMK" + (1).to_bytes(2, "big") + len(payload).to_bytes(8, "big")
    (place / "_metadata").write_bytes(header + xxhash.xxh3_128_digest(payload) + payload)

    with pytest.raises(MetadataError, match="cannot be read as version 1"):
        read_metadata(FileSystemStorage(), str(place))
    erase = ["erase", "--key", "k", "-o", str(tmp_path / "new")]
    for expected, command in ((5, ["inspect"]), (1, ["verify"]), (5, ["diff", str(place)]), (5, erase)):
        result = CliRunner().invoke(cli, [*command, str(place)])
        assert result.exit_code == expected, result.output
        assert "cannot be read as version 1" in result.output


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.parent.name)
def test_mutated_metadata_is_read_or_refused_and_never_leaves_its_place(golden: Path, tmp_path: Path) -> None:
    for seed in range(200):
        _look_at_a_mutation(golden, seed, tmp_path / str(seed))


def _look_at_a_mutation(golden: Path, seed: int, tmp_path: Path) -> None:
    chance = random.Random(f"{golden.parent.name}-{seed}")
    original = golden.read_bytes()
    header, payload = original[:30], original[30:]
    if seed % 2:
        payload = _mutated(payload, chance)
    else:
        payload = msgspec.msgpack.encode(_evil_fields(msgspec.msgpack.decode(payload), chance))
    header = header[:6] + len(payload).to_bytes(8, "big") + xxhash.xxh3_128_digest(payload)
    place = tmp_path / "a" / "b" / "chk-1"
    place.mkdir(parents=True)
    (place / "_metadata").write_bytes(header + payload)

    try:
        metadata = read_metadata(FileSystemStorage(), str(place))
    except MetadataError:
        return
    verify(str(place))
    for attempt in (
        lambda: describe(str(place)),
        lambda: _fetch(metadata, place, tmp_path / "a" / "scratch"),
    ):
        with suppress(TidemarkError):
            attempt()
    written = {path for path in tmp_path.rglob("*") if path.is_file()} - {place / "_metadata"}
    assert all(path.is_relative_to(tmp_path / "a" / "scratch") for path in written)


def _fetch(metadata: CheckpointMetadata, place: Path, scratch: Path) -> None:
    for operator in metadata.operators:
        for subtask in operator.subtasks:
            if subtask.native is not None:
                NativeExtra.from_bytes(subtask.native.extra)
                fetch_native(subtask.native, FileSystemStorage(), str(place), str(place.parent), scratch)


@pytest.mark.parametrize(
    "position", [b"\x91" * 900 + b"\xc0", b"\x81\xc4\x01\xff\x01", b"\xc7\x01\x05\x00", b"\x81\x91\x01\x01"]
)
def test_whatever_a_snapshot_says_is_shown_and_never_steers_the_terminal(
    position: bytes, place: Path
) -> None:
    operator = OperatorState("\x1b]0;title\x07", "\x1b[2J", 1, 128, (SubtaskState(0),))
    metadata = CheckpointMetadata(
        3,
        (1 << 63) - 1,
        "ab" * 16,
        "\x1b[31m\r\nname",
        source_positions={"\x1b[1m": position},
        operators=(operator,),
    )
    (place / "_metadata").write_bytes(encode(metadata))

    for arguments in (["inspect", str(place)], ["--json", "inspect", str(place)], ["verify", str(place)]):
        result = CliRunner().invoke(cli, arguments, color=True)

        assert result.exit_code == 0, (result.output, result.exception)
        assert "\x1b" not in result.output
        assert "\r" not in result.output


@pytest.mark.parametrize(
    "change",
    [
        {"job_id": "*"},
        {"job_id": "\x1b[31m"},
        {"job_id": "../x"},
        {"lineage": "a/b"},
        {"checkpoint_id": 2**62},
        {"properties": {"epoch": "9" * 18}},
    ],
)
def test_ids_and_counters_that_a_job_could_not_go_on_with_are_refused(change: dict[str, Any]) -> None:
    metadata = replace(CheckpointMetadata(1, 0, "ab" * 16), **change)

    with pytest.raises(MetadataError):
        decode(encode(metadata), "hostile")
