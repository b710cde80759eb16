"""Jobs that are stopped with a savepoint and started again as another version of themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.evolution.conftest import Define
from tests.evolution.containers import BACKENDS
from tests.evolution.jobs import KEYS, found, savepoint_of
from tests.evolution.table import EVOLUTIONS

from tidemark.errors import JobExecutionException, StateMigrationException

pytestmark = pytest.mark.modes("epochs", "auto")

CHANGES = [
    "a field with a default is added",
    "a nested class gains and loses fields",
    "a class is renamed, and says so",
    "a field changes its type, with a migration",
    "avro: a field is renamed with an alias",
    "custom: after migration",
    "composite: a nested serializer is reconfigured",
]
REFUSED = ["a field changes its type", "avro: the record is renamed", "custom: the snapshot class is gone"]
ROUTES = [("heap", 1, "rocksdb", 2), ("rocksdb", 2, "heap", 3)]


@pytest.mark.parametrize("route", ROUTES, ids=str)
@pytest.mark.parametrize("name", CHANGES)
def test_a_job_goes_on_as_its_next_version(
    define: Define, tmp_path: Path, name: str, route: tuple[str, int, str, int]
) -> None:
    backend, parallelism, next_backend, next_parallelism = route
    path = savepoint_of(define(EVOLUTIONS[name].old), parallelism, BACKENDS[backend](), tmp_path)
    program = define(EVOLUTIONS[name].new)

    values = found(program, next_parallelism, BACKENDS[next_backend](), path)

    assert values == {key: program.EXPECTED[key % len(program.EXPECTED)] for key in range(KEYS)}


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
@pytest.mark.parametrize("name", REFUSED)
def test_a_job_whose_state_cannot_follow_fails_and_says_why(
    define: Define, tmp_path: Path, name: str, backend: str
) -> None:
    path = savepoint_of(define(EVOLUTIONS[name].old), 2, BACKENDS[backend](), tmp_path)
    program = define(EVOLUTIONS[name].new)

    with pytest.raises(JobExecutionException, match="'state'") as failure:
        found(program, 2, BACKENDS[backend](), path)

    assert isinstance(failure.value.__cause__, StateMigrationException)


def test_a_nested_snapshot_class_fails_the_savepoint_and_the_job_goes_on(
    define: Define, tmp_path: Path
) -> None:
    from tests.evolution.jobs import start
    from tests.evolution.test_keys_and_limits import NESTED_SNAPSHOT
    from tests.recovery.local_jobs import DEADLINE

    program = define(NESTED_SNAPSHOT + "TYPE = Text()\nVALUES = ['a']\n")
    _board, results = start(program, 1, None, None, bounded=False)
    client = results.get_job_client()

    with pytest.raises(Exception, match=r"Text\.Snapshot is nested or local"):
        client.trigger_savepoint(str(tmp_path)).result(DEADLINE)

    client.cancel().result(DEADLINE)
