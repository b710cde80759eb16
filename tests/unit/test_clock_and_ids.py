from __future__ import annotations

import pickle
import time

import pytest

from tidemark.clock import Clock, ManualClock, SystemClock, has_passed
from tidemark.ids import JobID, new_job_id


def test_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock(start_ms=5)

    clock.advance(10)
    assert clock.now() == 15

    clock.set(3)
    assert clock.now() == 3


def test_manual_clock_does_not_advance_backwards() -> None:
    with pytest.raises(ValueError, match="Use set"):
        ManualClock().advance(-1)


def test_a_time_span_is_over_at_its_end_and_when_the_clock_was_set_back_behind_its_beginning() -> None:
    assert [now for now in range(20) if has_passed(5, since=10, now=now)] == [*range(10), *range(15, 20)]
    assert has_passed(0, since=10, now=10)


def test_pickled_manual_clock_keeps_its_reading_and_moves_on_its_own() -> None:
    clock = ManualClock()

    copy = pickle.loads(pickle.dumps(clock))
    copy.advance(7)

    assert (clock.now(), copy.now()) == (0, 7)


def test_system_clock_reads_the_wall_clock_in_milliseconds() -> None:
    before = int(time.time() * 1000)

    assert before <= SystemClock().now() <= before + 60_000
    assert isinstance(SystemClock(), Clock)


def test_job_ids_are_random_strings_of_32_hex_digits() -> None:
    first, second = new_job_id(), new_job_id()

    assert first != second
    assert isinstance(first, str)
    assert JobID(first) == first
    assert pickle.loads(pickle.dumps(first)) == first


@pytest.mark.parametrize("text", ["", "abc", "G" * 32, "A" * 32, "a" * 33, "a" * 32 + "\n"])
def test_other_text_is_no_job_id(text: str) -> None:
    with pytest.raises(ValueError, match="not a job id"):
        JobID(text)
