"""Whether a figure that was sampled over time grows. Pure: numbers in, a verdict out.

The samples behind the warm-up are cut into blocks of equal length, and the median of each block is taken, so that
garbage collections, compactions and checkpoints, which are much shorter than a block, are out of it. A figure *grows*
if its blocks rise more often than chance explains (Mann-Kendall, one side, 1 in 100) **and** what it gained over the
whole time (Theil-Sen) is more than the tolerance: a share of its level, and never less than the grain of the figure; as
much as the second half alone would have gained in that time. Without the first condition noise would be called growth,
without the second a page more in an hour, without the last one an allocator that has found its size.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

BLOCKS = 12
CHANCE = 0.01
TOLERANCE = 0.02
"""Share of the level that a figure may gain over the measured time."""


@dataclass(frozen=True, slots=True)
class Trend:
    """How a figure went behind the warm-up."""

    level: float
    """Its median."""
    per_hour: float
    """Its slope."""
    late_per_hour: float
    """The slope of the second half: smaller than the other one if something still warms up."""
    gained: float
    """Slope times measured time."""
    noise: float
    """Half the spread (5 to 95 of 100) of the samples around the fitted line."""
    chance: float
    """How likely blocks without a trend rise so often."""
    grows: bool

    @property
    def verdict(self) -> str:
        return "GROWS" if self.grows else "flat"


def trend(times: Sequence[float], values: Sequence[float], grain: float = 1.0) -> Trend:
    """The trend of samples, in seconds and units of the figure; what belongs to the warm-up is left out before.

    Args:
        times: When the samples were taken, ascending.
        values: The samples.
        grain: What is less than this is no growth: memory comes in arenas, threads come and go.

    Raises:
        ValueError: Fewer samples than blocks.
    """
    if len(values) < BLOCKS:
        raise ValueError(f"{len(values)} samples are too few, {BLOCKS} are needed")
    medians = _blocks(times, values)
    slope = _slope(medians)
    level = statistics.median(values)
    gained = slope * (times[-1] - times[0])
    middle = statistics.median(times)
    rest = sorted(value - level - slope * (time - middle) for time, value in zip(times, values, strict=True))
    noise = (rest[int(len(rest) * 0.95)] - rest[int(len(rest) * 0.05)]) / 2
    chance = _chance_to_rise([value for _, value in medians])
    late = _slope(medians[len(medians) // 2 :])
    tolerated = max(grain, TOLERANCE * level)
    grows = chance < CHANCE and gained > tolerated and late * (times[-1] - times[0]) > tolerated
    return Trend(level, slope * 3600, late * 3600, gained, noise, chance, grows)


def _blocks(times: Sequence[float], values: Sequence[float]) -> list[tuple[float, float]]:
    edges = [len(values) * block // BLOCKS for block in range(BLOCKS + 1)]
    return [
        (statistics.median(times[first:last]), statistics.median(values[first:last]))
        for first, last in pairwise(edges)
    ]


def _slope(points: Sequence[tuple[float, float]]) -> float:
    return statistics.median((b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(points, 2))


def _chance_to_rise(values: Sequence[float]) -> float:
    """One-sided p of Mann-Kendall with the correction for ties; 1 if nothing ever changed."""
    count = len(values)
    rises = sum((b > a) - (b < a) for a, b in combinations(values, 2))
    ties = (values.count(value) for value in set(values))
    variance = (count * (count - 1) * (2 * count + 5) - sum(t * (t - 1) * (2 * t + 5) for t in ties)) / 18
    if variance == 0 or rises <= 0:
        return 1.0
    return 0.5 * math.erfc((rises - 1) / math.sqrt(2 * variance))
