"""`DataStream.cache()`: elements of a bounded stream, kept in the driver once a job has computed them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from tidemark.api.collect import CollectBuffer
from tidemark.api.graph import Edge, Graph, Node, NodeKind
from tidemark.api.job import JobExecutionResult
from tidemark.api.specs import CollectionSourceSpec, CollectSinkSpec, FunctionSpec, OperatorKind
from tidemark.api.stream import DataStream
from tidemark.futures import CompletableFuture

__all__ = ["CacheRun", "CachedDataStream", "StreamCache"]


class StreamCache:
    """The kept elements of one node, once a job has computed them."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._content: tuple[list[Any], list[int | None]] | None = None

    def fill(self, values: list[Any], timestamps: list[int | None]) -> None:
        """Keep the elements."""
        self._content = (values, timestamps)

    def clear(self) -> None:
        """Forget the elements; the next job computes them again."""
        self._content = None

    def source(self) -> Node | None:
        """A source that stands for the node, None if the elements are not known."""
        if self._content is None:
            return None
        values, timestamps = self._content
        timed = any(timestamp is not None for timestamp in timestamps)
        return replace(
            self.node,
            kind=NodeKind.SOURCE,
            spec=CollectionSourceSpec(values, timestamps if timed else None),
            inputs=[],
            parallelism=1,
            forced_non_parallel=True,
        )


class CachedDataStream(DataStream):
    """A stream whose elements are kept."""

    def __init__(self, stream: DataStream) -> None:
        """Used by the library only: add a node that passes elements on and can be replaced by a source."""
        spec = FunctionSpec(OperatorKind.FILTER, keep_all)
        node = stream._environment._builder.add(
            NodeKind.OPERATOR, "Cache", spec, [stream._edges], output_type=stream._type
        )
        super().__init__(stream._environment, [Edge(node.id)], stream._type, node)
        self._cache = StreamCache(node)
        stream._environment._caches.append(self._cache)

    def invalidate(self) -> None:
        """Forget the elements; the next job computes them again."""
        self._cache.clear()


def keep_all(value: Any) -> bool:
    """True: every element passes."""
    return True


class CacheRun:
    """What caching adds to one job: sources for what is known, collect sinks for what is not."""

    def __init__(self, caches: list[StreamCache], graph: Graph, sinks: list[int]) -> None:
        nodes = dict(graph.nodes)
        for cache in caches:
            source = cache.source()
            if source is not None:
                nodes[source.id] = source
        reached = Graph(nodes).reachable_to(sinks)
        self._filling = [
            (c, CollectBuffer()) for c in caches if c.node.id in reached.nodes and not c.source()
        ]
        self.graph = reached
        for cache, buffer in self._filling:
            spec = CollectSinkSpec(buffer)
            # The id may be given again later by the environment, but then to a node of another job.
            node = Node(max(reached.nodes) + 1, NodeKind.SINK, "Cache Writer", spec, [Edge(cache.node.id)])
            node.uid = f"cache-writer-{cache.node.id}"
            reached.add(node)

    def finish_with(self, result: CompletableFuture[JobExecutionResult]) -> None:
        """Keep the collected elements if the job succeeds."""
        for cache, buffer in self._filling:
            result.then_accept(partial(_keep, cache, buffer))


def _keep(cache: StreamCache, buffer: CollectBuffer, _result: JobExecutionResult) -> None:
    cache.fill(*buffer.drain())
