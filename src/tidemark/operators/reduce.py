"""Rolling reduce of a keyed stream (also behind `sum`, `min`, `max` and their kin).

STREAMING emits the running value for every record; BATCH keeps one value per key in a plain dictionary
and emits each once, at the end. The key is current while the function runs in either: a rich reduce function
has keyed state of its own.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Any, cast

from tidemark.operators.base import Output
from tidemark.operators.detach import detached
from tidemark.operators.emission import finish_unstamped, open_timestamps
from tidemark.operators.keyed_operator import KeyedOperator
from tidemark.operators.stateless import method_of
from tidemark.protocol.batch import Batch
from tidemark.state.descriptors import ValueStateDescriptor
from tidemark.types.typeinfo import Types

if TYPE_CHECKING:
    from tidemark.state.primitives import ValueState
    from tidemark.types.typeinfo import TypeInformation

__all__ = ["ReduceOperator"]

_MISSING: Any = object()


class ReduceOperator(KeyedOperator):
    """Combines each record with the value so far of its key."""

    def __init__(
        self, function: Any, key_type: TypeInformation | None, value_type: TypeInformation | None
    ) -> None:
        """Wrap a reduce function.

        Args:
            function: A `ReduceFunction` or a callable of two arguments.
            key_type: Type of the key; None means pickled.
            value_type: Type of the records; None means pickled.
        """
        super().__init__([function], key_type)
        self._call = method_of(function, "reduce")
        self._descriptor = ValueStateDescriptor("rolling-value", value_type or Types.PICKLED_BYTE_ARRAY())
        self._final: dict[Any, tuple[Any, int | None]] = {}

    def _register_states(self) -> None:
        if self._buffer is None:
            self._state = cast("ValueState[Any]", self.keyed_state(self._descriptor))

    def process(self, input_index: int, batch: Batch, out: Output) -> None:
        """Combine; in batch mode nothing leaves before the end."""
        if self._buffer is None:
            super().process(input_index, batch, out)
            return
        self._run(input_index, batch, out)

    def _process(self, input_index: int, batch: Batch, out: Output) -> None:
        if self._buffer is not None:
            self._combine(batch)
            return
        call, keys = self._observed(self._call), self._keys
        read, write, append = self._state.value, self._state.update, out.values.append
        copies = self._must_copy()
        stamps = None if batch.timestamps is None else open_timestamps(out)
        assert batch.keys is not None
        for keys.token, value in zip(batch.keys, batch.values):  # noqa: B905
            so_far = read()
            if so_far is not None:
                value = call(so_far, value)
            write(value)
            append(detached(value) if copies else value)
        if stamps is not None and batch.timestamps is not None:
            stamps += batch.timestamps
        finish_unstamped(out)

    def _combine(self, batch: Batch) -> None:
        assert batch.keys is not None
        final, call, keys = self._final, self._observed(self._call), self._keys
        stamps = repeat(None) if batch.timestamps is None else batch.timestamps
        for keys.token, value, stamp in zip(batch.keys, batch.values, stamps, strict=False):
            so_far = final.get(keys.token, _MISSING)
            final[keys.token] = (value if so_far is _MISSING else call(so_far[0], value), stamp)

    def end_input(self, input_index: int, out: Output) -> None:
        """Batch mode: emit the final value of every key; what the function kept for the key goes."""
        super().end_input(input_index, out)
        final, self._final = self._final, {}
        for token, (value, stamp) in final.items():
            self._drop_key(token)
            out.emit(value, stamp)
