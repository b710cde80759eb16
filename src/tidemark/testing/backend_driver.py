"""Driving a keyed state backend by hand: batches of one key, cuts, restores, rescaling.

Used by the backend contract and its random programs; handy in tests of a backend of your own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.clock import ManualClock
from tidemark.state.backend import NO_KEY, BackendParameters, KeyedStateBackend
from tidemark.state.key_groups import compute_key_group_range_for_operator_index
from tidemark.state.namespace import Namespace
from tidemark.state.serializers.registry import serializer_for
from tidemark.state.snapshot import KeyedCut, StateMeta
from tidemark.types.typeinfo import Types

__all__ = ["BackendDriver", "Content", "as_key", "read_cut", "rescale"]

Content = list[tuple[StateMeta, list[pa.RecordBatch]]]
"""A finished snapshot: the canonical rows of every state."""


class BackendDriver:
    """Makes backends that share a clock, and closes them at the end.

    Attributes:
        clock: Moved by the test.
    """

    def __init__(self, create: Callable[[BackendParameters], KeyedStateBackend], directory: Path) -> None:
        """Make backends with `create`, each with a directory of its own below `directory`."""
        self.clock = ManualClock(1_000_000)
        self._create = create
        self._directory = directory
        self._backends: list[KeyedStateBackend] = []

    def open(
        self,
        key_type: Any = None,
        *,
        max_parallelism: int = 128,
        key_groups: tuple[int, int] | None = None,
        asynchronous: bool = True,
        content: Content = (),  # type: ignore[assignment]  # nothing to restore
    ) -> KeyedStateBackend:
        """A new backend, holding the rows of `content` that lie in its key groups."""
        first, last = key_groups or (0, max_parallelism - 1)
        backend = self._create(
            BackendParameters(
                key_serializer=serializer_for(key_type if key_type is not None else Types.LONG()),
                max_parallelism=max_parallelism,
                key_groups=(first, last),
                clock=self.clock,
                asynchronous=asynchronous,
                directory=self._directory / f"backend-{len(self._backends)}",
            )
        )
        self._backends.append(backend)
        for meta, batches in content:
            backend.restore_table(meta, [_only(batch, first, last) for batch in batches])
        return backend

    def close(self) -> None:
        """Close every backend made here."""
        for backend in self._backends:
            backend.close()


def _only(batch: pa.RecordBatch, first: int, last: int) -> pa.RecordBatch:
    group = batch.column("key_group")
    return batch.filter(pc.and_(pc.greater_equal(group, first), pc.less_equal(group, last)))


@contextmanager
def as_key(
    backend: KeyedStateBackend, key: Any, namespace: Namespace | None = None, *handles: Any
) -> Iterator[None]:
    """A batch in which `key` is current; `handles` are set to `namespace`."""
    [token] = backend.parameters.tokens.of_stored([key])
    backend.start_batch([token])
    backend.context.token = token
    try:
        if namespace is not None:
            for handle in handles:
                handle.set_namespace(namespace)
        yield
    finally:
        backend.context.token = NO_KEY
        backend.end_batch()


def read_cut(cut: KeyedCut) -> Content:
    """Read a cut to the end and release it."""
    content = [(table.meta, list(table.batches())) for table in cut.tables()]
    cut.release()
    return content


def rescale(
    driver: BackendDriver, contents: Sequence[Content], parallelism: int, max_parallelism: int = 128
) -> list[KeyedStateBackend]:
    """Backends of `parallelism` new subtasks that hold what the old subtasks wrote."""
    ranges = [
        compute_key_group_range_for_operator_index(max_parallelism, parallelism, index)
        for index in range(parallelism)
    ]
    rows = [state for content in contents for state in content]
    return [
        driver.open(max_parallelism=max_parallelism, key_groups=key_groups, content=rows)
        for key_groups in ranges
    ]
