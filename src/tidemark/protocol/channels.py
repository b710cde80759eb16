"""What travels on the channels of continuous execution: from a task to one subtask of one slot vertex, and back.

Every frame has exactly one answer, and nothing comes unasked. Sequence numbers run for the whole attempt.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

__all__ = ["ChannelAnswer", "ChannelHeader", "FrameKind"]


class FrameKind(IntEnum):
    """What a frame of a channel is."""

    RECORDS = 0
    TOUCH = 1
    """No records: time has moved, a timer may be due, or a source function may have something."""
    BARRIER = 2
    """The body is the pickled `CutRequest`; answered at once, before the channels are aligned."""


class ChannelHeader(NamedTuple):
    """Header of a frame of a channel; see `slot.gate` for what becomes of it."""

    kind: int
    vertex: int
    edge: int
    channel: int
    """The task."""
    sequence: int
    attempt: int
    watermark: int
    """How far event time has come on this channel."""
    idle: bool
    """Whether the channel expects nothing for now and holds no watermark back."""
    flags: int
    """Of the records, for their codec."""
    wait_ms: int = 0
    """How long a source function may let us wait for its next element."""


class ChannelAnswer(NamedTuple):
    """Header of an answer; the body holds the sections one after the other."""

    kind: str
    """"ok", or "error" with the pickled failure as the body."""
    timer: int | None = None
    """When the subtask's next processing-time timer is due."""
    watermark: int = 0
    """How far event time has come behind the subtask."""
    idle: bool = False
    sections: Any = ()
    """(tag, flags, size) of each stream of records."""
    status: Any = None
    """Of a source function (`SourceOperator.status`)."""
