"""Streams."""

from __future__ import annotations

from tidemark.api.cache import CachedDataStream
from tidemark.api.collect import CloseableIterator
from tidemark.api.connected import (
    BroadcastConnectedStream,
    BroadcastStream,
    ConnectedStreams,
)
from tidemark.api.iteration import IterativeStream
from tidemark.api.keyed_stream import (
    KeyedStream,
    QueryableStateStream,
)
from tidemark.api.sink import DataStreamSink
from tidemark.api.stream import DataStream
from tidemark.api.windowed import (
    AllWindowedStream,
    WindowedStream,
)

__all__ = [
    "AllWindowedStream",
    "BroadcastConnectedStream",
    "BroadcastStream",
    "CachedDataStream",
    "CloseableIterator",
    "ConnectedStreams",
    "DataStream",
    "DataStreamSink",
    "IterativeStream",
    "KeyedStream",
    "QueryableStateStream",
    "WindowedStream",
]
