"""A source that is aligned with others is not read far ahead of them."""

from __future__ import annotations

from typing import Any

import pytest

from tidemark import (
    Configuration,
    Split,
    SplitReader,
    SplitSource,
    StreamExecutionEnvironment,
    Types,
    WatermarkStrategy,
)

READ: list[tuple[str, int]] = []
"""What the readers of this process have read, in order."""


class Reader(SplitReader[int]):
    def __init__(self, name: str, step: int, position: Any) -> None:
        self.name, self.step, self.next = name, step, position or 0
        self.asked = 0

    def read(self, max_records: int, timeout_ms: int) -> list[int] | None:
        if self.next >= 300:
            return None
        if self.name == "slow":
            self.asked += 1
            if self.asked % 5:
                return []
        READ.append((self.name, self.next * self.step))
        self.next += 1
        return [(self.next - 1) * self.step]

    def position(self) -> Any:
        return self.next

    def close(self) -> None:
        pass


class Steps(SplitSource[int]):
    """Three hundred numbers that grow by `step`."""

    bounded = True

    def __init__(self, name: str, step: int) -> None:
        self.name, self.step = name, step

    def enumerate(self) -> list[Split]:
        return [Split("all")]

    def open(self, split: Split, position: Any | None) -> Reader:
        return Reader(self.name, self.step, position)

    def get_produced_type(self) -> Any:
        return Types.LONG()


def lead_of_the_fast_source(aligned):
    """How far the fast source was ahead of the slow one, which has something every fifth time it is asked."""
    READ.clear()
    configuration = Configuration.from_dict(
        {
            "execution.target": "local",
            "execution.mode": "continuous",
            "pipeline.auto-watermark-interval": "1 ms",
        }
    )
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(1)

    def strategy() -> WatermarkStrategy:
        plain = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value)
        return aligned(plain)

    slow = env.from_source(Steps("slow", 1), strategy(), "slow")
    fast = env.from_source(Steps("fast", 10), strategy(), "fast")
    assert len(list(slow.union(fast).execute_and_collect())) == 600

    furthest = 0
    newest = {"slow": 0, "fast": 0}
    for name, value in READ:
        newest[name] = value
        if newest["slow"] < 299:
            furthest = max(furthest, newest["fast"] - newest["slow"])
    return furthest


@pytest.mark.modes("continuous", reason="epochs do not act on watermark alignment")
def test_a_fast_source_waits_for_the_slow_one_of_its_group():
    furthest = lead_of_the_fast_source(lambda strategy: strategy.with_watermark_alignment("group", 50, 1))

    # The fast one has 2990 when the slow one, asked as often, has 60. What is read between two reports of progress
    # comes on top of the drift of 50.
    assert furthest < 1500


@pytest.mark.modes("continuous", reason="epochs do not act on watermark alignment")
def test_without_alignment_the_same_source_does_not_wait():
    assert lead_of_the_fast_source(lambda strategy: strategy) > 2000
