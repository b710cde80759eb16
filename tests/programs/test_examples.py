"""Every program in `examples/` runs in the local executor and prints what it should.

The expected lines follow from PyFlink's rules and were checked by hand (print format, window bounds,
timers at the end of input). Order counts, except where keys share a line of time: their order is free.
"""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path

import pytest

# Need Spark: run by tests/integration/test_processor.py and test_queryable_on_spark.py.
ON_SPARK = {"live_state_as_sql", "savepoint_as_dataframe"}
# Needs a broker: run by tests/kafka/test_example.py.
ON_KAFKA = {"kafka_to_kafka"}
EXAMPLES = [
    path
    for path in sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
    if path.stem not in ON_SPARK | ON_KAFKA
]
# Shows what PyFlink has not, so it imports the flat names.
BEYOND_FLINK = {"batch_totals", "queryable_dashboard", "window_totals"}
EXPECTED = Path(__file__).parent / "expected"
FREE_ORDER = {
    "aggregate_window",
    "process_function",
    "remote_model_inference",
    "session_expiry",
    "session_with_dynamic_gap_window",
    "session_with_gap_window",
    "sliding_time_window",
    "tumbling_time_window",
    "word_count",
}


@pytest.fixture(autouse=True)
def _local(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # where examples leave their files
    monkeypatch.setenv("TIDEMARK_EXECUTION_TARGET", "local")
    monkeypatch.setattr(sys, "argv", ["example"])


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_prints_the_expected_lines(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    expected = (EXPECTED / f"{path.stem}.txt").read_text().splitlines()

    runpy.run_path(str(path), run_name="__main__")

    printed = capfd.readouterr().out.splitlines()
    if path.stem in FREE_ORDER:
        printed, expected = sorted(printed), sorted(expected)
    assert printed == expected


@pytest.mark.parametrize(
    "path", [path for path in EXAMPLES if path.stem not in BEYOND_FLINK], ids=lambda path: path.stem
)
def test_example_imports_only_names_pyflink_has_under_the_same_path(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tidemark"):
            assert node.module.split(".")[1] in {"common", "datastream", "state_processor"}, node.module


def test_every_expected_file_belongs_to_an_example() -> None:
    assert {path.stem for path in EXPECTED.glob("*.txt")} == {path.stem for path in EXAMPLES}
