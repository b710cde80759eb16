"""Sinks at the driver: what is held back between the epoch that made it and the checkpoint that covers it."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import pytest

from tidemark.api.specs import CollectSinkSpec, PrintSinkSpec
from tidemark.runtime.sinks.driver import CollectSink, PrintSink


class Buffer:
    """What the program would see."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def add(self, values: list[Any], timestamps: list[Any]) -> None:
        self.values += values


class Listing(CollectSink):
    """Stores what is prepared in the checkpoint."""

    def dump(self, items: list[Any]) -> bytes:
        return pickle.dumps([value for values, _ in items for value in values])


@pytest.fixture
def out() -> Buffer:
    return Buffer()


@pytest.fixture
def sink(out: Buffer) -> Listing:
    vertex: Any = SimpleNamespace(id=1, name="sink", uid="sink", spec=CollectSinkSpec(out))  # type: ignore[arg-type]
    return Listing(vertex)


def take(sink: CollectSink, *values: Any) -> None:
    sink.take([pickle.dumps(([value], [None])) for value in values], [], 1)


def test_nothing_is_let_out_before_the_checkpoint_that_covers_it(sink: Listing, out: Buffer) -> None:
    take(sink, "a", "b")
    sink.prepare(1)
    take(sink, "c")
    assert out.values == []

    sink.commit(1)
    assert out.values == ["a", "b"]

    sink.commit(1)
    sink.commit(2)
    assert out.values == ["a", "b"], "once, and what no checkpoint covers stays back"


def test_a_checkpoint_covers_those_before_it_that_did_not_complete(sink: Listing, out: Buffer) -> None:
    take(sink, "a")
    assert pickle.loads(sink.prepare(9)) == ["a"]
    take(sink, "b")
    assert pickle.loads(sink.prepare(10)) == ["a", "b"]
    take(sink, "c")
    assert pickle.loads(sink.prepare(11)) == ["a", "b", "c"]

    sink.commit(10)

    assert out.values == ["a", "b"]
    assert pickle.loads(sink.prepare(12)) == ["c"]


@pytest.mark.parametrize(("checkpoint_id", "visible"), [(None, []), (1, ["a"]), (2, ["a", "b"])])
def test_a_restore_commits_what_its_checkpoint_covers_and_drops_the_rest(
    sink: Listing, out: Buffer, checkpoint_id: int | None, visible: list[str]
) -> None:
    take(sink, "a")
    sink.prepare(1)
    take(sink, "b")
    sink.prepare(2)
    take(sink, "c")

    sink.restore(checkpoint_id, b"")

    assert out.values == visible
    sink.commit(3)
    sink.finish()
    assert out.values == visible


def test_the_end_lets_everything_out_in_its_order_and_once(sink: Listing, out: Buffer) -> None:
    for checkpoint_id, value in ((1, "a"), (2, "b")):
        take(sink, value)
        sink.prepare(checkpoint_id)
    take(sink, "c")

    sink.finish()
    sink.finish()

    assert out.values == ["a", "b", "c"]


def test_a_closed_sink_has_dropped_what_was_not_committed(sink: Listing, out: Buffer) -> None:
    take(sink, "a")
    sink.prepare(1)
    take(sink, "b")

    sink.close()
    sink.finish()

    assert out.values == []


@pytest.mark.parametrize(
    ("identifier", "parallelism", "printed"),
    [("", 1, "x\n"), ("", 2, "1> x\n"), ("orders", 1, "orders> x\n"), ("orders", 2, "orders:1> x\n")],
)
def test_printed_lines_say_which_sink_and_subtask_they_are_of(
    identifier: str, parallelism: int, printed: str
) -> None:
    lines: list[str] = []
    vertex: Any = SimpleNamespace(parallelism=parallelism, spec=PrintSinkSpec(identifier))

    PrintSink(vertex, lines.append).take([pickle.dumps((0, ["x"]))], [], 1)

    assert lines == [printed]
