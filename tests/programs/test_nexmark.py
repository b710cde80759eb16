"""The queries of Nexmark by column give what those by record give: `benchmarks/bench_nexmark.py` on few events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

EVENTS = 4_000
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The benchmark's module."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import bench_nexmark

    return bench_nexmark


def test_queries_by_column_give_the_results_of_records(bench: Any) -> None:
    by_column = set(bench.PROGRAMS["batch"]) - bench.UNCHECKED

    found = {
        query: {system: bench.view(system, query, EVENTS, "local") for system in ("record", "batch")}
        for query in sorted(by_column)
    }

    assert {query: each["batch"] for query, each in found.items()} == {
        query: each["record"] for query, each in found.items()
    }
    assert all(rows > 0 for each in found.values() for rows, _ in each.values())


def test_every_query_has_a_form_by_record_and_one_in_sql(bench: Any) -> None:
    assert set(bench.SQL) == set(bench.PROGRAMS["record"])
    assert set(bench.SQL) - set(bench.PROGRAMS["batch"]) == {"q19"}
