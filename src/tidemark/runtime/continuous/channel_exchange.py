"""The channels of one task to the subtasks of one slot vertex: frames queue, one is in flight per subtask.

Nothing here waits. What cannot be sent yet stays in the queue of its subtask, in order; the task reads no more
input while a queue is not empty, so what piles up is what one read has caused.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from tidemark.plan.vertex import Vertex
from tidemark.protocol.channels import ChannelAnswer, ChannelHeader, FrameKind
from tidemark.protocol.failure import OperatorFailed
from tidemark.protocol.frames import EMPTY
from tidemark.runtime.continuous.latency import LatencyProbe
from tidemark.runtime.exchange import SlotAnswers, slot_lost
from tidemark.runtime.records import Records
from tidemark.runtime.watermarks import Mark
from tidemark.wire import WireClosed

__all__ = ["ChannelExchange", "ChannelLink", "ChannelOwner"]


class ChannelLink(Protocol):
    """A connection to one slot for one vertex: a socket, or a direct call in the local engine."""

    def send(self, header: Any, body: Any = b"") -> None:
        """Send one frame."""

    def poll(self) -> tuple[Any, Any] | None:
        """The answer to the frame in flight, if it has come."""

    def fileno(self) -> int:
        """What a selector waits for while a frame is in flight."""

    def close(self) -> None:
        """Let go of it."""


class ChannelOwner(Protocol):
    """What an exchange needs of its task.

    Attributes:
        latency: Follows some of the records the task has read.
    """

    latency: LatencyProbe

    def claim(self, vertex: int) -> Mark:
        """How far event time may be said to have come towards a vertex."""

    def emit(self, vertex_id: int, tag: str | None, records: Records) -> None:
        """Take what a slot has answered."""

    def answered(self, vertex: int, slot: int, answer: ChannelAnswer) -> None:
        """Everything of an answer has been emitted."""


class _Frame(NamedTuple):
    kind: FrameKind
    edge: int
    flags: int
    body: Any
    wait_ms: int
    claim: Mark
    """As of the moment the frame was made: a later one may have overtaken its records."""
    followed: bool = False
    """Whether its records are those whose latency is taken."""


@dataclass(slots=True)
class _Channel:
    """To one subtask."""

    link: ChannelLink
    queue: deque[_Frame] = field(default_factory=deque)
    in_flight: FrameKind | None = None
    followed: bool = False
    """Whether the frame in flight is."""
    sequence: int = 0
    claimed: Mark | None = None
    """What the subtask was told last."""
    wanted: bool = False
    """Whether it is to be touched when nothing else is sent."""


class ChannelExchange:
    """Sends the frames of one task to one slot vertex."""

    def __init__(
        self,
        owner: ChannelOwner,
        vertex: Vertex,
        task: int,
        attempt: int,
        slots: list[int],
        connect: Callable[[int], ChannelLink],
    ) -> None:
        """Connect at once: a barrier goes to every subtask.

        Args:
            owner: The task.
            vertex: The slot vertex.
            task: Number of the task, which is that of the channel.
            attempt: Of the job.
            slots: Subtasks this task has a channel to.
            connect: Makes the link to a slot.
        """
        self._owner = owner
        self.vertex = vertex
        self._task = task
        self._attempt = attempt
        self._answers = SlotAnswers(vertex)
        self._channels: dict[int, _Channel] = {}
        for slot in slots:
            try:
                self._channels[slot] = _Channel(connect(slot))
            except WireClosed as exc:
                raise slot_lost(slot) from exc

    @property
    def backlogged(self) -> bool:
        """Whether something could not be sent yet."""
        return any(channel.queue for channel in self._channels.values())

    @property
    def under_way(self) -> bool:
        """Whether something was sent or is to be sent that has not been answered."""
        return any(channel.in_flight is not None or channel.queue for channel in self._channels.values())

    def waiting(self) -> list[ChannelLink]:
        """Links on which an answer will come."""
        return [channel.link for channel in self._channels.values() if channel.in_flight is not None]

    def send(self, slot: int, edge_at: int, flags: int, body: Any) -> None:
        """Send records to a subtask, behind everything sent to it before."""
        frame = self._frame(FrameKind.RECORDS, edge_at, flags, body)
        self._enqueue(slot, frame._replace(followed=True) if self._owner.latency.sent() else frame)

    def barrier(self, request: bytes) -> None:
        """Send a barrier to every subtask; nothing may be under way."""
        for slot in self._channels:
            self._enqueue(slot, self._frame(FrameKind.BARRIER, 0, EMPTY, request))

    def touch(self, slot: int) -> None:
        """Let what is due in a subtask fire, with the next frame or with one without records."""
        self._channels[slot].wanted = True
        self._send_next(slot)

    def pull(self, slot: int, wait_ms: int) -> None:
        """Ask a source function for what it has, if it was not asked already; it may wait a little for more."""
        channel = self._channels[slot]
        if channel.in_flight is None and not channel.queue:
            self._enqueue(slot, self._frame(FrameKind.TOUCH, 0, EMPTY, b"", wait_ms))

    def advance(self) -> None:
        """Tell subtasks what they have not been told of event time."""
        claim = self._owner.claim(self.vertex.id)
        for slot, channel in self._channels.items():
            if channel.claimed != claim:
                self.touch(slot)

    def poll(self) -> bool:
        """Take the answers that have come, and send what waited for them.

        Returns:
            Whether anything came of it; a touch that moved nothing does not count.

        Raises:
            SlotLostError: The process of a slot is gone.
            OperatorFailed: A frame made its operator fail, or the answer one behind it.
        """
        came = False
        for slot, channel in self._channels.items():
            if channel.in_flight is None:
                continue
            try:
                answer = channel.link.poll()
            except WireClosed as exc:
                raise slot_lost(slot) from exc
            if answer is not None:
                came |= channel.in_flight is not FrameKind.TOUCH
                channel.in_flight = None
                came |= self._take(slot, channel.followed, *answer)
                self._send_next(slot)
        return came

    def close(self) -> None:
        """Let go of the links."""
        for channel in self._channels.values():
            channel.link.close()

    def _take(self, slot: int, followed: bool, raw: Any, body: Any) -> bool:
        """Pass an answer on; whether it had records."""
        answer = ChannelAnswer(*raw)
        if answer.kind == "error":
            raise OperatorFailed(pickle.loads(body))
        latency = self._owner.latency
        if followed:
            latency.resume()
        for tag, records in self._answers.records(answer.sections, body, slot):
            self._owner.emit(self.vertex.id, tag, records)
        if followed:
            latency.answered()
        self._owner.answered(self.vertex.id, slot, answer)
        return bool(answer.sections)

    def _frame(self, kind: FrameKind, edge: int, flags: int, body: Any, wait_ms: int = 0) -> _Frame:
        return _Frame(kind, edge, flags, body, wait_ms, self._owner.claim(self.vertex.id))

    def _enqueue(self, slot: int, frame: _Frame) -> None:
        self._channels[slot].queue.append(frame)
        self._send_next(slot)

    def _send_next(self, slot: int) -> None:
        channel = self._channels[slot]
        if channel.in_flight is not None:
            return
        if channel.queue:
            frame = channel.queue.popleft()
        elif channel.wanted:
            frame = self._frame(FrameKind.TOUCH, 0, EMPTY, b"")
        else:
            return
        channel.wanted = False
        claim = channel.claimed = frame.claim
        header = ChannelHeader(
            frame.kind,
            self.vertex.id,
            frame.edge,
            self._task,
            channel.sequence,
            self._attempt,
            claim.time,
            claim.idle,
            frame.flags,
            frame.wait_ms,
        )
        channel.sequence += 1
        channel.in_flight = frame.kind
        channel.followed = frame.followed
        try:
            channel.link.send(header, frame.body)
        except WireClosed as exc:
            raise slot_lost(slot) from exc
