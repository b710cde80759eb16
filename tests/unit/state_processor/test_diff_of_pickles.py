from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from tests.unit.state_processor.jobs import environment

from tidemark import ListStateDescriptor, Types, ValueStateDescriptor
from tidemark.state_processor import KeyedStateBootstrapFunction, OperatorTransformation, SavepointWriter
from tidemark.state_processor.diff import diff
from tidemark.state_processor.plain_pickles import StoredPickle, plain_or_bytes

BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())
UNTYPED = Types.PICKLED_BYTE_ARRAY()


class Trap:
    """Makes a directory when it is unpickled."""

    def __init__(self, path: Path, mode: int) -> None:
        self.call = os.mkdir, (str(path), mode)

    def __reduce__(self) -> Any:
        return self.call


class Fill(KeyedStateBootstrapFunction):
    def __init__(self, kind: Any, as_list: bool = False) -> None:
        self.kind, self.as_list = kind, as_list

    def open(self, runtime_context: Any) -> None:
        if self.as_list:
            self.state: Any = runtime_context.get_list_state(ListStateDescriptor("s", self.kind))
        else:
            self.state = runtime_context.get_state(ValueStateDescriptor("s", self.kind))

    def process_element(self, value: Any, ctx: Any) -> None:
        self.state.update(value[1])


def savepoint(path: Path, pairs: list[Any], kind: Any, key: Any = None, as_list: bool = False) -> str:
    data = OperatorTransformation.bootstrap_with(pairs).key_by(lambda pair: pair[0], key or Types.LONG())
    writer = SavepointWriter.new_savepoint(environment(), None, 128)
    return writer.with_operator("op", data.transform(Fill(kind, as_list))).write(str(path))


def test_comparing_bytes_that_look_like_pickles_runs_nothing(tmp_path: Path) -> None:
    traps = [pickle.dumps(Trap(tmp_path / "trap", mode)) for mode in (0o700, 0o755)]
    a, b = (savepoint(tmp_path / str(i), [(1, trap)], BYTES) for i, trap in enumerate(traps))

    [entry] = [entry for entry in diff(a, b) if entry.state == "s"]

    assert not (tmp_path / "trap").exists()
    assert (entry.added, entry.removed, entry.changed) == (0, 0, 1)


def test_comparing_values_and_keys_without_a_type_runs_nothing(tmp_path: Path) -> None:
    traps = [Trap(tmp_path / "trap", mode) for mode in (0o700, 0o755)]
    for trap in traps:
        data = pickle.dumps(trap)
        assert plain_or_bytes(data) == data
    assert StoredPickle(pickle.dumps(traps[0])) != StoredPickle(pickle.dumps(traps[1]))
    assert not (tmp_path / "trap").exists()


@pytest.mark.parametrize("as_list", [False, True])
def test_equal_plain_data_with_other_pickles_is_no_difference(tmp_path: Path, as_list: bool) -> None:
    one, text = {"a": "x1", "b": "x1"}, "x"
    other = {"b": text + "1", "a": text + "1"}
    assert pickle.dumps(one, 5) != pickle.dumps(other, 5)
    values = [[one, 1], [other, 1]] if as_list else [one, other]

    a, b = (savepoint(tmp_path / str(i), [(1, v)], UNTYPED, as_list=as_list) for i, v in enumerate(values))

    assert all(entry.is_equal for entry in diff(a, b))


def test_keys_without_a_type_are_shown_if_they_are_plain(tmp_path: Path) -> None:
    a = savepoint(tmp_path / "a", [("k", 1)], Types.LONG(), UNTYPED)
    b = savepoint(tmp_path / "b", [("k", 1), (frozenset({1, 2}), 1)], Types.LONG(), UNTYPED)

    [entry] = [entry for entry in diff(a, b) if entry.state == "s"]

    assert entry.samples["added"] == [frozenset({1, 2})]


def test_damaged_and_endless_pickles_are_bytes() -> None:
    deep = b"\x80\x05" + b"]" * 100_000 + b"a" * 99_999 + b"."
    for data in (b"\x80", b"", b"\x80\x05P1\n.", b"\x80\x05X\xff\xff\xff\xff."):
        assert plain_or_bytes(data) == data
    assert StoredPickle(deep) == StoredPickle(deep)
    assert StoredPickle(deep) != StoredPickle(deep.replace(b"\x05", b"\x04"))
