"""`spark.read.format("tidemark")`: one state of a snapshot or of a running job as a DataFrame with typed columns.

Options of a snapshot: `path`, `uid`, `state` (timers: `_timers/event`, `_timers/processing`), and optionally `key`
(only that key, read from its key group alone), `key_groups` ("0-15,20") and `partitions`. A partition is a
key-group range; a task reads only the row groups of its range. No user code runs, unless a type needs its
class.

Options of a running job: `job` (its id), `state` (the name it is published under), optionally `address`, `timeout` in
seconds, `key`, `key_groups` and `partitions`; see `tidemark.state_processor.live`.

Filters of a query are not pushed down: Spark 4.3 keeps what one query pushed for every other query of the
same `load()`, which would then miss rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from tidemark.errors import ConfigError
from tidemark.state.canonical import StateSerializers
from tidemark.state.key_groups import assign_to_key_group
from tidemark.state.serializers.base import TypeSerializer
from tidemark.state.snapshot import StateMeta
from tidemark.state_processor.columns import conform_batch, shown_schema
from tidemark.state_processor.input_splits import InputSplit, parse_ranges
from tidemark.state_processor.live import LiveRange, LiveState
from tidemark.state_processor.open_snapshot import OpenSnapshot
from tidemark.state_processor.operator_rows import operator_batch, operator_schema
from tidemark.state_processor.rewrite import parse_key
from tidemark.state_processor.spark import FORMAT, exact_schema, spark_type
from tidemark.state_processor.tables import canonical_schema, canonical_tables

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["SnapshotSource"]


@dataclass(frozen=True, slots=True)
class _Request:
    """What the options ask for."""

    path: str
    uid: str
    state: str
    key: str | None
    key_groups: str | None
    partitions: int

    @classmethod
    def of(cls, options: dict[str, str]) -> _Request:
        if options.get("job"):
            raise ConfigError("Options job and path exclude each other: name a running job or a snapshot.")
        missing = [name for name in ("path", "uid", "state") if not options.get(name)]
        if missing:
            raise ConfigError(
                f'spark.read.format("{FORMAT}") needs the option(s) {", ".join(missing)}. '
                "`tidemark inspect PATH` lists operators and states."
            )
        return cls(
            options["path"],
            options["uid"],
            options["state"],
            options.get("key"),
            options.get("key_groups"),
            _count(options),
        )


def _count(options: dict[str, str]) -> int:
    count = options.get("partitions") or "0"
    if not count.isdigit():
        raise ConfigError(f"Option partitions must be a number, not '{count}'.")
    return int(count)


class SnapshotSource(DataSource):  # type: ignore[misc]
    """The data source Spark instantiates; one per `load()`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    def schema(self) -> StructType:
        """Columns of the state asked for.

        Raises:
            SavepointNotFoundError: Nothing complete is at the path.
            UnknownStateError: No such operator or state.
        """
        if self._live():
            return spark_type(shown_schema(_live_state(dict(self.options)).schema()))
        request = _Request.of(dict(self.options))
        snapshot = OpenSnapshot.open(request.path)
        parts = snapshot.parts(request.uid, request.state)
        if parts:
            return spark_type(operator_schema(parts))
        meta = snapshot.meta(request.uid, request.state)
        return spark_type(shown_schema(canonical_schema(snapshot, request.uid, meta)))

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of one scan."""
        if self._live():
            return _LiveReader(dict(self.options), schema)
        return _Reader(_Request.of(dict(self.options)), schema)

    def _live(self) -> bool:
        return bool(self.options.get("job")) and not self.options.get("path")


def _live_state(options: dict[str, str]) -> LiveState:
    if not options.get("state"):
        raise ConfigError(
            "Live state needs the option state: the name it is published under. `tidemark info JOB` lists the names."
        )
    timeout = options.get("timeout") or "10"
    try:
        seconds = float(timeout)
    except ValueError as exc:
        raise ConfigError(f"Option timeout must be a number of seconds, not '{timeout}'.") from exc
    return LiveState.find(options["job"], options["state"], options.get("address"), seconds)


class _LivePartition(InputPartition):  # type: ignore[misc]
    """The state and a range of it; the token in it goes where tasks of a job have it, too."""

    def __init__(self, state: LiveState, part: LiveRange) -> None:
        super().__init__((state, part))

    def __repr__(self) -> str:
        return f"_LivePartition({self.value[1]})"


class _LiveReader(DataSourceReader):  # type: ignore[misc]
    """Finds the job in the driver, reads a range of key groups in each task."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """One per key-group range."""
        options = self._options
        state = _live_state(options)
        ranges = state.ranges(_count(options), options.get("key_groups"), options.get("key"))
        return [_LivePartition(state, part) for part in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range."""
        exact = exact_schema(self._schema)
        state, part = partition.value
        for batch in state.batches(part):
            yield conform_batch(batch, exact)


class _Range(InputPartition):  # type: ignore[misc]
    """A split of keyed state, or (None) the whole of an operator state."""

    def __init__(self, split: InputSplit | None) -> None:
        super().__init__(split)


class _Reader(DataSourceReader):  # type: ignore[misc]
    """Plans key-group ranges in the driver, reads one in each task."""

    def __init__(self, request: _Request, schema: StructType) -> None:
        self._request = request
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """One per key-group range that can hold rows."""
        request = self._request
        snapshot = OpenSnapshot.open(request.path)
        if snapshot.parts(request.uid, request.state):
            return [_Range(None)]
        operator = snapshot.keyed_operator(request.uid)
        meta = snapshot.meta(request.uid, request.state)
        ranges = None
        if request.key_groups:
            ranges = parse_ranges(request.key_groups, operator.max_parallelism)
        if request.key is not None:
            group = assign_to_key_group(_key_bytes(request.key, meta), operator.max_parallelism)
            ranges = [(group, group)]
        splits = snapshot.splits(operator, request.partitions or operator.parallelism, ranges)
        splits = [split.only(meta.kind, meta.name) for split in splits]
        filled = [s for s in splits if s.restore.natives or any(t.rows for t in s.restore.tables)]
        # Spark makes one partition without a value if there is none, and that would mean an operator state.
        return [_Range(split) for split in filled or splits[:1]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range."""
        exact = exact_schema(self._schema)
        split = partition.value
        request = self._request
        if split is None:
            snapshot = OpenSnapshot.open(request.path)
            yield conform_batch(operator_batch(snapshot.parts(request.uid, request.state)), exact)
            return
        with canonical_tables(split, wanted=lambda meta: meta.name == request.state) as tables:
            for meta, batches in tables:
                for batch in batches:
                    if request.key is not None:
                        batch = _only_key(batch, _key_bytes(request.key, meta), StateSerializers.key_of(meta))
                    yield conform_batch(batch, exact)


def _key_bytes(text: str, meta: StateMeta) -> bytes:
    key = StateSerializers.key_of(meta)
    return key.key_bytes(parse_key(text, key))


def _only_key(batch: pa.RecordBatch, wanted: bytes, key: TypeSerializer[Any]) -> pa.RecordBatch:
    found = [key.key_bytes(value) == wanted for value in key.from_arrow(batch.column("key"))]
    return batch.filter(pa.array(found, pa.bool_()))
