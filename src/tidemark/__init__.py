"""Stateful stream processing for Python on Spark, with Flink's state and fault tolerance."""

from __future__ import annotations

__version__ = "0.1.0"
