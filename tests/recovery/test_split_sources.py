"""`SplitSource`s of the user in epochs: exact over crashes and changes of parallelism, watermarks per split."""

from __future__ import annotations

import pytest
from tests.recovery.local_jobs import Count, board, finals, local_env, new_board

from tidemark import (
    MapFunction,
    RestartStrategies,
    Split,
    SplitReader,
    SplitSource,
    Types,
    WatermarkStrategy,
)

SPLITS, PER_SPLIT = 5, 60
TOTAL = SPLITS * PER_SPLIT


class Slice(SplitReader):
    """The numbers of one split in steps of SPLITS, a few at a time."""

    def __init__(self, source, split, position):
        self.source, self.first = source, split.data["first"]
        self.next = 0 if position is None else position["next"]
        board(source.board_name).note("open", split.id, self.next)

    def read(self, max_records, timeout_ms):
        if self.next >= PER_SPLIT:
            return None if self.source.bounded or self.next >= self.source.end else []
        first, self.next = self.next, min(PER_SPLIT, self.next + min(max_records, 7))
        return [self.first + SPLITS * n for n in range(first, self.next)]

    def position(self):
        return {"next": self.next}

    def timestamps(self):
        return None

    def close(self):
        board(self.source.board_name).note("close")


class Numbers(SplitSource):
    """0 to TOTAL - 1 in SPLITS splits."""

    bounded = True
    end = PER_SPLIT

    def __init__(self, board_name, type_info=None):
        self.board_name, self.type_info = board_name, type_info

    def enumerate(self):
        board(self.board_name).note("enumerate")
        return [Split(f"part-{n}", {"first": n}) for n in range(SPLITS)]

    def open(self, split, position):
        return Slice(self, split, position)

    def notify_checkpoint_complete(self, checkpoint_id, positions):
        board(self.board_name).note("complete", checkpoint_id, positions)

    def close(self):
        board(self.board_name).note("driver closes")

    def get_produced_type(self):
        return self.type_info


class Flaky(MapFunction):
    """Fails at some numbers, once each."""

    def __init__(self, board_name, numbers):
        self.board_name, self.numbers = board_name, numbers

    def map(self, value):
        seen = board(self.board_name)
        if value in self.numbers and value not in seen.values:
            seen.set(value)
            raise ConnectionError(f"flaky at {value}")
        return value


def counted(env, source, seen, fails_at=()):
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("source")
    flaky = numbers.map(Flaky(seen.name, fails_at), Types.LONG())
    return flaky.key_by(lambda n: n % 7, Types.LONG()).process(Count()).uid("count")


def expected(total=TOTAL):
    return {k: len(range(k, total, 7)) for k in range(7)}


def exact(total=TOTAL):
    return sorted((k, n) for k, count in expected(total).items() for n in range(1, count + 1))


@pytest.fixture(autouse=True)
def _small_epochs(monkeypatch):
    """An epoch reads few records, so that there are many."""
    monkeypatch.setattr("tidemark.runtime.sources.shares._RECORDS", 20)


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_splits_are_counted_exactly_over_crashes(parallelism):
    seen = new_board()
    env = local_env(parallelism=parallelism)
    env.enable_checkpointing(10)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(10, 1))

    pairs = list(counted(env, Numbers(seen.name, Types.LONG()), seen, (70, 150, 293)).execute_and_collect())

    assert {70, 150, 293} <= set(seen.values)
    assert finals(pairs) == expected()
    assert sorted(pairs) == exact()
