"""Files of incremental checkpoints of the heap: a chain per state, the whole of it first, then what changed.

A file is a Parquet table of canonical rows with one column more, `removed`. What changed at an address (key and
namespace) is told by all rows it has now, or by one row that is `removed`. Whatever a file tells of an address holds
instead of what the files before it tell; the first file of a chain tells of all addresses.

Any backend can restore such a chain, because what it comes to are canonical tables.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain as chained
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.backends.descriptions import read_description
from tidemark.errors import RestoreError, StateError
from tidemark.safe_names import plain_name
from tidemark.state.canonical import MAX_BATCH_ROWS, RowEncoder, Rows, StateSerializers
from tidemark.state.descriptors import StateKind
from tidemark.state.key_tokens import KeyTokens
from tidemark.state.serializers.compatibility import load_serializer_snapshot
from tidemark.state.snapshot import StateMeta, StateTable, state_schema

__all__ = ["KIND", "ChainNames", "chain_tables", "write_link"]

KIND: Final = "heap"
_FORMAT: Final = 1
_COMPRESSION: Final = "zstd"
_REMOVED: Final = pa.field("removed", pa.bool_())
_TERSE: Final = ["key_group"]
"""Only these repeat; for all else a dictionary costs time and gains nothing."""


@dataclass(frozen=True, slots=True)
class ChainNames:
    """State name -> names of the files of its chain, oldest first."""

    chains: Mapping[str, Sequence[str]]

    def to_bytes(self) -> bytes:
        """Versioned JSON."""
        chains = {name: list(files) for name, files in self.chains.items()}
        return json.dumps({"format": _FORMAT, "chains": chains}).encode()

    @staticmethod
    def from_bytes(data: bytes) -> ChainNames:
        """Inverse of `to_bytes`.

        Raises:
            RestoreError: The bytes are of a newer format or damaged.
        """

        def parse(fields: Any) -> ChainNames:
            chains = {
                str(name): [plain_name(file) for file in files] for name, files in fields["chains"].items()
            }
            return ChainNames(chains)

        return read_description(data, _FORMAT, "an incremental heap checkpoint", parse)


def write_link(sink: BinaryIO, rows: StateTable, removed: Sequence[Any], max_parallelism: int) -> int:
    """Write one file of a chain; how many rows it has.

    Args:
        sink: Where to.
        rows: What is there.
        removed: Addresses where nothing is any more.
        max_parallelism: Number of key groups.

    Raises:
        StateError: The rows cannot be encoded.
    """
    import pyarrow.parquet as pq

    schema, entries = rows.schema.append(_REMOVED), 0
    output = pa.PythonFile(_Sink(sink), mode="w")
    with pq.ParquetWriter(
        output, schema, compression=_COMPRESSION, use_dictionary=_TERSE, use_compliant_nested_type=False
    ) as writer:
        try:
            for batch in chained(_removed(rows, removed, max_parallelism), _marked(rows.batches(), False)):
                writer.write_batch(batch)
                entries += batch.num_rows
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError) as exc:
            raise StateError(
                f"State '{rows.meta.name}' cannot be written as Parquet: {exc}.", state_name=rows.meta.name
            ) from exc
    output.flush()
    return entries


def _removed(rows: StateTable, addresses: Sequence[Any], max_parallelism: int) -> Iterator[pa.RecordBatch]:
    if not addresses:
        return
    tokens, namespaces = list(addresses), None
    if rows.meta.namespace.columns:
        tokens, namespaces = [list(part) for part in zip(*addresses, strict=True)]
    # Timers have addresses and little else.
    meta = replace(rows.meta, kind=StateKind.TIMER)
    key = load_serializer_snapshot(meta.key).restore_serializer()
    head = state_schema(meta, key, None)
    encoder = RowEncoder(meta, head, StateSerializers(key), max_parallelism)
    for batch in encoder.batches(Rows(tokens, [0] * len(tokens), namespaces).pieces):
        columns = [
            batch.column(field.name)
            if head.get_field_index(field.name) >= 0
            else pa.nulls(len(batch), field.type)
            for field in rows.schema
        ]
        yield from _marked([pa.RecordBatch.from_arrays(columns, schema=rows.schema)], True)


def _marked(batches: Iterable[pa.RecordBatch], removed: bool) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        mark = pa.array(np.full(batch.num_rows, removed))
        yield pa.RecordBatch.from_arrays([*batch.columns, mark], schema=batch.schema.append(_REMOVED))


class _Sink(io.RawIOBase):
    """What Arrow needs of a file, over one that can only be written to."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file = file
        self._position = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._file.write(data)
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        return self._position


