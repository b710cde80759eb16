"""How many queries there were and how long they took. Kept on demand, off by default."""

from __future__ import annotations

import threading
from dataclasses import dataclass

__all__ = ["QueryStatistics", "QuerySummary"]

_WINDOW = 2048
"""Latencies remembered; percentiles are those of the most recent queries."""


@dataclass(frozen=True, slots=True)
class QuerySummary:
    """Figures at one moment. Latencies are in milliseconds, of recent queries, None before the first."""

    queries: int
    keys: int
    failures: int
    p50_ms: float | None
    p99_ms: float | None


class QueryStatistics:
    """Counts queries. Thread-safe; does nothing until `enable`."""

    def __init__(self, *, enabled: bool = False) -> None:
        """Start from zero."""
        self._lock = threading.Lock()
        self._enabled = enabled
        self._queries = self._keys = self._failures = 0
        self._latencies: list[float] = []

    def enable(self) -> None:
        """Count from now on."""
        self._enabled = True

    def record(self, seconds: float, keys: int, *, failed: bool = False) -> None:
        """Take note of one answered query."""
        if not self._enabled:
            return
        with self._lock:
            if len(self._latencies) < _WINDOW:
                self._latencies.append(seconds)
            else:
                self._latencies[self._queries % _WINDOW] = seconds
            self._queries += 1
            self._keys += keys
            self._failures += failed

    def summary(self) -> QuerySummary:
        """The figures now."""
        with self._lock:
            ordered = sorted(self._latencies)
            return QuerySummary(
                self._queries,
                self._keys,
                self._failures,
                _percentile(ordered, 0.5),
                _percentile(ordered, 0.99),
            )

    def figures(self) -> dict[str, float]:
        """The figures as metrics, by Flink's names where it has them; none while nothing is counted."""
        if not self._enabled:
            return {}
        now = self.summary()
        return {
            "numRequests": now.queries,
            "numFailedRequests": now.failures,
            "numSuccessfulRequests": now.queries - now.failures,
            "numKeys": now.keys,
            **({} if now.p50_ms is None else {"requestDurationP50Ms": round(now.p50_ms, 3)}),
            **({} if now.p99_ms is None else {"requestDurationP99Ms": round(now.p99_ms, 3)}),
        }


def _percentile(ordered: list[float], share: float) -> float | None:
    return 1000 * ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else None
