"""`spark.read.format("tidemark")`: one state of a snapshot as a DataFrame with typed columns.

Options: `path`, `uid`, `state` (timers: `_timers/event`, `_timers/processing`), and optionally `key_groups`
("0-15,20") and `partitions`. A partition is a key-group range; a task reads only the row groups of its
range. Filters on `key` or `key_group` prune ranges where Spark pushes filters to Python sources
(`spark.sql.python.filterPushdown.enabled`). No user code runs, unless a type needs its class.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from tidemark.errors import ConfigError, TidemarkError
from tidemark.processor.columns import conform_batch, shown_schema
from tidemark.processor.opened import OpenSnapshot, Share, parse_ranges
from tidemark.processor.operator_rows import operator_batch, operator_schema
from tidemark.processor.spark import FORMAT, exact_schema, spark_type
from tidemark.processor.tables import canonical_schema, canonical_tables, serializers_of
from tidemark.state.key_groups import assign_to_key_group
from tidemark.state.snapshot import StateMeta

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = ["SnapshotSource", "register"]

_MARK = "tidemark.processor.registered"


def register(session: SparkSession) -> None:
    """Make the format known to a session; again is no error."""
    if session.conf.get(_MARK, "") != "true":
        session.dataSource.register(SnapshotSource)
        session.conf.set(_MARK, "true")


@dataclass(frozen=True, slots=True)
class _Request:
    """What the options ask for."""

    path: str
    uid: str
    state: str
    key_groups: str | None
    partitions: int

    @classmethod
    def of(cls, options: dict[str, str]) -> _Request:
        missing = [name for name in ("path", "uid", "state") if not options.get(name)]
        if missing:
            raise ConfigError(
                f'spark.read.format("{FORMAT}") needs the option(s) {", ".join(missing)}. '
                "`tidemark inspect PATH` lists operators and states."
            )
        count = options.get("partitions") or "0"
        if not count.isdigit():
            raise ConfigError(f"Option partitions must be a number, not '{count}'.")
        return cls(options["path"], options["uid"], options["state"], options.get("key_groups"), int(count))


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
        request = _Request.of(dict(self.options))
        snapshot = OpenSnapshot.open(request.path)
        parts = snapshot.parts(request.uid, request.state)
        if parts:
            return spark_type(operator_schema(parts))
        meta = snapshot.meta(request.uid, request.state)
        return spark_type(shown_schema(canonical_schema(snapshot, request.uid, meta)))

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of one scan."""
        return _Reader(_Request.of(dict(self.options)), schema)


class _Range(InputPartition):  # type: ignore[misc]
    """A share of keyed state, or (None) the whole of an operator state."""

    def __init__(self, share: Share | None) -> None:
        super().__init__(share)


class _Reader(DataSourceReader):  # type: ignore[misc]
    """Plans key-group ranges in the driver, reads one in each task."""

    def __init__(self, request: _Request, schema: StructType) -> None:
        self._request = request
        self._schema = schema
        self._groups: set[int] | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Remember which key groups can match; Spark evaluates every filter again."""
        snapshot = OpenSnapshot.open(self._request.path)
        if not snapshot.parts(self._request.uid, self._request.state):
            meta = snapshot.meta(self._request.uid, self._request.state)
            groups = snapshot.operator(self._request.uid).max_parallelism
            for item in filters:
                chosen = _matching_groups(item, meta, groups)
                if chosen is not None:
                    self._groups = chosen if self._groups is None else self._groups & chosen
        return filters

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
        if self._groups is not None:
            ranges = _within(self._groups, ranges)
        shares = snapshot.shares(operator, request.partitions or operator.parallelism, ranges)
        shares = [share.only(meta.kind, meta.name) for share in shares]
        filled = [s for s in shares if s.restore.natives or any(t.rows for t in s.restore.tables)]
        # Spark takes no partition at all for one without a value, which would mean an operator state.
        return [_Range(share) for share in filled or shares[:1]] or [InputPartition("nothing")]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range."""
        exact = exact_schema(self._schema)
        if not isinstance(partition, _Range):
            return
        share = partition.value
        request = self._request
        if share is None:
            snapshot = OpenSnapshot.open(request.path)
            yield conform_batch(operator_batch(snapshot.parts(request.uid, request.state)), exact)
            return
        with canonical_tables(share, wanted=lambda meta: meta.name == request.state) as tables:
            for _meta, batches in tables:
                for batch in batches:
                    yield conform_batch(batch, exact)


def _matching_groups(item: Filter, meta: StateMeta, max_parallelism: int) -> set[int] | None:
    """Key groups in which a filter can be true; None if it says nothing about key groups."""
    attribute = getattr(item, "attribute", None)
    if attribute == ("key_group",):
        return _compared(item, max_parallelism)
    if attribute != ("key",) or not isinstance(item, (EqualTo, In)):
        return None
    values = item.value if isinstance(item, In) else (item.value,)
    try:
        to_bytes = serializers_of(meta).key.key_bytes
        return {assign_to_key_group(to_bytes(value), max_parallelism) for value in values}
    except (TidemarkError, TypeError, ValueError):
        # A key Spark shows in another form than our serializer takes: then there is nothing to prune by.
        return None


def _compared(item: Filter, max_parallelism: int) -> set[int] | None:
    groups = range(max_parallelism)
    value: Any = getattr(item, "value", None)
    if isinstance(item, EqualTo):
        return {group for group in groups if group == value}
    if isinstance(item, In):
        return set(groups) & set(value)
    if isinstance(item, GreaterThan):
        return {group for group in groups if group > value}
    if isinstance(item, GreaterThanOrEqual):
        return {group for group in groups if group >= value}
    if isinstance(item, LessThan):
        return {group for group in groups if group < value}
    if isinstance(item, LessThanOrEqual):
        return {group for group in groups if group <= value}
    return None


def _within(groups: set[int], ranges: list[tuple[int, int]] | None) -> list[tuple[int, int]]:
    """The chosen key groups, as ranges, inside the ranges asked for."""
    found: list[tuple[int, int]] = []
    for group in sorted(groups):
        if ranges is not None and not any(first <= group <= last for first, last in ranges):
            continue
        if found and found[-1][1] == group - 1:
            found[-1] = (found[-1][0], group)
        else:
            found.append((group, group))
    return found
