"""Names, ids and parallelism: what can be set on the output of an operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from tidemark.api.functions import ParallelSourceFunction
from tidemark.api.graph import Node
from tidemark.api.specs import FunctionSourceSpec
from tidemark.config.layered import require_whole
from tidemark.config.options import MAX_PARALLELISM_LIMIT
from tidemark.errors import ConfigError, UnsupportedOperationException
from tidemark.types.time import TimeLike, to_millis

if TYPE_CHECKING:
    from tidemark.api.slot_sharing import SlotSharingGroup

__all__ = ["OperatorSettings", "check_parallelism"]


class OperatorSettings:
    """Mixed into streams; every setter returns the stream.

    A stream that is not itself the output of an operator (a union, a repartitioned stream, a side output)
    has nothing to set.
    """

    _node: Node | None

    def name(self, name: str) -> Self:
        """Name the operator, for plans, logs and metrics."""
        self._operator_node("name").name = name
        return self

    def get_name(self) -> str:
        """Name of the operator."""
        return self._operator_node("get_name").name

    def uid(self, uid: str) -> Self:
        """Tie the operator's state to this id across restores; unique in the job.

        Raises:
            ConfigError: The id is empty.
        """
        if not uid:
            raise ConfigError("A uid must not be empty.")
        self._operator_node("uid").uid = uid
        return self

    def set_uid_hash(self, uid_hash: str) -> Self:
        """Use exactly this id for an operator without a uid; 32 hex characters.

        Raises:
            ConfigError: Not 32 hex characters.
        """
        if len(uid_hash) != 32 or any(letter not in "0123456789abcdefABCDEF" for letter in uid_hash):
            raise ConfigError(f"A uid hash has 32 hex characters, not {uid_hash!r}.")
        self._operator_node("set_uid_hash").uid_hash = uid_hash.lower()
        return self

    def set_parallelism(self, parallelism: int) -> Self:
        """Run the operator in that many subtasks.

        Raises:
            ConfigError: Not between 1 and 32768, or the operator cannot run in parallel.
        """
        check_parallelism(self._operator_node("set_parallelism"), parallelism)
        return self

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Set the number of key groups of the operator.

        Raises:
            ConfigError: Not between 1 and 32768.
        """
        require_whole(max_parallelism, "The max parallelism", 1, MAX_PARALLELISM_LIMIT)
        self._operator_node("set_max_parallelism").max_parallelism = max_parallelism
        return self

    def force_non_parallel(self) -> Self:
        """Run the operator in one subtask, for good."""
        node = self._operator_node("force_non_parallel")
        node.parallelism, node.max_parallelism, node.forced_non_parallel = 1, 1, True
        return self

    def set_description(self, description: str) -> Self:
        """Describe the operator, for plans."""
        self._operator_node("set_description").description = description
        return self

    def set_buffer_timeout(self, timeout_millis: TimeLike) -> Self:
        """Accepted for compatibility; has no effect: batches are made by sources, see that of the environment.

        Raises:
            ConfigError: Below -1.
        """
        if to_millis(timeout_millis, "timeout_millis") < -1:
            raise ConfigError(f"A buffer timeout must not be below -1, got {timeout_millis}.")
        self._operator_node("set_buffer_timeout")
        return self

    def start_new_chain(self) -> Self:
        """Accepted for compatibility; has no effect."""
        self._operator_node("start_new_chain")
        return self

    def disable_chaining(self) -> Self:
        """Accepted for compatibility; has no effect."""
        self._operator_node("disable_chaining")
        return self

    def slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> Self:
        """Accepted for compatibility; has no effect."""
        self._operator_node("slot_sharing_group")
        return self

    def _operator_node(self, method: str) -> Node:
        if self._node is None:
            raise UnsupportedOperationException(
                f"{method}() needs the output of an operator; this stream is a union, a partitioning or a "
                "side output. Call it on the operator before."
            )
        return self._node


def check_parallelism(node: Node, parallelism: Any) -> None:
    """Set the parallelism of a node.

    Raises:
        ConfigError: Not between 1 and 32768, or the node cannot run in parallel.
    """
    require_whole(parallelism, "The parallelism", 1, MAX_PARALLELISM_LIMIT)
    if node.forced_non_parallel and parallelism != 1:
        reason = "it was told to with force_non_parallel(), or is a collection"
        if isinstance(node.spec, FunctionSourceSpec):
            reason = f"only a {ParallelSourceFunction.__name__} can run in parallel"
        raise ConfigError(f"'{node.name}' runs in one subtask ({reason}); parallelism {parallelism} refused.")
    node.parallelism = parallelism