def chain_tables(
    files: Mapping[str, Path], extra: bytes, metas: Sequence[StateMeta], key_groups: tuple[int, int]
) -> Iterator[tuple[StateMeta, Iterator[pa.RecordBatch]]]:
    """The states of an incremental checkpoint and their rows in a range of key groups, in any order.

    Raises:
        RestoreError: The files are not what a checkpoint of the heap consists of.
    """
    names = ChainNames.from_bytes(extra)
    for meta in metas:
        chain = names.chains.get(meta.name)
        if not chain or any(name not in files for name in chain):
            raise RestoreError(
                f"An incremental heap checkpoint does not tell which of its files hold state '{meta.name}'."
            )
        yield meta, _merged(meta, [files[name] for name in chain], key_groups)


def _merged(meta: StateMeta, paths: list[Path], key_groups: tuple[int, int]) -> Iterator[pa.RecordBatch]:
    """From the newest file to the oldest: rows of addresses of which no newer one tells."""
    told = _Told(meta)
    for number, path in reversed(list(enumerate(paths))):
        tells = []
        for batch in _rows(path, meta):
            mine = _within(batch, key_groups)
            # What the oldest file tells hides nothing, and may be much.
            tells += [mine] if number else []
            mine = told.without(mine.filter(pc.invert(mine.column(_REMOVED.name))))
            if mine.num_rows:
                yield mine.drop_columns([_REMOVED.name])
        told.add(tells)


def _rows(path: Path, meta: StateMeta) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            wanted = {"key_group": pa.uint16(), _REMOVED.name: _REMOVED.type}
            wanted |= dict.fromkeys(meta.namespace.columns, pa.int64())
            schema = file.schema_arrow
            for column, kind in wanted.items():
                if schema.get_field_index(column) < 0 or schema.field(column).type != kind:
                    raise pa.ArrowInvalid(f"it has no column '{column}' of type {kind}")
            yield from file.iter_batches(MAX_BATCH_ROWS, use_threads=False)
    except (pa.ArrowException, OSError, KeyError) as exc:
        raise RestoreError(f"{path.name} cannot be read as a part of a heap checkpoint: {exc}.") from exc


def _within(batch: pa.RecordBatch, key_groups: tuple[int, int]) -> pa.RecordBatch:
    groups = batch.column("key_group").to_numpy(zero_copy_only=False)
    mine = (groups >= key_groups[0]) & (groups <= key_groups[1])
    return batch if mine.all() else batch.filter(pa.array(mine))


class _Told:
    """The addresses of which the files read so far have told."""

    def __init__(self, meta: StateMeta) -> None:
        self._meta = meta
        self._columns: list[pa.Array] = []
        self._addresses: set[Any] = set()

    def add(self, batches: list[pa.RecordBatch]) -> None:
        for batch in batches:
            if self._by_column(batch):
                self._columns.append(batch.column("key").unique())
            else:
                self._addresses.update(self._of(batch))

    def without(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of other addresses."""
        if self._columns:
            hidden = pc.is_in(batch.column("key"), value_set=pa.concat_arrays(self._columns))
            return batch.filter(pc.invert(hidden))
        if self._addresses:
            return batch.filter(pa.array([at not in self._addresses for at in self._of(batch)], pa.bool_()))
        return batch

    def _by_column(self, batch: pa.RecordBatch) -> bool:
        """Whether two keys are equal exactly when Arrow says so, and are all of the address."""
        kind = batch.schema.field("key").type
        plain = pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind)
        return plain and not self._meta.namespace.columns

    def _of(self, batch: pa.RecordBatch) -> list[Any]:
        key = load_serializer_snapshot(self._meta.key).restore_serializer()
        tokens = KeyTokens(key).of_stored(key.from_arrow(batch.column("key")))
        if not self._meta.namespace.columns:
            return tokens
        return list(
            zip(
                tokens,
                *[batch.column(name).to_pylist() for name in self._meta.namespace.columns],
                strict=True,
            )
        )
