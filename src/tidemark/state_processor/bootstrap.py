"""`OperatorTransformation`: how the state of an operator is made from data.

A transformation is plain data. `BootstrapWork` runs it for one subtask: an operator of the ordinary kind
over a private store takes the elements in, is cut, and its state is written where the new savepoint will be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import cloudpickle

from tidemark.api.builder import callable_or, optional_type
from tidemark.api.functions import KeySelector
from tidemark.api.state_backends import StateBackend
from tidemark.api.watermarks import TimestampAssigner
from tidemark.checkpoint.layout import SnapshotLocation
from tidemark.checkpoint.metadata import SubtaskState
from tidemark.checkpoint.snapshot_writer import SnapshotWriter
from tidemark.checkpoint.storage.base import Storage
from tidemark.clock import SystemClock
from tidemark.errors import ConfigError, ExecutionError
from tidemark.metrics.registry import MetricRegistry
from tidemark.operators.base import Operator, Output
from tidemark.operators.function_operator import FunctionOperator
from tidemark.operators.keyed import KeyedProcessOperator
from tidemark.operators.routing import KeyRouter
from tidemark.operators.stateless import ProcessOperator, method_of
from tidemark.plan.vertex import SubtaskInfo
from tidemark.protocol.batch import Batch
from tidemark.protocol.deployment import BackendChoice
from tidemark.scratch import ScratchDirectory
from tidemark.state.backend import MIN_TIME
from tidemark.state.descriptors import MapStateDescriptor, StateDescriptor
from tidemark.state.expiry import lives_by_event_time
from tidemark.state.primitives import BroadcastState
from tidemark.state_processor.functions import (
    BroadcastStateBootstrapFunction,
    KeyedStateBootstrapFunction,
    StateBootstrapFunction,
)
from tidemark.state_processor.streams import BoundedData
from tidemark.subtask.subtask import Subtask
from tidemark.types.typeinfo import TypeInformation

__all__ = [
    "BootstrapKind",
    "BootstrapWork",
    "KeyedOperatorTransformation",
    "OneInputOperatorTransformation",
    "OperatorTransformation",
    "StateBootstrapTransformation",
]

_CHUNK = 4096


class BootstrapKind(Enum):
    """What kind of state a transformation makes."""

    KEYED = "keyed"
    OPERATOR = "operator"
    BROADCAST = "broadcast"


@dataclass(frozen=True, slots=True)
class StateBootstrapTransformation:
    """Data and the function that makes state of it; for `SavepointWriter.with_operator`."""

    data: BoundedData
    function: Any
    kind: BootstrapKind
    key_selector: Any = None
    key_type: TypeInformation | None = None
    timestamps: Any = None


class OperatorTransformation:
    """Where a transformation starts."""

    @staticmethod
    def bootstrap_with(data: Any) -> OneInputOperatorTransformation:
        """State made of these elements: a list, a bounded `DataStream`, or a batch Spark DataFrame.

        Rows of a DataFrame come as `Row`s.

        Raises:
            TypeError: It is none of the three.
            ConfigError: It is unbounded.
        """
        return OneInputOperatorTransformation(BoundedData(data))


class OneInputOperatorTransformation:
    """Data whose state is still to be described."""

    def __init__(self, data: BoundedData, timestamps: Any = None) -> None:
        """Use `OperatorTransformation.bootstrap_with`."""
        self._data = data
        self._timestamps = timestamps

    def assign_timestamps(self, assigner: Any) -> OneInputOperatorTransformation:
        """Give the elements timestamps: functions see them, and state that lives by event time is stamped with them.

        Args:
            assigner: A `TimestampAssigner`, or a callable of an element and the timestamp that it does not have.

        Raises:
            TypeError: It is neither.
        """
        callable_or(assigner, TimestampAssigner, "assign_timestamps")
        return OneInputOperatorTransformation(self._data, assigner)

    def key_by(self, key_selector: Any, key_type: Any = None) -> KeyedOperatorTransformation:
        """Group by key, exactly as the job that restores the state will do.

        Raises:
            TypeError: `key_selector` is neither a callable nor a `KeySelector`.
        """
        callable_or(key_selector, KeySelector, "key_by")
        return KeyedOperatorTransformation(
            self._data, key_selector, optional_type(key_type), self._timestamps
        )

    def transform(self, function: Any) -> StateBootstrapTransformation:
        """Make operator state or broadcast state.

        Raises:
            TypeError: Neither a `StateBootstrapFunction` nor a `BroadcastStateBootstrapFunction`.
        """
        if isinstance(function, BroadcastStateBootstrapFunction):
            kind = BootstrapKind.BROADCAST
        elif isinstance(function, StateBootstrapFunction):
            kind = BootstrapKind.OPERATOR
        elif isinstance(function, KeyedStateBootstrapFunction):
            raise TypeError("A KeyedStateBootstrapFunction needs key_by() before transform().")
        else:
            raise TypeError(
                "transform() needs a StateBootstrapFunction or a BroadcastStateBootstrapFunction, "
                f"not {function!r}."
            )
        return StateBootstrapTransformation(self._data, function, kind, timestamps=self._timestamps)


class KeyedOperatorTransformation:
    """Keyed data whose state is still to be described."""

    def __init__(
        self, data: BoundedData, key_selector: Any, key_type: TypeInformation | None, timestamps: Any = None
    ) -> None:
        """Use `OneInputOperatorTransformation.key_by`."""
        self._data = data
        self._timestamps = timestamps
        self._key_selector = key_selector
        self._key_type = key_type

    def transform(self, function: KeyedStateBootstrapFunction) -> StateBootstrapTransformation:
        """Make keyed state.

        Raises:
            TypeError: Not a `KeyedStateBootstrapFunction`.
        """
        if not isinstance(function, KeyedStateBootstrapFunction):
            raise TypeError(
                f"transform() of keyed data needs a KeyedStateBootstrapFunction, not {function!r}."
            )
        return StateBootstrapTransformation(
            self._data, function, BootstrapKind.KEYED, self._key_selector, self._key_type, self._timestamps
        )


@dataclass(frozen=True, slots=True)
class BootstrapWork:
    """One operator of a new savepoint in the making; travels to tasks."""

    uid: str
    code: bytes
    """Function, key selector and timestamp assigner, pickled: every subtask gets fresh ones."""
    kind: BootstrapKind
    key_type: TypeInformation | None
    max_parallelism: int
    ranges: tuple[tuple[int, int], ...]
    """Key groups of the subtasks of a keyed operator."""
    location: SnapshotLocation
    checkpoint_id: int
    backend: StateBackend | None = None

    @classmethod
    def of(
        cls,
        uid: str,
        transformation: StateBootstrapTransformation,
        max_parallelism: int,
        ranges: Iterable[tuple[int, int]],
        location: SnapshotLocation,
        checkpoint_id: int,
        backend: StateBackend | None,
    ) -> BootstrapWork:
        """Prepare the work.

        Raises:
            ExecutionError: The user's code cannot be pickled.
        """
        try:
            code = bytes(
                cloudpickle.dumps(
                    (transformation.function, transformation.key_selector, transformation.timestamps)
                )
            )
        except Exception as exc:
            raise ExecutionError(
                f"The functions that make the state of operator '{uid}' cannot be shipped to the workers: "
                f"{type(exc).__name__}: {exc}. Create sockets, locks and open files in open() instead.",
                operator_uid=uid,
            ) from exc
        kind, key_type = transformation.kind, transformation.key_type
        return cls(
            uid, code, kind, key_type, max_parallelism, tuple(ranges), location, checkpoint_id, backend
        )

    def router(self) -> KeyRouter:
        """Finds keys of elements and the subtasks that own them."""
        _function, selector, _timestamps = cloudpickle.loads(self.code)
        return KeyRouter(
            method_of(selector, "get_key"), self.key_type, self.max_parallelism, max(len(self.ranges), 1)
        )

    def run(self, index: int, elements: Iterable[list[Any]], storage: Storage) -> SubtaskState:
        """Take the elements of one subtask in and write its state.

        Raises:
            StorageError: The state could not be written.
            ConfigError: There is state that lives by event time, but elements have no timestamps.
        """
        function, _selector, assigner = cloudpickle.loads(self.code)
        keyed = self.kind is BootstrapKind.KEYED
        clock = SystemClock()
        with ScratchDirectory("tidemark-bootstrap-") as scratch:
            subtask = Subtask(
                self._operator(function),
                SubtaskInfo(
                    self.uid, self.uid, index, max(len(self.ranges), 1), self.max_parallelism, keyed=keyed
                ),
                clock=clock,
                metrics=MetricRegistry(),
                backend=BackendChoice.of(self.backend),
                directory=Path(scratch) / "store",
            )
            try:
                subtask.start()
                self._feed(subtask.operator, elements, self.router() if keyed else None, assigner)
                if assigner is None and isinstance(subtask.operator, KeyedProcessOperator):
                    self._check_times(subtask.operator.backend.registered())
                cut = subtask.cut(self.checkpoint_id, clock.now())
                return cut.write(SnapshotWriter(storage), self.location)
            finally:
                subtask.close()

    def _operator(self, function: Any) -> Operator:
        if self.kind is BootstrapKind.KEYED:
            return _KeyedBootstrapOperator(function, self.key_type)
        if self.kind is BootstrapKind.OPERATOR:
            return ProcessOperator(function)
        return _BroadcastBootstrapOperator(function)

    def _check_times(self, states: Iterable[StateDescriptor]) -> None:
        """State of an element without a timestamp would be older than any, and gone with the first watermark."""
        for descriptor in states:
            if lives_by_event_time(descriptor):
                raise ConfigError(
                    f"State '{descriptor.name}' of operator '{self.uid}' lives by event time, but the elements it is "
                    "made of have no timestamps: the first watermark would expire it. Give them some: "
                    "bootstrap_with(data).assign_timestamps(assigner)."
                )

    @staticmethod
    def _feed(
        operator: Operator, elements: Iterable[list[Any]], router: KeyRouter | None, assigner: Any
    ) -> None:
        extract = None if assigner is None else method_of(assigner, "extract_timestamp")
        for values in elements:
            for at in range(0, len(values), _CHUNK):
                chunk = values[at : at + _CHUNK]
                keys = None if router is None else router.tokens(chunk)
                # What the function emits has nowhere to go.
                times = None if extract is None else [extract(value, MIN_TIME) for value in chunk]
                operator.process(0, Batch(chunk, times, keys), Output())


class _KeyedBootstrapOperator(KeyedProcessOperator):
    """Takes elements in and lets no timer fire, not even one that is due already."""

    def process(self, input_index: int, batch: Batch, out: Output) -> None:
        self._run(input_index, batch, out)


class _BroadcastBootstrapOperator(FunctionOperator):
    """Gives the function access to the broadcast states it asks for."""

    def __init__(self, function: BroadcastStateBootstrapFunction) -> None:
        super().__init__([function])
        self._call: Callable[[Any, Any], Any] = function.process_element

    def process(self, input_index: int, batch: Batch, out: Output) -> None:
        context = _BroadcastContext(self)
        for value in batch.values:
            self._call(value, context)

    def broadcast_state(self, descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        return self._operator_state.get_broadcast_state(descriptor)


class _BroadcastContext(BroadcastStateBootstrapFunction.Context):
    def __init__(self, operator: _BroadcastBootstrapOperator) -> None:
        self._operator = operator

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        return self._operator.broadcast_state(state_descriptor)

    def current_processing_time(self) -> int:
        return self._operator._service.current_processing_time()
