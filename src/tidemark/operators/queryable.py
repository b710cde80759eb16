"""`KeyedStream.as_queryable_state`: a sink whose only effect is state that clients can read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidemark.errors import ConfigError
from tidemark.operators.base import Output
from tidemark.operators.keyed_operator import KeyedOperator
from tidemark.protocol.batch import Batch
from tidemark.state.descriptors import (
    AggregatingStateDescriptor,
    FoldingStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)

if TYPE_CHECKING:
    from tidemark.types.typeinfo import TypeInformation

__all__ = ["QueryableStateOperator"]


class QueryableStateOperator(KeyedOperator):
    """Updates a state of the record's key with every record; emits nothing."""

    def __init__(
        self, descriptor: StateDescriptor, query_name: str, key_type: TypeInformation | None
    ) -> None:
        """Keep the records in a state.

        Raises:
            TypeError: The descriptor is of a kind that would grow for ever.
        """
        accepted = (
            ValueStateDescriptor,
            ReducingStateDescriptor,
            AggregatingStateDescriptor,
            FoldingStateDescriptor,
        )
        if not isinstance(descriptor, accepted):
            raise TypeError(
                f"as_queryable_state needs a value, reducing, aggregating or folding state: {descriptor!r}."
            )
        super().__init__([], key_type)
        if not descriptor.is_queryable():
            descriptor.set_queryable(query_name)
        elif descriptor.get_queryable_state_name() != query_name:
            raise ConfigError(
                f"State '{descriptor.name}' is queryable as '{descriptor.get_queryable_state_name()}' and "
                f"cannot also be published as '{query_name}'."
            )
        self._descriptor = descriptor

    def _register_states(self) -> None:
        handle: Any = self.keyed_state(self._descriptor)
        self._update = handle.update if isinstance(self._descriptor, ValueStateDescriptor) else handle.add

    def _process(self, input_index: int, batch: Batch, out: Output) -> None:
        update, keys = self._observed(self._update), self._keys
        assert batch.keys is not None
        for keys.token, value in zip(batch.keys, batch.values):  # noqa: B905
            update(value)
