"""What every keyed state backend must do, as a test suite to subclass.

::

    class TestMyBackend(BackendContract):
        def create(self, parameters):
            return MyBackend(parameters)

The suite is made of three parts: what the kinds of state mean, how they expire, and what snapshots hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tidemark.state.backend import BackendParameters, KeyedStateBackend
from tidemark.testing.backend_contract_snapshots import SnapshotContract
from tidemark.testing.backend_contract_states import StatesContract
from tidemark.testing.backend_contract_ttl import TtlContract
from tidemark.testing.backend_driver import BackendDriver

__all__ = ["BackendContract"]


class BackendContract(StatesContract, TtlContract, SnapshotContract):
    """Subclasses define `create`."""

    def create(self, parameters: BackendParameters) -> KeyedStateBackend:
        """Make the backend under test; `parameters.directory` does not exist yet."""
        raise AssertionError("Define create() in the subclass.")

    @pytest.fixture
    def driver(self, tmp_path: Path) -> Iterator[BackendDriver]:
        """Makes backends, and closes them after the test."""
        driver = BackendDriver(self.create, tmp_path)
        yield driver
        driver.close()
