"""Rolling reduce by column: `sum`, `min` and `max` of a field, and reduce functions with a form for batches.

The state is that of the record form (`operators.reduce`), under the same name and of the same type. Batch mode, and
backends that keep no columns, use that form. So do small batches, for which numpy's fixed costs would be most of the
work: what they write is kept as objects in front of the columns until a large batch or a cut comes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.api.functions.batch_reduce import BatchReduceFunction
from tidemark.api.stateful_functions import MaxFunction, MinFunction, SumFunction
from tidemark.errors import SerializationError
from tidemark.operators.base import OperatorEnvironment, Output
from tidemark.operators.detach import detached
from tidemark.operators.emission import finish_unstamped, open_timestamps
from tidemark.operators.record_batches import BatchShape
from tidemark.operators.reduce import ReduceOperator
from tidemark.protocol.batch import Batch, ColumnBatch
from tidemark.state.column_keys import as_numbers
from tidemark.types.fields import NUMBERS, field_place
from tidemark.types.typeinfo import RowTypeInfo, TupleTypeInfo, Types

if TYPE_CHECKING:
    from tidemark.backends.columns.handles import ColumnValueState
    from tidemark.state.column_keys import Keys
    from tidemark.state.snapshot import Increment, OperatorCut
    from tidemark.types.typeinfo import TypeInformation

__all__ = ["ColumnReduceOperator", "reduces_by_column"]

_SMALLER = np.frompyfunc(lambda left, right: right if right < left else left, 2, 1)
_LARGER = np.frompyfunc(lambda left, right: right if right > left else left, 2, 1)
_FIELD_FUNCTIONS = {
    SumFunction: (np.add, np.add),
    MinFunction: (np.minimum, _SMALLER),
    MaxFunction: (np.maximum, _LARGER),
}
"""How numpy combines two values of the field, and how Python does."""

_SMALL = 256
"""Below so many records one by one is faster."""
_RECENT = 10_000
"""Keys with values in front of the columns, at most."""
_FEW = 4
"""From so many keys on reading them together is faster than one by one."""
_UNREAD = object()

Reduce = Callable[[pa.Array, "Keys", pa.Array, np.ndarray[Any, Any]], pa.Array]


def reduces_by_column(function: Any, record: TypeInformation | None) -> bool:
    """Whether a reduce function has a form for batches of records of that type."""
    if record is None or record == Types.PICKLED_BYTE_ARRAY():
        return False
    if type(function) in _FIELD_FUNCTIONS:
        return _place(function, record) is not None
    return isinstance(function, BatchReduceFunction)


def _place(function: Any, record: TypeInformation) -> int | None:
    """Which field of a record the function looks at, if that is a number; -1: the record itself."""
    position = function._position
    if record in NUMBERS:
        return -1 if position == 0 else None
    if not isinstance(record, (RowTypeInfo, TupleTypeInfo)):
        return None
    place = field_place(record, position)
    return place if place is not None and record.get_field_types()[place] in NUMBERS else None


class ColumnReduceOperator(ReduceOperator):
    """Combines all records of a batch with the values so far of their keys."""

    def __init__(self, function: Any, key_type: TypeInformation | None, value_type: TypeInformation) -> None:
        """Wrap a function for which `reduces_by_column` is true."""
        super().__init__(function, key_type, value_type)
        self._shape = BatchShape(value_type)
        self._normalize = self._shape.serializer.normalizer() or (lambda value: value)
        self._recent: dict[Any, Any] = {}
        if isinstance(function, BatchReduceFunction):
            self._reduce: Reduce = self._declared(function)
        else:
            place = _place(function, value_type)
            assert place is not None
            self._reduce = _FieldReduce(place, *_FIELD_FUNCTIONS[type(function)])

    def setup(self, environment: OperatorEnvironment) -> None:
        """Attach to the host, which decides whether there are columns."""
        super().setup(environment)
        self.columnar = not environment.batch_mode and self._backend.by_column

    def _register_states(self) -> None:
        if self.columnar:
            self._backend.column_state(self._descriptor)
        super()._register_states()

    def process(self, input_index: int, batch: Batch, out: Output) -> None:
        """Combine records that came as objects."""
        if not self.columnar:
            super().process(input_index, batch, out)
        elif len(batch) < _SMALL:
            self._one_by_one(batch, out)
        else:
            self.process_columns(input_index, self._shape.batch(batch, self._backend.parameters.tokens), out)

    def _one_by_one(self, batch: Batch, out: Output) -> None:
        recent, call, normalize, append = self._recent, self._call, self._normalize, out.values.append
        query, name = self._backend.query, self._descriptor.name
        stamps = None if batch.timestamps is None else open_timestamps(out)
        assert batch.keys is not None
        self._read_together(batch.keys)
        for token, value in zip(batch.keys, batch.values, strict=True):
            so_far = recent.get(token, _UNREAD)
            if so_far is _UNREAD:
                so_far = query(name, token)[1]
            if so_far is not None:
                value = call(so_far, value)
            recent[token] = value = normalize(value)
            append(detached(value))
        if stamps is not None and batch.timestamps is not None:
            stamps += batch.timestamps
        finish_unstamped(out)
        if len(recent) > _RECENT:
            self._settle()

    def _read_together(self, tokens: list[Any]) -> None:
        """Bring the values of many keys in front of the columns; a key without a value has None until it gets one."""
        recent, backend = self._recent, self._backend
        unread = [token for token in dict.fromkeys(tokens) if token not in recent]
        if len(unread) < _FEW:
            return
        backend.start_batch(None)
        try:
            keys = backend.column_keys(backend.parameters.tokens.to_arrow(unread))
            held, present = cast("ColumnValueState", self._state).read_column(keys)
            values = self._shape.serializer.from_arrow(held.take(pa.array(np.flatnonzero(present))))
        finally:
            backend.end_batch()
        recent.update(dict.fromkeys(unread))
        recent.update(zip([unread[at] for at in np.flatnonzero(present)], values, strict=True))

    def _settle(self) -> None:
        """Bring what small batches wrote into the columns."""
        recent, self._recent = self._recent, {}
        if recent:
            backend = self._backend
            backend.start_batch(None)
            keys = backend.column_keys(backend.parameters.tokens.to_arrow(list(recent)))
            self._state.write(keys, self._shape.serializer.to_arrow(list(recent.values())))
            backend.end_batch()

    def erase_key(self, key: bytes) -> dict[str, int]:
        """Forget a key, given by its canonical bytes; rows of each state that held any."""
        self._settle()
        return super().erase_key(key)

    def cut(self, checkpoint_id: int, timestamp: int, *, incremental: Increment | None = None) -> OperatorCut:
        """Freeze the state with all that small batches wrote, which is bounded."""
        self._settle()
        return super().cut(checkpoint_id, timestamp, incremental=incremental)

    def process_columns(self, input_index: int, columns: ColumnBatch, out: Output) -> None:
        """Emit the running value for every record."""
        if len(columns) < _SMALL:
            batch = columns.batch()
            batch.keys = self._backend.parameters.tokens.from_arrow(columns.keys)
            self._one_by_one(batch, out)
            return
        self._settle()
        assert columns.keys is not None
        backend, state = self._backend, cast("ColumnValueState", self._state)
        backend.start_batch(None)
        try:
            keys = backend.column_keys(columns.keys)
            held, present = state.read_column(keys)
            running = self._reduce(columns.values, keys, held, present)
            state.write(keys, keys.last(running))
        finally:
            backend.end_batch()
        out.emit_columns(ColumnBatch(running, self._shape.serializer, columns.timestamps))

    def _declared(self, function: BatchReduceFunction) -> Reduce:
        shape = self._shape

        def reduce(values: pa.Array, keys: Keys, held: pa.Array, present: np.ndarray[Any, Any]) -> pa.Array:
            rows, so_far = shape.record_batch(values), shape.record_batch(held)
            made = shape.columns(function.reduce_batch(rows, keys, so_far, present), None).values
            if len(made) != len(values):
                raise SerializationError(
                    f"{type(function).__name__}.reduce_batch() returned {len(made)} rows for {len(values)} records."
                )
            return made

        return reduce


class _FieldReduce:
    """Combines one field; the others are those of the first record of the key."""

    def __init__(self, place: int, ufunc: np.ufunc, exact: np.ufunc) -> None:
        self._place = place
        self._ufunc = ufunc
        self._exact = exact

    def __call__(
        self, values: pa.Array, keys: Keys, held: pa.Array, present: np.ndarray[Any, Any]
    ) -> pa.Array:
        if self._place < 0:
            return self._running(values, keys, held, present)
        first = pc.if_else(pa.array(present), held, keys.first(values))
        whole = first.take(pa.array(keys.codes))
        fields = whole.flatten()
        place = self._place
        fields[place] = self._running(values.field(place), keys, held.field(place), present)
        return pa.StructArray.from_arrays(fields, fields=list(values.type))

    def _running(
        self, column: pa.Array, keys: Keys, held: pa.Array, present: np.ndarray[Any, Any]
    ) -> pa.Array:
        numbers, so_far = as_numbers(column), as_numbers(held.fill_null(0))
        if numbers.dtype.kind == "i":
            numbers, so_far = numbers.astype(np.int64, copy=False), so_far.astype(np.int64, copy=False)
        if self._ufunc is np.add:
            # A key begins with its first record itself, not with 0 and that: they differ for -0.0.
            begin = np.where(present, so_far, so_far.dtype.type(0 if numbers.dtype.kind == "i" else -0.0))
        else:
            begin = np.where(present, so_far, keys.first(numbers))
        if self._is_plain(numbers, begin):
            result = keys.running(self._ufunc, numbers, begin)
        else:
            result = keys.running(self._exact, numbers.astype(object), begin.astype(object))
        try:
            return pa.array(result).cast(column.type)
        except (pa.ArrowInvalid, OverflowError) as exc:
            raise SerializationError(
                f"The running value of a field of type {column.type} does not fit that type any more: {exc}. Declare a "
                "wider type."
            ) from exc

    def _is_plain(self, numbers: np.ndarray[Any, Any], begin: np.ndarray[Any, Any]) -> bool:
        """Whether numpy's arithmetic gives what Python's gives: no sum overflows, nothing is NaN."""
        if numbers.dtype.kind == "f":
            return self._ufunc is np.add or not (_is_odd(numbers) or _is_odd(begin))
        if self._ufunc is not np.add:
            return True
        most = max(abs(int(numbers.min())), abs(int(numbers.max()))) * len(numbers)
        return most + max(abs(int(begin.min())), abs(int(begin.max()))) < 1 << 63


def _is_odd(numbers: np.ndarray[Any, Any]) -> bool:
    """Whether some numbers are such that numpy and Python disagree which of two is smaller: NaN, zero below zero."""
    return bool(np.isnan(numbers).any() or (np.signbit(numbers) & (numbers == 0)).any())
