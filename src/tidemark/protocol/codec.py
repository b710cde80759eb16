"""Batches on the wire: Arrow columns for typed streams, one pickle per batch for untyped ones.

Calling Arrow costs as much as fifty small values: a batch of fewer is one pickle of the bytes of each value
(`TypeSerializer.to_bytes`), which stand for the same values.

The Arrow form is one record batch without its schema, which both ends derive from the stream's
serializer: columns `v` (values), then `t` (timestamps, int64, nullable) and `k` (key tokens) if the flags
say so. Where the key is a field of the values there is no `k`: the flags tell which field.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tidemark.protocol.batch import Batch, ColumnBatch
from tidemark.state.key_tokens import KeyTokens
from tidemark.state.serializers.base import TypeSerializer

__all__ = ["BatchCodec", "codec_for"]

_TIMESTAMPS = 1
_KEYS = 2
_PICKLED = 4
_BYTES = 8
_KEY_FIELD = 16
_PLACE = 8
"""The bits from this one on are the place of the field that is the key."""
_COLUMNS = _TIMESTAMPS | _KEYS
FEW = 48
"""Batches of fewer records than this are no columns: one record in 4 us instead of 51, fifty in the same time."""


class BatchCodec:
    """Encodes and decodes the batches of one edge."""

    __slots__ = ("_key", "_schemas", "serializer")

    def __init__(
        self, serializer: TypeSerializer[Any] | None, key: TypeSerializer[Any] | None = None
    ) -> None:
        self.serializer = serializer
        """None: the stream is untyped."""
        self._key = None if key is None else KeyTokens(key)
        self._schemas: dict[int, pa.Schema] = {}

    def encode(self, batch: Batch) -> tuple[int, Any]:
        """Flags and a buffer holding `batch`."""
        if self.serializer is None:
            return _PICKLED, pickle.dumps((batch.values, batch.timestamps, batch.keys), 5)
        if len(batch.values) < FEW:
            values = list(map(self.serializer.to_bytes, batch.values))
            return _BYTES, pickle.dumps((values, batch.timestamps, batch.keys), 5)
        return self.encode_column(self.serializer.to_arrow(batch.values), batch.timestamps, batch.keys)

    def encode_column(
        self,
        values: pa.Array,
        timestamps: list[int | None] | pa.Array | None,
        keys: list[Any] | pa.Array | None,
        key_at: int | None = None,
    ) -> tuple[int, Any]:
        """Like `encode`, for values that already are an Arrow array of the stream's type.

        With `key_at` the keys are that field of the values as it is, without nulls, and need not be given.
        """
        flags = 0 if key_at is None else _KEY_FIELD | key_at << _PLACE
        columns = [values]
        if timestamps is not None:
            flags |= _TIMESTAMPS
            columns.append(
                timestamps if isinstance(timestamps, pa.Array) else pa.array(timestamps, type=pa.int64())
            )
        if keys is not None:
            flags |= _KEYS
            columns.append(keys if isinstance(keys, pa.Array) else self._key_array(keys))
        schema = self._schema(flags & _COLUMNS)
        return flags, pa.RecordBatch.from_arrays(columns, schema=schema).serialize()

    def encode_part(self, part: Batch | ColumnBatch) -> tuple[int, Any]:
        """Like `encode`, for records in either form."""
        if isinstance(part, Batch):
            return self.encode(part)
        if self.serializer is None or part.values.type != self.serializer.arrow_type():
            return self.encode(part.batch())
        return self.encode_column(part.values, part.timestamps, part.keys)

    def decode(self, flags: int, data: Any) -> Batch:
        """The batch behind `encode`'s answer."""
        if not self.is_column(flags):
            return self._unpickled(flags, data)
        return self._batch(flags, self._record_batch(flags, data))

    def decode_columns(self, flags: int, data: Any) -> ColumnBatch:
        """Like `decode`, for batches of a typed stream whose records are wanted as columns."""
        if not self.is_column(flags):
            return self.columns(self._unpickled(flags, data))
        columns = self._record_batch(flags, data).columns
        stamps = columns[1] if flags & _TIMESTAMPS else None
        assert self.serializer is not None
        return ColumnBatch(columns[0], self.serializer, stamps, self._key_column(flags, columns))

    def columns(self, batch: Batch) -> ColumnBatch:
        """The records of a batch of a typed stream as columns."""
        assert self.serializer is not None
        return ColumnBatch(
            self.serializer.to_arrow(batch.values),
            self.serializer,
            None if batch.timestamps is None else pa.array(batch.timestamps, pa.int64()),
            None if batch.keys is None else self._key_array(batch.keys),
        )

    @staticmethod
    def is_column(flags: int) -> bool:
        """Whether a batch with these flags travelled as columns."""
        return not flags & (_PICKLED | _BYTES)

    def decode_parts(self, flags: int, data: Any, limit: int) -> Iterator[Batch]:
        """Like `decode`, as consecutive batches of at most `limit` records.

        Objects of a later part are only made when it is asked for, so that those of one part stay in the
        processor's cache from their making to their end.
        """
        if not self.is_column(flags):
            yield from self._unpickled(flags, data).parts(limit)
            return
        record_batch = self._record_batch(flags, data)
        for at in range(0, record_batch.num_rows, limit):
            yield self._batch(flags, record_batch.slice(at, limit))

    def _unpickled(self, flags: int, data: Any) -> Batch:
        values, timestamps, keys = pickle.loads(data)
        if flags & _BYTES:
            assert self.serializer is not None
            values = list(map(self.serializer.from_bytes, values))
        return Batch(values, timestamps, keys)

    def _record_batch(self, flags: int, data: Any) -> pa.RecordBatch:
        return pa.ipc.read_record_batch(pa.py_buffer(data), self._schema(flags & _COLUMNS))

    def _key_column(self, flags: int, columns: list[pa.Array]) -> pa.Array | None:
        if flags & _KEY_FIELD:
            assert self._key is not None
            return columns[0].field(flags >> _PLACE).cast(self._key.arrow_type())
        return columns[-1] if flags & _KEYS else None

    def _batch(self, flags: int, record_batch: pa.RecordBatch) -> Batch:
        assert self.serializer is not None
        columns = record_batch.columns
        timestamps = _int_list(columns[1]) if flags & _TIMESTAMPS else None
        tokens, keys = self._key_column(flags, columns), None
        if tokens is not None:
            assert self._key is not None
            keys = self._key.from_arrow(tokens)
        return Batch(self.serializer.from_arrow(columns[0]), timestamps, keys)

    def _key_array(self, keys: list[Any]) -> pa.Array:
        assert self._key is not None
        return self._key.to_arrow(keys)

    def _schema(self, flags: int) -> pa.Schema:
        schema = self._schemas.get(flags)
        if schema is None:
            assert self.serializer is not None
            fields = [pa.field("v", self.serializer.arrow_type())]
            if flags & _TIMESTAMPS:
                fields.append(pa.field("t", pa.int64()))
            if flags & _KEYS:
                assert self._key is not None
                fields.append(pa.field("k", self._key.arrow_type()))
            schema = self._schemas[flags] = pa.schema(fields)
        return schema


def _int_list(column: pa.Array) -> list[int | None]:
    if column.null_count:
        return column.to_pylist()  # type: ignore[no-any-return]
    return column.to_numpy().tolist()  # type: ignore[no-any-return]


def codec_for(type_info: Any, key: TypeSerializer[Any] | None = None) -> BatchCodec:
    """Codec of a stream declared with `type_info` (None: untyped)."""
    from tidemark.state.serializers.registry import serializer_for
    from tidemark.types.typeinfo import Types

    if type_info is None or type_info == Types.PICKLED_BYTE_ARRAY():
        return BatchCodec(None, key)
    return BatchCodec(serializer_for(type_info), key)
