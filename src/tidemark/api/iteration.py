"""Loops in the graph: what the body sends back comes to its head again."""

from __future__ import annotations

from tidemark.api.graph import Edge, NodeKind
from tidemark.api.specs import IterationHeadSpec
from tidemark.api.stream import DataStream
from tidemark.errors import ConfigError, UnsupportedOperationException

__all__ = ["IterativeStream"]


class IterativeStream(DataStream):
    """The head of a loop: the stream it was made from plus everything that is fed back."""

    def __init__(self, stream: DataStream, max_wait_ms: int) -> None:
        """Used by the library only.

        Raises:
            ConfigError: A negative waiting time.
        """
        if max_wait_ms < 0:
            raise ConfigError(f"max_wait_time_millis must not be negative, got {max_wait_ms}.")
        self._spec = IterationHeadSpec(max_wait_ms)
        node = stream._environment._builder.add(
            NodeKind.OPERATOR, "Iteration", self._spec, [stream._edges], output_type=stream._type
        )
        super().__init__(stream._environment, [Edge(node.id)], stream._type, node)

    def close_with(self, feedback_stream: DataStream) -> DataStream:
        """Feed a stream back to the head; it must come out of this loop.

        Raises:
            TypeError: Not a stream, or of another declared type.
            ConfigError: Its parallelism differs from the head's.
            UnsupportedOperationException: The stream does not come out of this loop.
        """
        if not isinstance(feedback_stream, DataStream):
            raise TypeError(f"close_with() needs a DataStream, not {feedback_stream!r}.")
        feedback = feedback_stream._values()
        if self._type is not None and feedback._type is not None and feedback._type != self._type:
            raise TypeError(f"A loop over {self._type} cannot be closed with a stream of {feedback._type}.")
        head = self._operator_node("close_with")
        builder = self._environment._builder
        if head.id not in {node.id for node in builder.upstream_of(feedback._edges)}:
            raise UnsupportedOperationException(
                "close_with() needs a stream that comes out of the loop it closes."
            )
        default = self._environment.get_parallelism()
        for edge in feedback._edges:
            node = builder.graph.nodes[edge.source]
            if (node.parallelism or default) != (head.parallelism or default):
                raise ConfigError(
                    f"The loop head and its feedback '{node.name}' need the same parallelism, not "
                    f"{head.parallelism or default} and {node.parallelism or default}."
                )
        self._spec.feedback.extend((edge.source, edge.tag) for edge in feedback._edges)
        return feedback_stream
