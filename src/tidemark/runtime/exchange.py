"""From a task to the slots and back: who gets which record, and the frames on the way.

One batch is in flight per (vertex, slot): before the next one is sent the answer is read, so a slow slot slows
its senders down and nothing piles up.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from tidemark.api.field_key import FieldKey, key_function
from tidemark.api.graph import Edge, NodeKind, Ship
from tidemark.errors import SlotLostError
from tidemark.operators.routing import (
    FEW,
    KeyRouter,
    custom_targets,
    split_evenly,
    split_few,
    split_lists,
    taken,
)
from tidemark.plan.vertex import Vertex
from tidemark.protocol.batch import MIN_WATERMARK, Batch
from tidemark.protocol.codec import BatchCodec, codec_for
from tidemark.protocol.failure import FailureInfo, OperatorFailed
from tidemark.protocol.frames import EMPTY, BatchHeader
from tidemark.protocol.reports import EpochDirective, TaskReport
from tidemark.runtime.records import ANY_SUBTASK, Records
from tidemark.wire import WireClosed

__all__ = [
    "Connect",
    "Exchange",
    "FrameSender",
    "Link",
    "Release",
    "SlotAnswers",
    "Task",
    "ToSlot",
    "slot_lost",
]


class Link(Protocol):
    """A connection to one slot: a socket, or a direct call in the local executor."""

    def send(self, header: Any, body: Any = b"") -> None:
        """Send one frame."""

    def receive(self) -> tuple[Any, Any]:
        """Receive one frame."""


Connect = Callable[[int], Link]
"""Slot index -> a link for the use of one exchange."""
Release = Callable[[int, Link], None]


class Task(Protocol):
    """What an exchange needs of the task it belongs to.

    Attributes:
        directive: What the driver said about this epoch.
        source: The source vertex whose records the task reads.
        partition: Which part of them.
        report: What the driver will be told.
        connect: Makes links.
        release: Takes them back.
    """

    directive: EpochDirective
    source: int
    partition: int
    report: TaskReport
    connect: Connect
    release: Release

    def emit(self, vertex_id: int, tag: str | None, records: Records) -> None:
        """Take what a slot has answered."""


class Exchange:
    """The links of this task to the subtasks of one slot vertex."""

    def __init__(self, task: Task, vertex: Vertex) -> None:
        """Links are made when they are first needed."""
        self._task = task
        self.vertex = vertex
        self._links: dict[int, Link] = {}
        self._pending: dict[int, bool] = {}
        self._sequence = [0] * vertex.parallelism
        self._answers = SlotAnswers(vertex)

    def send(self, slot: int, edge_at: int, flags: int, body: Any) -> None:
        """Send a frame to a subtask, after its answer to the one before has been read and passed on.

        Raises:
            SlotLostError: Its process is gone.
            OperatorFailed: The frame before made its operator fail, or the answer one behind it.
        """
        if slot in self._pending:
            self._collect(slot)
        link = self._links.get(slot)
        if link is None:
            try:
                link = self._links[slot] = self._task.connect(slot)
            except WireClosed as exc:
                raise slot_lost(slot) from exc
        directive = self._task.directive
        header = BatchHeader(
            self.vertex.id,
            edge_at,
            self._task.source,
            self._task.partition,
            self._sequence[slot],
            directive.attempt,
            directive.epoch,
            directive.watermarks.get(self.vertex.id, MIN_WATERMARK),
            flags,
        )
        self._sequence[slot] += 1
        try:
            link.send(header, body)
        except WireClosed as exc:
            raise slot_lost(slot) from exc
        self._pending[slot] = True

    def open_untouched(self) -> None:
        """Touch every subtask this task has not sent to, so that what is due there fires."""
        if self.vertex.kind is NodeKind.SOURCE:
            return
        for slot in range(self.vertex.parallelism):
            if not self._sequence[slot]:
                self.touch(slot)

    def touch(self, slot: int) -> None:
        """Send a frame without records."""
        self.send(slot, 0, EMPTY, b"")

    def flush(self) -> bool:
        """Read every answer in flight; True if there was one."""
        waiting = list(self._pending)
        for slot in waiting:
            self._collect(slot)
        return bool(waiting)

    def release(self) -> None:
        """Give the links back; nothing may be in flight."""
        for slot, link in self._links.items():
            self._task.release(slot, link)
        self._links.clear()

    def _collect(self, slot: int) -> None:
        del self._pending[slot]
        try:
            header, body = self._links[slot].receive()
        except WireClosed as exc:
            raise slot_lost(slot) from exc
        if header[0] == "error":
            raise OperatorFailed(pickle.loads(body))
        _ok, timer, sections, status = header
        self._task.report.timers[self.vertex.id, slot] = timer
        if status is not None:
            self._task.report.position = status
            self._task.report.records_in += status["taken"]
        for tag, records in self._answers.records(sections, body, slot):
            self._task.emit(self.vertex.id, tag, records)


class SlotAnswers:
    """Decodes what the subtasks of one slot vertex answer."""

    def __init__(self, vertex: Vertex) -> None:
        """Know the types of what the vertex emits."""
        self._main = codec_for(vertex.output_type)
        self._sides = {tag: codec_for(kind) for tag, kind in vertex.side_types.items()}

    def records(self, sections: Any, body: Any, slot: int) -> Iterator[tuple[str | None, Records]]:
        """The records of each (tag, flags, size) in `sections`, which lie in `body` one after the other."""
        view = memoryview(body)
        at = 0
        for tag, flags, size in sections:
            codec = self._main if tag is None else self._sides.get(tag)
            if codec is not None:
                yield tag, _decoded(codec, flags, view[at : at + size], slot)
            at += size


def _decoded(codec: BatchCodec, flags: int, body: Any, slot: int) -> Records:
    """The output of a slot; objects are only made if somebody asks for them."""
    if codec.serializer is None or not codec.is_column(flags):
        batch = codec.decode(flags, body)
        return Records(batch.values, batch.timestamps, slot)
    columns = codec.decode_columns(flags, body)
    return Records(None, columns.timestamps, slot, columns.values, codec.serializer)


class FrameSender(Protocol):
    """Where the records of an edge go: the subtasks of one slot vertex."""

    vertex: Vertex

    def send(self, slot: int, edge_at: int, flags: int, body: Any) -> None:
        """Send a frame to a subtask, in order."""


_WHOLE = {Ship.BROADCAST, Ship.GLOBAL, Ship.FORWARD}
"""Partitionings under which the records of a batch stay together."""


class ToSlot:
    """Splits the records of one edge over the subtasks of a slot vertex."""

    def __init__(self, exchange: FrameSender, edge_at: int, start: int) -> None:
        """Send the records of input number `edge_at`; what is dealt out in turns begins at subtask `start`."""
        vertex = exchange.vertex
        self._exchange = exchange
        self._edge_at = edge_at
        self._edge = vertex.inputs[edge_at]
        self._count = vertex.parallelism
        self._start = start
        self._router: KeyRouter | None = None
        key = None
        if self._edge.ship is Ship.HASH:
            self._router = KeyRouter(
                _select_key(self._edge), self._edge.key_type, vertex.max_parallelism, vertex.parallelism
            )
            key = self._router.serializer
        self._codec = codec_for(vertex.input_types[edge_at], key)
        self._key_at: int | None = None
        if isinstance(self._edge.key_selector, FieldKey):
            self._key_at = self._edge.key_selector.position_in(
                vertex.input_types[edge_at], self._edge.key_type
            )

    @property
    def takes_columns(self) -> bool:
        """Whether columns are sent as they are, without looking at single records."""
        if self._codec.serializer is None:
            return False
        if self._router is not None:
            return self._key_at is not None and self._router.key_tokens.are_keys
        ship = self._edge.ship
        return ship in _WHOLE or (self._count == 1 and ship is not Ship.CUSTOM)

    def __call__(self, records: Records) -> None:
        """Send each record where its partitioning says."""
        ship = self._edge.ship
        if self._router is not None:
            self._by_key(records, self._router)
        elif ship is Ship.BROADCAST:
            self._send_all(range(self._count), records)
        elif ship is Ship.GLOBAL or (self._count == 1 and ship is not Ship.CUSTOM):
            self._send_all([0], records)
        elif ship is Ship.FORWARD and records.subtask != ANY_SUBTASK:
            self._send_all([records.subtask % self._count], records)
        else:
            self._spread(records, ship)

    def _spread(self, records: Records, ship: Ship) -> None:
        if ship is Ship.CUSTOM:
            assert self._edge.partitioner is not None
            select = _select_key(self._edge)
            with self._named("partitioner"):
                keys = [select(value) for value in records.values]
                targets = custom_targets(self._edge.partitioner, keys, self._count)
        else:
            targets = split_evenly(ship, len(records), self._count, self._start)
            self._start = (self._start + len(records)) % self._count
        for slot, (values, timestamps) in split_lists(
            targets, self._count, records.values, records.timestamps
        ):
            self._send(slot, values, timestamps, None)

    def _by_key(self, records: Records, router: KeyRouter) -> None:
        if records.column is not None and self._codec.serializer is not None:
            self._by_column(records, router)
            return
        with self._named("key selector"):
            tokens = router.tokens(records.values)
        columns = (records.values, records.timestamps, tokens)
        if len(tokens) < FEW:
            parts = split_few(router.few_subtasks(tokens), *columns)
        elif (targets := router.subtasks(tokens)) is None:
            parts = [(0, list(columns))]
        else:
            parts = split_lists(targets, self._count, *columns)
        for slot, (values, timestamps, part) in parts:
            self._send(slot, values, timestamps, part)

    def _by_column(self, records: Records, router: KeyRouter) -> None:
        import numpy as np

        column = records.column
        assert column is not None
        keys, key_at = None, self._key_at if router.key_tokens.are_keys else None
        with self._named("key selector"):
            if key_at is not None:
                keys = column.field(key_at).cast(router.serializer.arrow_type())
            if keys is None or keys.null_count:
                # Only the serializer knows whether a key may be None.
                keys, key_at = router.token_column(records.values), None
            targets = router.subtasks(keys)
        # Keys that are a field travel once.
        sent = None if key_at is not None else keys
        stamps = records.stamp_column
        if targets is None:
            self._exchange.send(0, self._edge_at, *self._codec.encode_column(column, stamps, sent, key_at))
            return
        for slot in range(self._count):
            chosen = np.flatnonzero(targets == slot)
            if len(chosen):
                times, tokens = [None if each is None else taken(each, chosen) for each in (stamps, sent)]
                encoded = self._codec.encode_column(taken(column, chosen), times, tokens, key_at)
                self._exchange.send(slot, self._edge_at, *encoded)

    def _send_all(self, slots: Iterable[int], records: Records) -> None:
        with self._named("input"):
            if records.column is not None and self._codec.serializer is not None:
                encoded = self._codec.encode_column(records.column, records.stamp_column, None)
            else:
                encoded = self._codec.encode(records.batch())
        for slot in slots:
            self._exchange.send(slot, self._edge_at, *encoded)

    def _send(self, slot: int, values: Any, timestamps: Any, keys: Any) -> None:
        with self._named("input"):
            encoded = self._codec.encode(Batch(values, timestamps, keys))
        self._exchange.send(slot, self._edge_at, *encoded)

    @contextmanager
    def _named(self, what: str) -> Iterator[None]:
        """Lets failures of the user's code on the edge say where it is."""
        vertex = self._exchange.vertex
        try:
            yield
        except Exception as exc:
            raise OperatorFailed(FailureInfo.of(exc, f"{what} of {vertex.name}", vertex.uid)) from exc


def _select_key(edge: Edge) -> Callable[[Any], Any]:
    """The key selector of an edge as a plain callable."""
    selector = edge.key_selector
    assert selector is not None
    return key_function(selector)


def slot_lost(slot: int) -> SlotLostError:
    """What a task says when the connection to a slot breaks."""
    return SlotLostError(f"Slot {slot} is gone: its process died or its machine is unreachable.", slot=slot)
