from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.checkpoint.tables import FakeKeyedCut, FakeTable, rows_in

from tidemark.checkpoint.inspection import describe, verify
from tidemark.checkpoint.layout import JobLayout
from tidemark.checkpoint.metadata import CheckpointMetadata, OperatorState, write_metadata
from tidemark.checkpoint.snapshot_writer import SnapshotWriter, SubtaskTarget
from tidemark.checkpoint.storage import FileSystemStorage
from tidemark.errors import SavepointNotFoundError
from tidemark.state.snapshot import NativeCut, OperatorCut, OperatorStatePart, Redistribution


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    storage = FileSystemStorage()
    layout = JobLayout(str(tmp_path), "ab" * 16)
    place = layout.checkpoint(4)
    writer = SnapshotWriter(storage)
    part = OperatorStatePart("offsets", Redistribution.UNION, (b"12", b"345"))
    (tmp_path / "1.sst").write_bytes(b"s" * 3000)
    native = NativeCut("rocksdb", {"1.sst": tmp_path / "1.sst"}, frozenset({"1.sst"}))
    tables = FakeKeyedCut([FakeTable(rows_in(range(128), 10))])
    files = FakeKeyedCut([FakeTable([], "inner")], native)
    operators = (
        OperatorState(
            "a",
            "Counter",
            1,
            128,
            (
                writer.write_subtask(
                    SubtaskTarget(4, place, "a", 0, (0, 127)), OperatorCut(tables, [], [part])
                ),
            ),
        ),
        OperatorState(
            "b",
            "Join",
            1,
            128,
            (writer.write_subtask(SubtaskTarget(4, place, "b", 0, (0, 127)), OperatorCut(files)),),
        ),
    )
    metadata = CheckpointMetadata(
        4, 99, layout.job_id, "shop", False, {"src": b'{"offset": 7}', "raw": b"\xff\x00"}, {}, operators
    )
    write_metadata(storage, place.directory, metadata)
    return Path(place.directory)


def test_a_snapshot_is_described_as_plain_data(checkpoint: Path) -> None:
    found = describe(str(checkpoint / "_metadata"))

    json.dumps(found)
    assert (found["checkpoint_id"], found["type"], found["job_name"]) == (4, "checkpoint", "shop")
    assert found["sources"] == {"src": '{"offset": 7}', "raw": "ff00"}
    counter, join = found["operators"]
    (state,) = counter["keyed_states"]
    assert (state["name"], state["kind"], state["rows"], state["state_size"]) == (
        "count",
        "value",
        1280,
        20480,
    )
    assert state["columns"] == {"key_group": "uint16", "key": "int64", "value": "int64"}
    assert counter["operator_states"] == [
        {"name": "offsets", "mode": "union", "serializer": None, "elements": 2, "state_size": 5}
    ]
    assert counter["subtasks"][0]["key_groups"] == [0, 127]
    assert join["subtasks"][0]["native"] == "rocksdb"
    assert join["keyed_states"][0]["name"] == "inner"
    assert join["keyed_states"][0]["rows"] is None


def test_serializers_are_named() -> None:
    from tidemark.state.serializers.compatibility import dump_serializer_snapshot
    from tidemark.state.serializers.naming import stored_serializer_name
    from tidemark.state.serializers.registry import serializer_for
    from tidemark.state.serializers.streams import DataOutputView
    from tidemark.types.typeinfo import Types

    known = dump_serializer_snapshot(serializer_for(Types.LONG()))
    assert "LongSerializer" in (stored_serializer_name(known) or "")

    lost = DataOutputView()
    lost.write(b"\x01")
    lost.write_utf("gone.module.TheirSnapshot")
    lost.write_int(1)
    lost.write_bytes(b"")
    assert stored_serializer_name(lost.getvalue()) == "gone.module.TheirSnapshot"
    assert stored_serializer_name(None) is None


def test_an_intact_snapshot_verifies(checkpoint: Path) -> None:
    assert verify(str(checkpoint)) == []


def test_every_damaged_file_is_a_problem_of_its_own(checkpoint: Path) -> None:
    table = next(checkpoint.rglob("*.parquet"))
    data = bytearray(table.read_bytes())
    data[50] ^= 1
    table.write_bytes(bytes(data))
    next((checkpoint.parent / "shared").iterdir()).unlink()

    problems = verify(str(checkpoint))

    assert len(problems) == 2
    assert problems[0].startswith("a[0] state 'count'")
    assert str(table) in problems[0]
    assert problems[1].startswith("b[0] file '1.sst'")


def test_damaged_metadata_is_the_problem(checkpoint: Path) -> None:
    (checkpoint / "_metadata").write_bytes(b"TDMK")

    (problem,) = verify(str(checkpoint))

    assert "is not the metadata" in problem


def test_nothing_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SavepointNotFoundError):
        describe(str(tmp_path))
    with pytest.raises(SavepointNotFoundError):
        verify(str(tmp_path))


def test_a_moved_snapshot_is_whole_if_it_shares_nothing(checkpoint: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere" / "sp"
    moved.parent.mkdir()
    checkpoint.rename(moved)

    assert [problem.split(":")[0] for problem in verify(str(moved))] == ["b[0] file '1.sst'"]
