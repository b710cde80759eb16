"""Loops in the graph: what the body sends back comes to its head again."""

from __future__ import annotations

from typing import Any

from tidemark.api.builder import optional_type
from tidemark.api.functions import DeltaFunction, KeySelector
from tidemark.api.graph import Edge, NodeKind
from tidemark.api.keyed_stream import KeyedStream
from tidemark.api.output_tag import OutputTag
from tidemark.api.specs import CHANGED_TAG, RESULT_TAG, DeltaSpec, IterationHeadSpec
from tidemark.api.stream import DataStream, KeyOf
from tidemark.errors import ConfigError, UnsupportedOperationException

__all__ = ["IterativeStream", "delta_iteration"]


class IterativeStream(DataStream):
    """The head of a loop: the stream it was made from plus everything that is fed back."""

    def __init__(self, stream: DataStream, max_wait_ms: int, max_iterations: int | None = None) -> None:
        """Used by the library only.

        Raises:
            ConfigError: A negative waiting time, or no round.
        """
        if max_wait_ms < 0:
            raise ConfigError(f"max_wait_time_millis must not be negative, got {max_wait_ms}.")
        if max_iterations is not None and max_iterations < 1:
            raise ConfigError(f"max_iterations must be positive, got {max_iterations}.")
        self._spec = IterationHeadSpec(max_wait_ms, max_iterations=max_iterations)
        node = stream._environment._builder.add(
            NodeKind.OPERATOR, "Iteration", self._spec, [stream._edges], output_type=stream._type
        )
        super().__init__(stream._environment, [Edge(node.id)], stream._type, node)

    def close_with(
        self, feedback_stream: DataStream, termination_criterion: DataStream | None = None
    ) -> DataStream:
        """Feed a stream back to the head; it must come out of this loop.

        Args:
            feedback_stream: What the next round begins with.
            termination_criterion: A stream out of this loop; a round in which it has no element is the last.
                Only for iterations in rounds.

        Returns:
            `feedback_stream`; for an iteration in rounds what the last one fed back.

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
        self._check_inside(feedback)
        default = self._environment.get_parallelism()
        for edge in feedback._edges:
            node = builder.graph.nodes[edge.source]
            if (node.parallelism or default) != (head.parallelism or default):
                raise ConfigError(
                    f"The loop head and its feedback '{node.name}' need the same parallelism, not "
                    f"{head.parallelism or default} and {node.parallelism or default}."
                )
        self._spec.feedback.extend((edge.source, edge.tag) for edge in feedback._edges)
        if self._spec.max_iterations is None:
            if termination_criterion is not None:
                raise ConfigError("A termination criterion needs iterate(max_iterations=...).")
            return feedback_stream
        if termination_criterion is not None:
            criterion = termination_criterion._values()
            self._check_inside(criterion)
            self._spec.criterion.extend((edge.source, edge.tag) for edge in criterion._edges)
        head.side_types[RESULT_TAG] = self._type
        return DataStream(self._environment, [Edge(head.id, tag=RESULT_TAG)], self._type)

    def _check_inside(self, stream: DataStream) -> None:
        head = self._operator_node("close_with")
        builder = self._environment._builder
        ours = stream._environment is self._environment
        if not ours or head.id not in {node.id for node in builder.upstream_of(stream._edges)}:
            raise UnsupportedOperationException(
                "close_with() needs a stream that comes out of the loop it closes."
            )


def delta_iteration(
    solution: DataStream,
    workset: DataStream,
    max_iterations: int,
    function: DeltaFunction,
    solution_key: KeyOf | KeySelector,
    workset_key: KeyOf | KeySelector,
    key_type: Any,
) -> DataStream:
    """What `DataStream.iterate_delta` builds: the workset goes round, the solution set is keyed state beside it."""
    if not isinstance(function, DeltaFunction):
        raise TypeError(f"iterate_delta() needs a DeltaFunction, not {function!r}.")
    kind = optional_type(key_type)
    loop = IterativeStream(workset, 0, max_iterations)
    inputs = [KeyedStream(loop, workset_key, kind)._edges, KeyedStream(solution, solution_key, kind)._edges]
    node = solution._environment._builder.add(
        NodeKind.OPERATOR,
        "Delta Iteration",
        DeltaSpec(function, solution._type),
        inputs,
        output_type=workset._type,
    )
    more = DataStream(solution._environment, [Edge(node.id)], workset._type, node)
    loop.close_with(more)
    changed = more.get_side_output(OutputTag(CHANGED_TAG, solution._type))
    # The initial elements come before all changes, and of each key the last one counts.
    latest = solution.union(changed).key_by(solution_key, kind)
    return latest.reduce(lambda _old, new: new)
