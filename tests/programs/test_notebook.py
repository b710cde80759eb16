"""The notebook in `examples/` runs from top to bottom and prints what is stored in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb", reason="this environment is older than requirements.lock: run make setup")

NOTEBOOK = Path(__file__).parents[2] / "examples" / "savepoint_notebook.ipynb"


@pytest.mark.modes("auto", reason="the cells say how the job runs: as a user's would")
def test_cells_print_what_the_notebook_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIDEMARK_EXECUTION_TARGET", "local")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]

    for number, cell in enumerate(cells):
        capfd.readouterr()
        exec(compile("".join(cell["source"]), f"cell {number}", "exec"), namespace)
        stored = "".join(text for output in cell["outputs"] for text in output["text"])
        assert capfd.readouterr().out == stored, f"cell {number}"
