"""How long records take through a continuous job: a task follows some of what it reads to the end of what it causes."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["LatencyProbe"]


class LatencyProbe:
    """Follows one read at a time: from the task through slots and fused operators until its sinks have everything.

    What waits in state or in a window has arrived, as with Flink's latency markers; rounds of a loop are not followed.

    Attributes:
        following: Whether what is sent now was caused by the read that is followed.
    """

    def __init__(self, clock_s: Callable[[], float]) -> None:
        """Measure with a clock that never goes back."""
        self._clock = clock_s
        self._began: float | None = None
        self._under_way = 0
        self._taken: float | None = None
        self.following = False

    def begin(self) -> None:
        """Records have been read and are about to be pushed; they are followed if no others are."""
        if self._began is None and self._taken is None:
            self._began = self._clock()
            self.following = True

    def pushed(self) -> None:
        """They have been pushed as far as they go without an answer."""
        self.following = False
        self._end_if_done()

    def sent(self) -> bool:
        """A frame of records is made; whether it belongs to those that are followed, as `answered` has to be told."""
        self._under_way += self.following
        return self.following

    def resume(self) -> None:
        """The answer to such a frame is about to be passed on."""
        self.following = True

    def answered(self) -> None:
        """It has been."""
        self._under_way -= 1
        self.pushed()

    def take(self) -> float | None:
        """Milliseconds the last read took, once; until then no other one is followed."""
        taken, self._taken = self._taken, None
        return taken

    def _end_if_done(self) -> None:
        if self._began is not None and not self._under_way:
            self._taken = round((self._clock() - self._began) * 1000, 3)
            self._began = None
