"""Operators of one's own, for `transform`, and the raw state they may keep."""

from __future__ import annotations

from tidemark.api.raw_state import (
    KeyedStateCheckpointOutputStream,
    KeyGroupStatePartitionStreamProvider,
    OperatorStateCheckpointOutputStream,
    StateInitializationContext,
    StatePartitionStreamProvider,
    StateSnapshotContext,
)
from tidemark.api.stream_operator import (
    InternalTimer,
    OneInputStreamOperator,
    OperatorOutput,
    StreamOperator,
    StreamRecord,
    TwoInputStreamOperator,
    Watermark,
)

__all__ = [
    "InternalTimer",
    "KeyGroupStatePartitionStreamProvider",
    "KeyedStateCheckpointOutputStream",
    "OneInputStreamOperator",
    "OperatorOutput",
    "OperatorStateCheckpointOutputStream",
    "StateInitializationContext",
    "StatePartitionStreamProvider",
    "StateSnapshotContext",
    "StreamOperator",
    "StreamRecord",
    "TwoInputStreamOperator",
    "Watermark",
]
