"""Snapshots that many tests look at; taken once."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.state_processor import jobs

ELEMENTS = [(f"k{number % 20}", number) for number in range(200)]


@pytest.fixture(scope="session")
def savepoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    return jobs.take_savepoint(tmp_path_factory.mktemp("savepoint"), ELEMENTS)


@pytest.fixture(scope="session")
def incremental(tmp_path_factory: pytest.TempPathFactory) -> str:
    return jobs.retained_checkpoint(tmp_path_factory.mktemp("incremental"), ELEMENTS)


@pytest.fixture(scope="session")
def chains(tmp_path_factory: pytest.TempPathFactory) -> str:
    return jobs.retained_checkpoint(tmp_path_factory.mktemp("chains"), ELEMENTS, heap=True)


@pytest.fixture(params=["savepoint", "incremental", "chains"])
def snapshot(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def totals() -> dict[str, int]:
    result: dict[str, int] = {}
    for key, number in ELEMENTS:
        result[key] = result.get(key, 0) + number
    return result


@pytest.fixture
def target(tmp_path: Path) -> str:
    return str(tmp_path / "new")
