"""How late barriers come to operators, and how long operators wait for the last one."""

from __future__ import annotations

import pytest

from tidemark.slot import alignment
from tidemark.slot.alignment import Alignment


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(alignment.time, "perf_counter", lambda: now[0])
    return now


def test_the_first_barrier_begins_and_the_last_one_ends(clock):
    times = Alignment()
    times.begin("a", 1, 30)
    clock[0] = 0.2
    times.begin("a", 1, 230)
    times.begin("b", 1, 240)
    clock[0] = 0.5
    times.end("a", 1)
    times.end("b", 1)

    taken = times.take(1)

    assert {uid: (one.start_delay_ms, one.alignment_ms) for uid, one in taken.items()} == {
        "a": (30, 500),
        "b": (240, 300),
    }
    assert times.take(1) == {}, "told once"


def test_clocks_that_differ_do_not_make_a_barrier_come_before_its_trigger(clock):
    times = Alignment()
    times.begin("a", 1, -40)
    times.end("a", 1)

    assert times.take(1)["a"].start_delay_ms == 0


def test_a_checkpoint_that_is_given_up_leaves_nothing(clock):
    times = Alignment()
    times.begin("a", 1, 0)

    assert times.take(1) == {}
    with pytest.raises(KeyError):
        times.end("a", 1)
