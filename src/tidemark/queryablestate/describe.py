"""Published states as a client sees them: enough to read one without having its descriptor at hand."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

from tidemark.errors import QueryError
from tidemark.queryablestate.protocol import Published
from tidemark.state.descriptors import (
    AggregatingStateDescriptor,
    FoldingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateKind,
    ValueStateDescriptor,
)
from tidemark.state.serializers.base import TypeSerializer
from tidemark.state.serializers.compatibility import load_serializer_snapshot
from tidemark.state.serializers.dataclass import stand_ins
from tidemark.state.snapshot import StateMeta

__all__ = ["StateDescription"]


class _Accumulator:
    """An aggregate function that shows the accumulator itself."""

    def create_accumulator(self) -> None:
        """Not used for reading."""

    def add(self, value: Any, accumulator: Any) -> Any:
        """Not used for reading."""
        return accumulator

    def get_result(self, accumulator: Any) -> Any:
        """The accumulator."""
        return accumulator

    def merge(self, first: Any, second: Any) -> Any:
        """Not used for reading."""
        return first


def _keep(current: Any, _value: Any) -> Any:
    return current


@dataclass(frozen=True, slots=True)
class StateDescription:
    """One published state."""

    name: str
    operator_uid: str
    kind: StateKind
    key_type: str
    value_type: str
    map_key_type: str | None
    max_parallelism: int
    """Number of key groups."""
    _snapshots: tuple[bytes, bytes, bytes]

    @classmethod
    def of(cls, published: Published) -> StateDescription:
        """From the message of the job."""
        signature = published.signature
        return cls(
            published.name,
            published.uid,
            StateKind(signature.kind),
            signature.key,
            signature.value,
            signature.map_key,
            published.max_parallelism,
            published.snapshots,
        )

    def meta(self) -> StateMeta:
        """What a snapshot would say of the state.

        Raises:
            QueryError: A type refers to a class that cannot be imported here.
        """
        if not self._snapshots[0] or not self._snapshots[1]:
            raise self._unreadable(self.value_type if self._snapshots[0] else self.key_type)
        return StateMeta(
            self.name, self.kind, self._snapshots[0], self._snapshots[1], self._snapshots[2] or None
        )

    def key_serializer(self) -> TypeSerializer[Any]:
        """Serializer of the keys; goes where a `key_type_info` is asked for.

        Raises:
            QueryError: The type refers to a class that cannot be imported here.
        """
        return self._restored(0, self.key_type)

    def descriptor(self) -> StateDescriptor:
        """A descriptor for reading; of aggregating state it shows the accumulator.

        For a dataclass that cannot be imported here another one with the same name and fields stands in.

        Raises:
            QueryError: The type refers to a class that cannot be imported here.
        """
        value = self._restored(1, self.value_type)
        if self.kind is StateKind.LIST:
            return ListStateDescriptor(self.name, value)
        if self.kind is StateKind.MAP:
            return MapStateDescriptor(self.name, self._restored(2, self.map_key_type or ""), value)
        if self.kind is StateKind.REDUCING:
            return ReducingStateDescriptor(self.name, _keep, value)
        if self.kind is StateKind.AGGREGATING:
            return AggregatingStateDescriptor(self.name, _Accumulator(), value)
        if self.kind is StateKind.FOLDING:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                return FoldingStateDescriptor(self.name, None, _keep, value)
        return ValueStateDescriptor(self.name, value)

    def _restored(self, role: int, text: str) -> TypeSerializer[Any]:
        stored = self._snapshots[role]
        try:
            if stored:
                with stand_ins():
                    return load_serializer_snapshot(stored).restore_serializer()
        except Exception as exc:
            raise self._unreadable(text) from exc
        raise self._unreadable(text)

    def _unreadable(self, text: str) -> QueryError:
        return QueryError(
            f"State '{self.name}' has the type {text}, which cannot be rebuilt here. Read it with the job's "
            "own descriptor.",
            name=self.name,
        )
