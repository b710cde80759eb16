"""Comparing snapshots of strangers: whatever they name is neither imported nor called."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.state_processor.jobs import Waiting, checkpoints, environment, wait_for_checkpoint

from tidemark import (
    CheckpointedFunction,
    EmbeddedRocksDBStateBackend,
    KeyedProcessFunction,
    ListStateDescriptor,
    Types,
    ValueStateDescriptor,
)
from tidemark.errors import ForbiddenClassError
from tidemark.state.allowed_classes import loads, only_data
from tidemark.state.serializers.compatibility import dump_serializer_snapshot, load_serializer_snapshot
from tidemark.state.serializers.registry import serializer_for
from tidemark.state_processor.diff import diff

WITH_PICKLE = Types.TUPLE([Types.LONG(), Types.PICKLED_BYTE_ARRAY()])
MODULE = "strangers_shop"


class Trap:
    """Makes a directory when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


class Keep(KeyedProcessFunction, CheckpointedFunction):
    """Keeps pickles inside of declared values, and instances of a class of the module."""

    def __init__(self, trap: str, order: Any) -> None:
        self.trap, self.order = trap, order

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self.elements = store.get_list_state(ListStateDescriptor("elements", WITH_PICKLE))
        self.orders = store.get_list_state(ListStateDescriptor("orders", self.order))

    def snapshot_state(self, context: Any) -> None:
        pass

    def open(self, runtime_context: Any) -> None:
        self.value = runtime_context.get_state(ValueStateDescriptor("value", WITH_PICKLE))
        self.last = runtime_context.get_state(ValueStateDescriptor("last", self.order))

    def process_element(self, number: int, ctx: Any) -> Any:
        self.value.update((number, Trap(self.trap)))
        self.last.update(self.order("book", number))
        self.elements.update([(number, Trap(self.trap))])
        self.orders.update([self.order("book", number)])
        yield number


@pytest.fixture
def order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The class of a module that is gone from memory afterwards and would leave a mark if it were imported again."""
    monkeypatch.syspath_prepend(str(tmp_path))
    module = tmp_path / f"{MODULE}.py"
    module.write_text(
        "from dataclasses import dataclass\n\n\n@dataclass\nclass Order:\n    what: str\n    count: int\n"
    )
    yield importlib.import_module(MODULE).Order
    sys.modules.pop(MODULE, None)


def snapshot(directory: Path, number: int, trap: Path, order: Any, incremental: bool) -> str:
    settings = {
        "state.checkpoints.dir": str(directory),
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "state.backend.incremental": "true",
    }
    env = environment(1, settings=settings if incremental else None)
    if incremental:
        env.set_state_backend(EmbeddedRocksDBStateBackend())
        env.enable_checkpointing(20)
    numbers = env.add_source(Waiting([number]), "numbers", Types.LONG()).key_by(lambda _: "k", Types.STRING())
    results = numbers.process(Keep(str(trap), order), Types.LONG()).uid("keep")
    with results.execute_and_collect() as iterator:
        next(iterator)
        client = iterator.get_job_client()
        if not incremental:
            return str(client.trigger_savepoint(str(directory)).result())
        job = directory / str(client.get_job_id())
        # The first one may have begun before the element.
        wait_for_checkpoint(job)
        wait_for_checkpoint(job)
        client.cancel().result()
        return str(max(checkpoints(job), key=lambda path: int(path.name[len("chk-") :])))


@pytest.mark.parametrize("incremental", [False, True])
def test_pickles_inside_of_values_and_classes_of_a_snapshot_are_left_alone(
    tmp_path: Path, order: Any, incremental: bool
) -> None:
    trap, mark = tmp_path / "trap", tmp_path / "imported"
    a, b = (snapshot(tmp_path / str(n), n, trap, order, incremental) for n in (1, 2))
    del sys.modules[MODULE]
    (tmp_path / f"{MODULE}.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    importlib.invalidate_caches()

    found = {entry.state: entry for entry in diff(a, b) if entry.uid == "keep"}

    assert not trap.exists()
    assert not mark.exists()
    assert (found["value"].changed, found["last"].changed) == (1, 1)
    assert (found["elements"].added, found["elements"].removed) == (1, 1)
    assert found["orders"].samples["added"] == ["{'what': 'book', 'count': 2}"]
    assert all(entry.is_equal for entry in diff(b, b))
    assert not trap.exists()


def test_where_state_is_only_looked_at_no_pickle_is_opened() -> None:
    untyped = serializer_for(Types.PICKLED_BYTE_ARRAY())
    data = untyped.to_bytes([1, 2])

    with only_data(), pytest.raises(ForbiddenClassError, match="not opened"):
        loads(data)
    with only_data():
        closed = load_serializer_snapshot(dump_serializer_snapshot(untyped)).restore_serializer()

    assert closed.from_bytes(data) == data
    assert loads(data) == [1, 2]


@pytest.mark.parametrize("name", ["__class__", "not a name", "class"])
def test_a_dataclass_whose_stored_fields_no_class_can_have_is_refused(order: Any, name: str) -> None:
    description = dump_serializer_snapshot(serializer_for(order))
    old, new = (len(text).to_bytes(4, "big") + text for text in (b"what", name.encode()))
    assert old in description
    forged = description.replace(old, new)
    grown = len(forged) - len(description)
    # The length of the body stands before the name of the class.
    at = forged.index(f"{MODULE}.Order".encode()) - 8
    body = int.from_bytes(forged[at : at + 4], "big") + grown
    forged = forged[:at] + body.to_bytes(4, "big") + forged[at + 4 :]

    with only_data(), pytest.raises(Exception, match="stored as no dataclass"):
        load_serializer_snapshot(forged).restore_serializer()
