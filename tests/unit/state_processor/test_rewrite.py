from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from tests.unit.state_processor.jobs import TEXT, continue_job, environment, take_savepoint

from tidemark import Types, ValueStateDescriptor
from tidemark.checkpoint.inspection import verify
from tidemark.checkpoint.layout import savepoint_location
from tidemark.checkpoint.metadata import read_metadata
from tidemark.checkpoint.storage.filesystem import FileSystemStorage
from tidemark.cli.main import cli
from tidemark.errors import ConfigError, MaxParallelismError, UnknownStateError
from tidemark.state.descriptors import StateKind
from tidemark.state.serializers.compatibility import dump_serializer_snapshot
from tidemark.state.serializers.registry import serializer_for
from tidemark.state.snapshot import StateMeta
from tidemark.state_processor import (
    KeyedStateBootstrapFunction,
    OperatorTransformation,
    SavepointWriter,
    rekeying,
)
from tidemark.state_processor.diff import diff
from tidemark.state_processor.open_snapshot import OpenSnapshot
from tidemark.state_processor.rewrite import erase_key, parse_key, rekey
from tidemark.state_processor.state_edit import EditedState

WHOLE = ["_timers/event", "last", "seen", "total"]


def different(a: str, b: str) -> dict[str, tuple[int, int, int]]:
    return {s.state: (s.added, s.removed, s.changed) for s in diff(a, b) if not s.is_equal}


def test_an_erased_key_is_in_no_state_and_no_timer(snapshot: str, target: str) -> None:
    result = erase_key(snapshot, "k3", target, ["sum"])

    assert result.path == target
    assert {state for _, state in result.rows} == set(WHOLE)
    assert result.total == 6
    assert different(snapshot, target) == dict.fromkeys(WHOLE, (0, 1, 0))
    assert all(s.samples["removed"] == ["k3"] for s in diff(snapshot, target) if not s.is_equal)
    assert verify(target) == []
    assert continue_job(target, [("k3", 1), ("k4", 1)], rocksdb=True) == [("k3", 1), ("k4", 941)]


def test_erasing_an_absent_key_writes_an_equal_savepoint(savepoint: str, target: str) -> None:
    assert erase_key(savepoint, "nobody", target).total == 0
    assert different(savepoint, target) == {}


def test_keys_without_a_type_are_erased_too(tmp_path: Path) -> None:
    path = take_savepoint(tmp_path, [("a", 1), ("b", 2)], key_type=None)

    result = erase_key(path, "a", str(tmp_path / "new"), parse=True)

    assert result.total == 4
    [entry] = [s for s in diff(path, result.path) if s.state == "total"]
    assert entry.samples["removed"] == ["a"]
    assert continue_job(result.path, [("a", 5), ("b", 5)], key_type=None) == [("a", 5), ("b", 7)]


def test_what_cannot_be_erased_is_said(savepoint: str, target: str) -> None:
    with pytest.raises(UnknownStateError, match="no operator with uid 'x'"):
        erase_key(savepoint, "k3", target, ["x"])
    with pytest.raises(UnknownStateError, match="no keyed state"):
        erase_key(savepoint, "k3", target, ["numbers"])
    with pytest.raises(ConfigError, match="does not fit: operator 'sum'"):
        erase_key(savepoint, 3, target)
    with pytest.raises(ConfigError, match="exists already"):
        erase_key(savepoint, "k3", savepoint)


@pytest.mark.parametrize(
    ("type_info", "text", "key"),
    [
        (Types.STRING(), "7", "7"),
        (Types.LONG(), "7", 7),
        (Types.DOUBLE(), "7.5", 7.5),
        (Types.BOOLEAN(), "true", True),
        (Types.TUPLE([Types.STRING(), Types.LONG()]), '["a", 1]', ("a", 1)),
        (Types.PICKLED_BYTE_ARRAY(), "('a', 1)", ("a", 1)),
        (Types.PICKLED_BYTE_ARRAY(), "plain", "plain"),
    ],
)
def test_keys_are_read_from_text_by_their_type(type_info: Any, text: str, key: Any) -> None:
    assert parse_key(text, serializer_for(type_info)) == key


