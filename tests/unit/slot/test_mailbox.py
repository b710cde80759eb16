"""Who keeps a slot from going on, and for how long."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tidemark.slot.mailbox import Mailbox

DEADLINE = 60


@contextmanager
def held_by_another(lock: threading.RLock, until: threading.Event) -> Iterator[None]:
    has_it = threading.Event()

    def hold() -> None:
        with lock:
            has_it.set()
            until.wait(DEADLINE)

    thread = threading.Thread(target=hold)
    thread.start()
    assert has_it.wait(DEADLINE)
    yield
    until.set()
    thread.join(DEADLINE)


def test_nobody_keeps_a_slot_whose_lock_is_free() -> None:
    assert Mailbox(threading.RLock()).silent_for() == 0


def test_whoever_keeps_the_lock_has_been_silent_since_the_last_look() -> None:
    lock = threading.RLock()
    mailbox = Mailbox(lock)
    made = time.monotonic()

    with held_by_another(lock, threading.Event()):
        said = mailbox.silent_for()

    assert 0 < said <= time.monotonic() - made


class TakenForAMoment:
    """A lock that is free for whoever has the patience of a moment."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        return blocking and 0 < timeout < 1

    def release(self) -> None:
        pass


def test_whoever_has_the_lock_for_a_moment_keeps_nobody() -> None:
    lock: Any = TakenForAMoment()

    assert Mailbox(lock).silent_for() == 0
