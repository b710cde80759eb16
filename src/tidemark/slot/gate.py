"""The input gate of one subtask in continuous execution: barriers, alignment and event time of its channels. Pure.

Every task is one channel, and every task sends every barrier, in the same order. Under exactly once a channel that
has delivered barrier k is held back until all channels have: then the subtask is cut, and nothing behind
the barrier is in the cut. Under at least once nothing is held back, and what is behind the barrier may be in it.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidemark.errors import StaleChannelError
from tidemark.protocol.batch import MIN_WATERMARK

__all__ = ["Gate"]


class Gate:
    """Follows the channels of one subtask.

    Attributes:
        aligned: Whether channels are held back behind a barrier.
        watermark: How far event time has come here; never goes back.
        idle: Whether every channel that could move it is idle.
        held_back: How many frames had to wait behind a barrier.
    """

    def __init__(self, channels: Iterable[int], *, aligned: bool, watermark: int = MIN_WATERMARK) -> None:
        """Start an attempt.

        Args:
            channels: The tasks that send here. One that never has records says that its time is over.
            aligned: Whether channels are held back behind a barrier (exactly once).
            watermark: Where the cut stood that the subtask is restored from.
        """
        self._channels = frozenset(channels)
        self.aligned = aligned
        self._arrived: dict[int, set[int]] = {}
        """Checkpoints in the making -> channels that have delivered their barrier."""
        self._newest = dict.fromkeys(self._channels, 0)
        """Channel -> the last barrier it has delivered."""
        self._given_up: set[int] = set()
        self._sequence = dict.fromkeys(self._channels, 0)
        self._marks = dict.fromkeys(self._channels, (MIN_WATERMARK, False))
        self.watermark = watermark
        self.idle = False
        self.held_back = 0
        self._held = dict.fromkeys(self._channels, -1)
        """Channel -> the last frame that had to wait."""

    @property
    def aligning(self) -> bool:
        """Whether some channels have delivered a barrier that others have not."""
        return bool(self._arrived)

    def behind(self, channel: int) -> int | None:
        """The newest barrier the channel has delivered, if the subtask is not cut for it yet."""
        newest = self._newest[channel]
        return newest if newest in self._arrived else None

    def holds(self, channel: int) -> bool:
        """Whether frames of the channel have to wait."""
        return self.aligned and any(channel in arrived for arrived in self._arrived.values())

    def note_held(self, channel: int, sequence: int) -> None:
        """A frame has to wait; it counts once, however often it is offered."""
        if self._held[channel] != sequence:
            self._held[channel] = sequence
            self.held_back += 1

    def enter(self, channel: int, sequence: int) -> None:
        """Take the number of a frame that is about to be processed.

        Raises:
            StaleChannelError: It is not the next one of its channel: a Spark task was started a second time.
        """
        expected = self._sequence.get(channel)
        if expected is None:
            raise StaleChannelError(f"Task {channel} is not one of this attempt's; its frame was refused.")
        if sequence != expected:
            raise StaleChannelError(
                f"Frame {sequence} of task {channel} came where {expected} was expected: a Spark task was retried. "
                "The attempt fails and the job restores its last checkpoint."
            )
        self._sequence[channel] = expected + 1

    def barrier(self, channel: int, checkpoint_id: int) -> bool:
        """A barrier came; True if it was the last one missing and the subtask has to be cut now.

        Raises:
            StaleChannelError: The channel has already delivered it, or a later one.
        """
        if checkpoint_id <= self._newest[channel]:
            raise StaleChannelError(
                f"Barrier {checkpoint_id} of task {channel} came behind barrier {self._newest[channel]}."
            )
        self._newest[channel] = checkpoint_id
        given_up = checkpoint_id in self._given_up
        if self._given_up:
            self._forget_passed()
        if given_up:
            return False
        arrived = self._arrived.setdefault(checkpoint_id, set())
        arrived.add(channel)
        if arrived != self._channels:
            return False
        del self._arrived[checkpoint_id]
        return True

    def abort(self, checkpoint_id: int) -> None:
        """The checkpoint was given up; its barriers that are still on their way mean nothing."""
        self._arrived.pop(checkpoint_id, None)
        if any(newest < checkpoint_id for newest in self._newest.values()):
            self._given_up.add(checkpoint_id)

    def advance(self, channel: int, watermark: int, idle: bool) -> bool:
        """A frame says how far its channel is; True if the watermark of the subtask has risen."""
        known, _ = self._marks[channel]
        self._marks[channel] = (max(known, watermark), idle)
        marks = self._marks.values()
        active = [mark for mark, is_idle in marks if not is_idle]
        self.idle = not active
        reached = min(active) if active else max(mark for mark, _ in marks)
        if reached <= self.watermark:
            return False
        self.watermark = reached
        return True

    def _forget_passed(self) -> None:
        """Barriers that no channel can deliver any more; a task may have been spared one that was given up."""
        slowest = min(self._newest.values())
        self._given_up = {given for given in self._given_up if given > slowest}