def test_text_that_is_no_key_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be read as a key of type int64"):
        parse_key("seven", serializer_for(Types.LONG()))


@pytest.mark.parametrize("groups", [1, 64, 300, 4096])
def test_another_number_of_key_groups_keeps_every_row(
    snapshot: str, target: str, groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rekeying, "_BUCKET_ROWS", 20)

    assert rekey(snapshot, groups, target) == target

    assert different(snapshot, target) == {}
    assert verify(target) == []
    operator = read_metadata(FileSystemStorage(), target).operator("sum")
    assert operator is not None
    assert operator.max_parallelism == groups
    assert continue_job(target, [("k3", 1), ("new", 1)], parallelism=1 if groups == 1 else 3) == [
        ("k3", 931),
        ("new", 1),
    ]


def test_a_larger_maximum_parallelism_needs_the_rewrite_and_says_so(savepoint: str, target: str) -> None:
    with pytest.raises(MaxParallelismError, match=r"tidemark rekey PATH --max-parallelism 300 -o NEW"):
        continue_job(savepoint, [("k3", 1)], max_parallelism=300)
    with pytest.raises(ConfigError, match=r"tidemark rekey PATH --max-parallelism 200 -o NEW"):
        continue_job(savepoint, [("k3", 1)], parallelism=200)

    rekey(savepoint, 300, target)

    assert continue_job(target, [("k3", 1)], max_parallelism=300, parallelism=5) == [("k3", 931)]


def test_a_rekeyed_savepoint_with_fewer_groups_than_subtasks_keeps_operator_state(tmp_path: Path) -> None:
    path = take_savepoint(tmp_path, [("a", 1), ("b", 2)], parallelism=3)

    new = rekey(path, 2, str(tmp_path / "new"))

    assert different(path, new) == {}
    parts = OpenSnapshot.open(new).parts("sum", "list")
    assert [index for index, _ in parts] == [0, 1]


def test_an_impossible_number_of_key_groups_is_refused(savepoint: str, target: str) -> None:
    with pytest.raises(ConfigError, match="between 1 and 32768"):
        rekey(savepoint, 0, target)


def test_a_diff_counts_and_samples_what_is_added_removed_and_changed(tmp_path: Path) -> None:
    a = take_savepoint(tmp_path, [("same", 1), ("gone", 1), ("more", 1)])
    b = take_savepoint(tmp_path, [("same", 1), ("new", 1), ("more", 1), ("more", 1)])

    [entry] = [s for s in diff(a, b) if s.state == "total"]

    assert (entry.added, entry.removed, entry.changed) == (1, 1, 1)
    assert entry.samples == {"added": ["new"], "removed": ["gone"], "changed": ["more"]}
    assert not entry.is_equal
    assert different(a, a) == {}


def test_an_operator_only_one_side_has_counts_as_added(savepoint: str, target: str) -> None:
    class Fill(KeyedStateBootstrapFunction):
        def open(self, runtime_context: Any) -> None:
            self.total = runtime_context.get_state(ValueStateDescriptor("t", Types.PICKLED_BYTE_ARRAY()))

        def process_element(self, value: Any, ctx: Any) -> None:
            self.total.update({value})

    data = OperatorTransformation.bootstrap_with([1, 2]).key_by(lambda n: n, Types.LONG()).transform(Fill())
    SavepointWriter.from_existing_savepoint(environment(), savepoint).with_operator("more", data).write(
        target
    )

    assert different(savepoint, target) == {"t": (2, 0, 0)}
    assert different(target, savepoint) == {"t": (0, 2, 0)}


def edited(meta_kind: StateKind = StateKind.VALUE, ttl: bool = False, key_type: Any = TEXT) -> EditedState:
    key, value = serializer_for(key_type), serializer_for(Types.LONG())
    map_key = dump_serializer_snapshot(key) if meta_kind is StateKind.MAP else None
    meta = StateMeta(
        "s", meta_kind, dump_serializer_snapshot(key), dump_serializer_snapshot(value), map_key, ttl=ttl
    )
    return EditedState("op", meta, 128, ((0, 63), (64, 127)), savepoint_location("/nowhere"))


