"""Snapshots of columnar heap state: arrays that become sorted Arrow batches when somebody reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tidemark.backends.columns.table import ColumnView
from tidemark.state.canonical import StateSerializers, batch_borders, by_key_group
from tidemark.state.column_types import ColumnType
from tidemark.state.key_tokens import KeyTokens
from tidemark.state.snapshot import StateMeta, state_schema

__all__ = ["FrozenColumns"]


class FrozenColumns:
    """Rows of one state, taken from a view when somebody reads them; a `StateTable`."""

    def __init__(
        self,
        meta: StateMeta,
        serializers: StateSerializers,
        kind: ColumnType,
        view: ColumnView,
        max_parallelism: int,
        dead_before: int | None,
        since: int | None = None,
    ) -> None:
        """Remember what to write: what changed `since` a cut, without values stamped up to `dead_before`."""
        self.meta = meta
        self.schema = state_schema(meta, serializers.key, serializers.value)
        self._key = serializers.key
        self._kind = kind
        self._view = view
        self._max_parallelism = max_parallelism
        self._dead_before = dead_before
        self._since = since

    def removed(self) -> list[Any]:
        """Addresses that lost their value `since` the cut."""
        view = self._view
        return [] if self._since is None else view.index.addresses(view.removed(self._since))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, sorted by key group."""
        index, tokens = self._view.index, KeyTokens(self._key)
        keys, parts, stamps = self._view.rows(self._dead_before, self._since)
        groups, order = by_key_group(index.column(keys), self._key, self._max_parallelism)
        for start, end in batch_borders(groups):
            rows = order[start:end]
            columns = [
                pa.array(groups[start:end]),
                tokens.key_column(index.column(keys[rows])),
                *index.namespaces(keys[rows]),
                self._kind.join([part[rows] for part in parts]),
            ]
            if stamps is not None:
                columns.append(pa.array(stamps[rows]))
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)
