"""How long user code may take to return once the job does not want it any more."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, TypeVar

from tidemark.config import Configuration, Options

__all__ = ["Cancellation", "wait_for", "wait_for_all"]

T = TypeVar("T")

TICK_S = 0.05
"""How often somebody who waits looks up; a result that comes wakes him at once."""


def wait_for(future: Future[T], while_waiting: Callable[[], None]) -> T:
    """The result of `future`, calling `while_waiting` every now and then until it is there.

    Raises:
        BaseException: What the future failed with, or what `while_waiting` raised; the wait is then over, but
            whatever was waited for goes on.
    """
    wait_for_all([future], while_waiting)
    return future.result()


def wait_for_all(futures: Iterable[Future[Any]], while_waiting: Callable[[], None]) -> None:
    """Wait until all are done, however they end; see `wait_for`."""
    waiting = list(futures)
    while waiting := list(wait(waiting, TICK_S).not_done):
        while_waiting()


@dataclass(frozen=True, slots=True)
class Cancellation:
    """Patience with user code at the end of an attempt (`task.cancellation.*`).

    Attributes:
        timeout_s: After this it is left behind, or its process killed; 0 waits for ever.
        interval_s: How often the log says where it hangs until then.
    """

    timeout_s: float = 180.0
    interval_s: float = 30.0

    @classmethod
    def of(cls, configuration: Configuration) -> Cancellation:
        """As configured."""
        return cls(
            configuration.get(Options.TASK_CANCELLATION_TIMEOUT) / 1000,
            configuration.get(Options.TASK_CANCELLATION_INTERVAL) / 1000,
        )

    def settled(
        self,
        futures: Iterable[Future[Any]],
        while_waiting: Callable[[], None],
        complain: Callable[[float], None],
    ) -> bool:
        """Wait for all of them; False if they are not done in time.

        Args:
            futures: What must end; how it ends does not matter.
            while_waiting: Called in between; what it raises ends the wait.
            complain: Called once per interval with the seconds that have passed.
        """
        waiting = list(futures)
        started = time.monotonic()
        complaints = 0
        while waiting:
            waiting = list(wait(waiting, TICK_S).not_done)
            passed = time.monotonic() - started
            if not waiting:
                break
            if self.timeout_s and passed >= self.timeout_s:
                return False
            if self.interval_s and passed >= (complaints + 1) * self.interval_s:
                complaints += 1
                complain(passed)
            while_waiting()
        return True
