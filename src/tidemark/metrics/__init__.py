"""Numbers about a running job: instruments, the groups users see, and the registry behind them."""

from __future__ import annotations

from tidemark.metrics.instruments import Counter, Distribution, Gauge, Meter
from tidemark.metrics.registry import MetricGroup, MetricRegistry

__all__ = ["Counter", "Distribution", "Gauge", "Meter", "MetricGroup", "MetricRegistry"]
