"""The gate of a subtask: what it holds back, when it lets the subtask be cut, and how far time is."""

from __future__ import annotations

import pytest

from tidemark.errors import StaleChannelError
from tidemark.protocol.batch import MAX_WATERMARK, MIN_WATERMARK
from tidemark.slot.gate import Gate


@pytest.fixture
def gate():
    return Gate(range(3), aligned=True)


def held(gate):
    return [channel for channel in range(3) if gate.holds(channel)]


def test_channels_behind_a_barrier_are_held_until_the_last_one_has_delivered_it(gate):
    assert not gate.barrier(0, 1)
    assert held(gate) == [0]
    assert gate.aligning

    assert not gate.barrier(2, 1)
    assert held(gate) == [0, 2]

    assert gate.barrier(1, 1), "the last one cuts"
    assert held(gate) == []
    assert not gate.aligning


def test_without_alignment_nothing_is_held_but_the_cut_waits_for_the_last_barrier_all_the_same():
    gate = Gate(range(2), aligned=False)

    assert not gate.barrier(0, 1)
    assert not gate.holds(0)
    assert gate.aligning, "timers wait here, too"
    assert gate.barrier(1, 1)


def test_a_single_channel_is_cut_at_once():
    assert Gate([4], aligned=True).barrier(4, 1)


def test_a_channel_that_is_ahead_by_two_barriers_is_held_until_both_are_complete(gate):
    gate.barrier(0, 1)
    gate.barrier(0, 2)
    gate.barrier(1, 1)
    assert gate.barrier(2, 1)
    assert held(gate) == [0], "behind the second barrier"

    gate.barrier(1, 2)
    assert gate.barrier(2, 2)
    assert held(gate) == []


def test_a_barrier_that_was_given_up_releases_its_channels(gate):
    gate.barrier(0, 1)
    gate.abort(1)

    assert held(gate) == []
    assert not gate.barrier(1, 1), "a late barrier means nothing"
    assert not gate.barrier(2, 1)
    assert held(gate) == []


def test_a_barrier_given_up_before_any_came_holds_nobody(gate):
    gate.abort(1)

    assert not gate.barrier(0, 1)
    assert held(gate) == []
    assert not gate.barrier(0, 2)
    assert held(gate) == [0]


def test_giving_up_one_of_two_barriers_leaves_the_other(gate):
    gate.barrier(0, 1)
    gate.barrier(0, 2)
    gate.abort(1)
    assert held(gate) == [0]

    gate.barrier(1, 2)
    assert gate.barrier(2, 2), "tasks 1 and 2 were spared barrier 1"
    assert held(gate) == []


def test_giving_up_a_barrier_that_is_complete_or_unknown_changes_nothing(gate):
    for channel in range(3):
        gate.barrier(channel, 1)
    gate.abort(1)
    gate.abort(7)
    gate.barrier(0, 2)

    assert held(gate) == [0]


def test_a_barrier_in_front_of_one_delivered_before_is_refused(gate):
    gate.barrier(0, 5)

    for stale in (4, 5):
        with pytest.raises(StaleChannelError, match=f"Barrier {stale} of task 0 came behind barrier 5"):
            gate.barrier(0, stale)


def test_barriers_that_tasks_were_spared_are_not_remembered_for_ever(gate):
    for checkpoint in range(1, 50):
        gate.abort(checkpoint)
    for channel in range(3):
        gate.barrier(channel, 50)

    assert not gate._given_up


def test_a_channel_is_behind_its_newest_barrier_until_the_subtask_is_cut_or_the_barrier_given_up(gate):
    assert gate.behind(0) is None

    gate.barrier(0, 1)
    assert [gate.behind(channel) for channel in range(3)] == [1, None, None]

    gate.barrier(1, 1)
    gate.barrier(2, 1)
    assert gate.behind(0) is None, "the subtask is cut"

    gate.barrier(0, 2)
    gate.abort(2)
    assert gate.behind(0) is None


def test_a_frame_that_waits_counts_once_however_often_it_is_offered(gate):
    assert gate.held_back == 0

    for channel, sequence in [(0, 0), (0, 0), (1, 0), (0, 0), (0, 1)]:
        gate.note_held(channel, sequence)

    assert gate.held_back == 3


def test_a_gap_or_a_repetition_in_the_sequence_is_a_retried_task(gate):
    gate.enter(0, 0)
    gate.enter(0, 1)
    for wrong in (0, 1, 3):
        with pytest.raises(StaleChannelError, match="a Spark task was retried"):
            gate.enter(0, wrong)
    gate.enter(1, 0)
    gate.enter(0, 2)


def test_a_task_that_is_none_of_the_attempts_is_refused(gate):
    with pytest.raises(StaleChannelError, match="Task 9"):
        gate.enter(9, 0)


def test_time_is_that_of_the_slowest_channel_and_never_goes_back(gate):
    assert not gate.advance(0, 10, False)
    assert not gate.advance(1, 20, False)
    assert gate.advance(2, 5, False)
    assert gate.watermark == 5
    assert not gate.advance(2, 3, False)
    assert gate.advance(2, 30, False)
    assert gate.watermark == 10


def test_idle_channels_hold_nothing_back(gate):
    gate.advance(0, 10, False)
    gate.advance(1, MIN_WATERMARK, True)
    assert gate.advance(2, 12, False)
    assert gate.watermark == 10
    assert not gate.idle

    assert not gate.advance(1, 4, False), "it is back, and behind: time stands"
    assert gate.watermark == 10


def test_a_subtask_is_not_idle_before_its_channels_have_said_so(gate):
    assert not gate.idle


def test_when_all_are_idle_the_furthest_counts_and_the_subtask_is_idle(gate):
    for channel, mark in enumerate((10, 30, 20)):
        gate.advance(channel, mark, True)

    assert gate.idle
    assert gate.watermark == 30


def test_a_restored_subtask_starts_where_it_stood():
    gate = Gate(range(2), aligned=True, watermark=7)

    assert not gate.advance(0, 5, False)
    assert not gate.advance(1, 5, False)
    assert gate.watermark == 7
    gate.advance(0, MAX_WATERMARK, False)
    assert gate.advance(1, MAX_WATERMARK, False)
    assert gate.watermark == MAX_WATERMARK
