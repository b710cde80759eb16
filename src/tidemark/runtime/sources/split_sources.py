"""Which `SplitSource` is behind a source: the user's own, or the one that reads for a connector."""

from __future__ import annotations

from typing import Any

from tidemark.api.connectors.kafka.source import KafkaSource
from tidemark.api.specs import KafkaSourceSpec, SplitSourceSpec
from tidemark.api.split_source import SplitSource
from tidemark.runtime.sources.kafka_splits import KafkaSplits

__all__ = ["split_source_of"]


def split_source_of(spec: SplitSourceSpec) -> SplitSource[Any]:
    """What enumerates the splits of a source and opens readers for them."""
    source = spec.source
    if isinstance(spec, KafkaSourceSpec) and isinstance(source, KafkaSource):
        return KafkaSplits(source, spec.timeout_ms)
    assert isinstance(source, SplitSource)
    return source
