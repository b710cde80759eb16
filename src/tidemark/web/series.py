"""Curves of the last ten minutes: a ring of samples, one a second. Thread-safe."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from itertools import pairwise

from tidemark.web.facts import Series

__all__ = ["Sample", "SeriesRing"]

_KEPT = 600
_STEP_MS = 1000


@dataclass(frozen=True, slots=True)
class Sample:
    """Where a job stands at one moment."""

    at: int
    records_in: int
    records_out: int
    """To sinks."""
    latency_ms: float | None
    checkpoint_duration_ms: int | None
    checkpoint_bytes: int | None


class SeriesRing:
    """The samples of one job."""

    def __init__(self) -> None:
        """There are none."""
        self._lock = threading.Lock()
        self._samples: deque[Sample] = deque(maxlen=_KEPT + 1)

    def add(self, sample: Sample) -> None:
        """Take a sample; one that comes too early is left out, so that several servers may ask for them."""
        with self._lock:
            if not self._samples or sample.at - self._samples[-1].at >= _STEP_MS // 2:
                self._samples.append(sample)

    def rates(self) -> tuple[float, float]:
        """Records in and out per second over the last few samples."""
        with self._lock:
            recent = list(self._samples)[-5:]
        return _rates(recent[0], recent[-1]) if len(recent) > 1 else (0.0, 0.0)

    def series(self) -> Series:
        """The curves; there is one point less than samples."""
        with self._lock:
            samples = list(self._samples)
        rates = [_rates(before, after) for before, after in pairwise(samples)]
        points = samples[1:]
        return Series(
            _STEP_MS,
            tuple([sample.at for sample in points]),
            tuple([rate[0] for rate in rates]),
            tuple([rate[1] for rate in rates]),
            tuple([sample.latency_ms for sample in points]),
            tuple([sample.checkpoint_duration_ms for sample in points]),
            tuple([sample.checkpoint_bytes for sample in points]),
        )


def _rates(before: Sample, after: Sample) -> tuple[float, float]:
    seconds = max(after.at - before.at, 1) / 1000
    return (
        round((after.records_in - before.records_in) / seconds, 1),
        round((after.records_out - before.records_out) / seconds, 1),
    )