def test_rows_of_a_frame_become_a_canonical_table_sorted_by_key_group() -> None:
    table = edited().canonical(pa.table({"value": [1, 2, 3], "key": ["a", "b", "c"]}))

    groups = table.column("key_group").to_pylist()
    assert groups == sorted(groups)
    assert dict(zip(table.column("key").to_pylist(), table.column("value").to_pylist(), strict=True)) == {
        "a": 1,
        "b": 2,
        "c": 3,
    }


def test_rows_are_dealt_out_to_the_files_of_their_key_groups() -> None:
    work = edited()
    batch = pa.record_batch({"key": [f"k{n}" for n in range(50)]})

    groups = work.groups(batch.column("key"), serializer_for(Types.STRING()))

    assert work.parts(batch).tolist() == [0 if group < 64 else 1 for group in groups]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"key": [1, None], "value": [1, 2]}, "have no key"),
        ({"key": [1, 2], "value": [1, None]}, "null in column 'value'"),
        ({"key": [1, 1], "value": [1, 2]}, "several rows for one key"),
        ({"key": ["x", "y"], "value": [1, 2]}, "cannot be read as int64"),
    ],
)
def test_rows_that_are_no_state_are_refused(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        edited(key_type=Types.LONG()).canonical(pa.table(columns))


def test_map_entries_are_identified_by_key_and_map_key() -> None:
    rows = {"key": ["a", "a"], "map_key": ["x", "y"], "value": [1, 2]}

    assert edited(StateKind.MAP).canonical(pa.table(rows)).num_rows == 2
    with pytest.raises(ConfigError, match="several rows for one key, map_key"):
        edited(StateKind.MAP).canonical(pa.table({**rows, "map_key": ["x", "x"]}))


def test_missing_times_of_last_access_are_now() -> None:
    table = edited(ttl=True).canonical(pa.table({"key": ["a"], "value": [1]}))
    lists = edited(StateKind.LIST, ttl=True).canonical(pa.table({"key": ["a"], "value": [[1, 2]]}))

    assert table.column("last_access").to_pylist()[0] > 1_600_000_000_000
    assert len(lists.column("last_access").to_pylist()[0]) == 2


def run(*arguments: str) -> Any:
    return CliRunner().invoke(cli, list(arguments))


def test_the_commands_write_savepoints_and_tell_them_apart(savepoint: str, tmp_path: Path) -> None:
    erased, rekeyed = str(tmp_path / "erased"), str(tmp_path / "rekeyed")

    first = run("erase", savepoint, "--uid", "sum", "--key", "k3", "-o", erased)
    second = run("rekey", savepoint, "--max-parallelism", "256", "-o", rekeyed)
    third = run("diff", savepoint, erased)
    fourth = run("--json", "diff", savepoint, rekeyed)

    assert (first.exit_code, first.stdout) == (0, f"{erased}\n")
    assert "1 row(s) of 'total' left out" in first.stderr
    assert (second.exit_code, second.stdout) == (0, f"{rekeyed}\n")
    assert third.exit_code == 0
    assert "removed: 'k3'" in third.stdout
    assert "4 of 9 states differ" in third.stdout
    assert all(state["equal"] for state in json.loads(fourth.stdout))


def test_the_commands_explain_errors(savepoint: str, tmp_path: Path) -> None:
    missing = run("diff", savepoint, str(tmp_path))
    taken = run("rekey", savepoint, "--max-parallelism", "256", "-o", savepoint)
    json_result = run("--json", "erase", savepoint, "--key", "nobody", "-o", str(tmp_path / "new"))

    assert missing.exit_code == 5
    assert "_metadata is missing" in missing.stderr
    assert taken.exit_code == 2
    assert json.loads(json_result.stdout) == {"savepoint": str(tmp_path / "new"), "rows": []}
