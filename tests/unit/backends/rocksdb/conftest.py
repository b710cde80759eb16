"""RocksDB backends with good defaults for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tidemark.backends.rocksdb import RocksDBKeyedStateBackend
from tidemark.clock import ManualClock
from tidemark.state.backend import BackendParameters
from tidemark.state.serializers import serializer_for
from tidemark.types.typeinfo import Types


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000)


@pytest.fixture
def make(tmp_path: Path, clock: ManualClock) -> Iterator[Callable[..., RocksDBKeyedStateBackend]]:
    """Makes backends that share a clock, and closes them after the test."""
    made: list[RocksDBKeyedStateBackend] = []

    def factory(
        key_type: Any = None,
        key_groups: tuple[int, int] = (0, 127),
        directory: Path | None = tmp_path,
        **options: Any,
    ) -> RocksDBKeyedStateBackend:
        parameters = BackendParameters(
            serializer_for(Types.LONG() if key_type is None else key_type),
            128,
            key_groups,
            clock,
            directory=directory,
            options=options,
        )
        made.append(RocksDBKeyedStateBackend(parameters))
        return made[-1]

    yield factory
    for backend in made:
        backend.close()
