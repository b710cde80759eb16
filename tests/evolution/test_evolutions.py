"""Every evolution of the table, in every kind of state, on every backend and across backends."""

from __future__ import annotations

import pytest
from tests.evolution.conftest import Define
from tests.evolution.containers import BACKENDS, CONTAINERS, take
from tests.evolution.table import EVERYWHERE, EVOLUTIONS

ROUTES = [
    ("heap", "heap"),
    ("rocksdb", "rocksdb"),
    ("rocksdb files", "rocksdb"),
    ("heap", "rocksdb"),
    ("rocksdb", "heap"),
]
NO_MIGRATIONS = ("window",)
"""States whose descriptor is not the user's."""


def old_state(define: Define, name: str, container: str, backend: str):
    program = define(EVOLUTIONS[name].old)
    with CONTAINERS[container].open(program.TYPE, [], BACKENDS[backend]()) as harness:
        CONTAINERS[container].write(harness, program.VALUES)
        return take(harness, backend)


def check(define: Define, name: str, container: str, route: tuple[str, str]) -> None:
    evolution, kind = EVOLUTIONS[name], CONTAINERS[container]
    snapshot = old_state(define, name, container, route[0])
    program = define(evolution.new)
    migrations = getattr(program, "MIGRATIONS", [])
    harness = kind.open(program.TYPE, migrations, BACKENDS[route[1]]())

    if evolution.error is not None:
        message = evolution.error.replace("'state'", f"'{kind.state}'")
        with pytest.raises(evolution.error_type, match=f"(?s){message}"):
            harness.initialize_state(snapshot)
            harness.open()
        harness.close()
        return
    harness.initialize_state(snapshot)
    expected = [kind.wrap(value) for value in program.EXPECTED]
    # The next savepoint is of the new type: the new program takes it as it is, without a migration.
    again = kind.open(program.TYPE, [], BACKENDS[route[0]]())
    with harness:
        following = take(harness, route[1])
        assert kind.read(harness, len(expected)) == expected
    again.initialize_state(following)
    with again:
        assert kind.read(again, len(expected)) == expected


@pytest.mark.parametrize("route", ROUTES, ids=" to ".join)
@pytest.mark.parametrize("name", EVOLUTIONS)
def test_value_state_evolves(define: Define, name: str, route: tuple[str, str]) -> None:
    check(define, name, "value", route)


@pytest.mark.parametrize("route", [("heap", "rocksdb"), ("rocksdb", "heap")], ids=" to ".join)
@pytest.mark.parametrize("container", [name for name in CONTAINERS if name != "value"])
@pytest.mark.parametrize("name", EVERYWHERE)
def test_every_kind_of_state_evolves(
    define: Define, name: str, container: str, route: tuple[str, str]
) -> None:
    if container in NO_MIGRATIONS and "MIGRATIONS" in EVOLUTIONS[name].new:
        pytest.skip("the state of windows has no descriptor of the user's")

    check(define, name, container, route)
