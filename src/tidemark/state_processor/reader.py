"""`SavepointReader`: the state of a snapshot as bounded streams and DataFrames."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import cloudpickle
import pyarrow as pa

from tidemark.api.builder import optional_type
from tidemark.api.specs import WindowSpec
from tidemark.api.state_backends import StateBackend
from tidemark.errors import ConfigError, ExecutionError
from tidemark.operators.window import CONTENTS, contents_of
from tidemark.state.serializers.base import TypeSerializer
from tidemark.state.serializers.compatibility import load_serializer_snapshot
from tidemark.state.serializers.registry import serializer_for
from tidemark.state.serializers.resolution import resolve_compatibility, resolve_key_compatibility
from tidemark.state.snapshot import Redistribution
from tidemark.state_processor.columns import element_schema
from tidemark.state_processor.functions import KeyedStateReaderFunction, WindowReaderFunction
from tidemark.state_processor.input_splits import InputSplit
from tidemark.state_processor.open_snapshot import OpenSnapshot, metas_of
from tidemark.state_processor.operator_rows import pairs_of_one_copy
from tidemark.state_processor.range_reader import RangeRead, WindowContents
from tidemark.state_processor.spark import FORMAT, map_in_arrow, on_spark, session_of
from tidemark.state_processor.streams import StateStream, elements_batch
from tidemark.state_processor.tables import key_serializer_of
from tidemark.types.typeinfo import TypeInformation, Types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidemark.api.environment import StreamExecutionEnvironment
    from tidemark.api.windows.assigners import WindowAssigner

__all__ = ["SavepointReader", "WindowSavepointReader"]

_ACCESSORS = {
    Redistribution.SPLIT: "read_list_state",
    Redistribution.UNION: "read_union_state",
    Redistribution.BROADCAST: "read_broadcast_state",
}


class SavepointReader:
    """Reads one savepoint or retained checkpoint."""

    def __init__(
        self, environment: StreamExecutionEnvironment, snapshot: OpenSnapshot, backend: StateBackend | None
    ) -> None:
        """Use `read`."""
        self._environment = environment
        self._snapshot = snapshot
        self._backend = backend

    @staticmethod
    def read(
        env: StreamExecutionEnvironment, path: str, state_backend: StateBackend | None = None
    ) -> SavepointReader:
        """Open a snapshot.

        Args:
            env: Where the streams that are read belong to; its target says whether Spark does the work.
            path: Directory of a savepoint, or of a retained checkpoint, full or incremental.
            state_backend: Store that tasks restore their key groups into while they read; the heap by
                default. With RocksDB a range may be larger than a task's memory.

        Raises:
            SavepointNotFoundError: No `_metadata` there.
            TypeError: `state_backend` is no `StateBackend`.
        """
        if state_backend is not None and not isinstance(state_backend, StateBackend):
            raise TypeError(f"state_backend must be a StateBackend, not {state_backend!r}.")
        return SavepointReader(env, OpenSnapshot.open(path), state_backend)

    def read_list_state(self, uid: str, name: str, type_info: Any = None) -> StateStream:
        """All elements of all subtasks of a list state.

        Raises:
            UnknownStateError: No such operator or state.
            ConfigError: The state has another redistribution mode.
            StateMigrationException: It cannot be read as `type_info`.
        """
        return self._read_elements(uid, name, type_info, Redistribution.SPLIT)

    def read_union_state(self, uid: str, name: str, type_info: Any = None) -> StateStream:
        """The elements of a union list state, each once; raises as `read_list_state`."""
        return self._read_elements(uid, name, type_info, Redistribution.UNION)

    def read_broadcast_state(
        self, uid: str, name: str, key_type: Any = None, value_type: Any = None
    ) -> StateStream:
        """The `(key, value)` pairs of one copy of a broadcast state; raises as `read_list_state`."""
        parts = self._parts(uid, name, Redistribution.BROADCAST)
        keys, values = pairs_of_one_copy(parts)
        kinds = (optional_type(key_type), optional_type(value_type))
        part = parts[0][1]
        key = _reader(name, part.map_key_serializer, kinds[0], is_key=True)
        value = _reader(name, part.serializer, kinds[1])
        pairs = [(key.from_bytes(k), value.from_bytes(v)) for k, v in zip(keys, values, strict=True)]
        pair_type = None if None in kinds else Types.TUPLE(list(kinds))
        shown = Types.TUPLE([Types.SERIALIZED(key), Types.SERIALIZED(value)])
        return StateStream.of_list(self._environment, pairs, pair_type, f"State {uid}/{name}", shown)

    def read_keyed_state(
        self, uid: str, function: KeyedStateReaderFunction, key_type: Any = None, output_type: Any = None
    ) -> StateStream:
        """What `function` emits for the keys of an operator.

        On Spark every task restores one key-group range and runs its own copy of the function over it.

        Args:
            uid: The operator.
            function: Registers states in `open` and reads one key in `read_key`.
            key_type: Type of the keys; None: as they were written.
            output_type: Type of what is emitted; None: pickled.

        Raises:
            TypeError: Not a `KeyedStateReaderFunction`.
            UnknownStateError: No such operator, or it is not keyed.
            StateMigrationException: The keys were written as another type.
        """
        if not isinstance(function, KeyedStateReaderFunction):
            raise TypeError(f"read_keyed_state() needs a KeyedStateReaderFunction, not {function!r}.")
        return self._read_ranges(uid, function, key_type, output_type, None)

    def window(self, assigner: WindowAssigner[Any, Any]) -> WindowSavepointReader:
        """Read the state of window operators that were built with this assigner."""
        return WindowSavepointReader(self, assigner)

    def read_dataframe(self, uid: str, state: str, **options: Any) -> DataFrame:
        """One state as a DataFrame through the data source `tidemark`; `options` are passed on."""
        self._snapshot.operator(uid)
        reader = session_of(self._environment).read.format(FORMAT).options(**options)
        return reader.option("uid", uid).option("state", state).load(self._snapshot.path)

    def _parts(self, uid: str, name: str, mode: Redistribution) -> Any:
        parts = self._snapshot.parts(uid, name)
        if not parts:
            raise self._snapshot.no_state(uid, name)
        found = parts[0][1].mode
        if found is not mode:
            remedy = f" Use {_ACCESSORS[found]}()." if found in _ACCESSORS else ""
            raise ConfigError(f"State '{name}' of operator '{uid}' has {found.value} redistribution.{remedy}")
        return parts

    def _read_elements(self, uid: str, name: str, type_info: Any, mode: Redistribution) -> StateStream:
        parts = self._parts(uid, name, mode)
        declared = optional_type(type_info)
        serializer = _reader(name, parts[0][1].serializer, declared)
        elements = [serializer.from_bytes(data) for _, part in parts for data in part.elements]
        shown = Types.SERIALIZED(serializer)
        return StateStream.of_list(self._environment, elements, declared, f"State {uid}/{name}", shown)

    def _read_ranges(
        self, uid: str, function: Any, key_type: Any, output_type: Any, windows: WindowContents | None
    ) -> StateStream:
        environment = self._environment
        operator = self._snapshot.keyed_operator(uid)
        metas = metas_of(operator)
        key = key_serializer_of(metas)
        if key_type is not None:
            declared = serializer_for(key_type)
            resolve_key_compatibility(metas[0].key, declared).require_compatible(metas[0].name, role="key")
            key = declared
        splits = self._snapshot.splits(operator, max(operator.parallelism, environment.get_parallelism()))
        work = RangeRead(
            operator.name, uid, _pickled(function, uid), key, len(splits), self._backend, windows
        )
        declared_output = optional_type(output_type)
        title = f"Keyed state of {uid}"
        if on_spark(environment):
            frame = self._frame(work, splits, declared_output)
            kind = declared_output or Types.PICKLED_BYTE_ARRAY()
            return StateStream.of_frame(environment, frame, kind, title)
        elements: list[Any] = []
        for index, split in enumerate(splits):
            for emitted in work.run(index, split, self._snapshot.storage):
                elements += emitted
        return StateStream.of_list(environment, elements, declared_output, title)

    def _frame(self, work: RangeRead, splits: list[InputSplit], output: TypeInformation | None) -> DataFrame:
        session = session_of(self._environment)
        kind = output or Types.PICKLED_BYTE_ARRAY()

        def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for index in batch.column(0).to_pylist():
                    for emitted in work.run(index, splits[index]):
                        yield elements_batch(emitted, kind)

        ranges = session.range(0, len(splits), 1, len(splits))
        return map_in_arrow(ranges, read, element_schema(serializer_for(kind)))


class WindowSavepointReader:
    """Reads what lies in the windows of a window operator."""

    def __init__(self, reader: SavepointReader, assigner: WindowAssigner[Any, Any]) -> None:
        """Use `SavepointReader.window`."""
        self._reader = reader
        self._assigner = assigner

    def reduce(
        self,
        uid: str,
        function: Any,
        reader_function: WindowReaderFunction | None = None,
        key_type: Any = None,
        reduce_type: Any = None,
        output_type: Any = None,
    ) -> StateStream:
        """Windows with a reduce function; without a reader function their values come out."""
        spec = WindowSpec(self._assigner, reduce=function, element_type=self._content_type(uid, reduce_type))
        return self._read(uid, spec, reader_function, key_type, output_type)

    def aggregate(
        self,
        uid: str,
        aggregate_function: Any,
        reader_function: WindowReaderFunction | None = None,
        key_type: Any = None,
        acc_type: Any = None,
        output_type: Any = None,
    ) -> StateStream:
        """Windows with an aggregate function; without a reader function their results come out."""
        spec = WindowSpec(
            self._assigner, aggregate=aggregate_function, accumulator_type=self._content_type(uid, acc_type)
        )
        return self._read(uid, spec, reader_function, key_type, output_type)

    def process(
        self,
        uid: str,
        reader_function: WindowReaderFunction | None = None,
        key_type: Any = None,
        element_type: Any = None,
        output_type: Any = None,
    ) -> StateStream:
        """Windows that keep their elements; without a reader function the elements come out."""
        spec = WindowSpec(self._assigner, element_type=self._content_type(uid, element_type))
        return self._read(uid, spec, reader_function, key_type, output_type)

    def _content_type(self, uid: str, declared: Any) -> TypeInformation:
        """The declared type of the content, else the one it was written with."""
        if declared is not None:
            kind = optional_type(declared)
            assert kind is not None
            return kind
        meta = self._reader._snapshot.meta(uid, CONTENTS)
        return Types.SERIALIZED(load_serializer_snapshot(meta.value).restore_serializer())

    def _read(
        self, uid: str, spec: WindowSpec, function: Any, key_type: Any, output_type: Any
    ) -> StateStream:
        if function is not None and not isinstance(function, WindowReaderFunction):
            raise TypeError(f"A window is read with a WindowReaderFunction, not {function!r}.")
        windows = WindowContents(self._assigner, contents_of(spec))
        return self._reader._read_ranges(uid, function or _Everything(), key_type, output_type, windows)


class _Everything(WindowReaderFunction):
    """Emits what is in the windows."""

    def read_window(self, key: Any, ctx: WindowReaderFunction.Context, elements: Any) -> Any:
        return elements


def _reader(
    name: str, stored: bytes, declared: TypeInformation | None, *, is_key: bool = False
) -> TypeSerializer[Any]:
    """The serializer that reads stored elements, as the declared type if there is one."""
    if declared is None:
        return load_serializer_snapshot(stored).restore_serializer()
    resolve = resolve_key_compatibility if is_key else resolve_compatibility
    resolution = resolve(stored, serializer_for(declared))
    resolution.require_compatible(name, **({"role": "map key"} if is_key else {}))
    return resolution.reader


def _pickled(function: Any, uid: str) -> bytes:
    try:
        return bytes(cloudpickle.dumps(function))
    except Exception as exc:
        raise ExecutionError(
            f"The function that reads operator '{uid}' cannot be shipped to the workers: "
            f"{type(exc).__name__}: {exc}. Create sockets, locks and open files in open() instead.",
            operator_uid=uid,
        ) from exc
