"""Worker of Pathway: rows counted and summed up by key with `groupby().reduce()`, one process with a thread per slot.

Settings: rows come from a CSV file by its own reader, whose time counts; no persistence. Results are told by key and
moment, not by record, so that of each key the last ones are checked. Steady state: time of the run less that of one
over few rows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from suite.work import Rows
from suite.worker import MARK, Case, answer, timed

FEW = 1_000


def run(case: Case, rows: Rows, folder: Path) -> float:
    """Seconds of a run in a process of its own, since a process runs one graph; its result is checked.

    Raises:
        RuntimeError: The result is wrong, or there is none.
    """
    data = folder / f"rows-{rows.records}"
    data.mkdir(exist_ok=True)
    keys = rows.key_column(np.arange(rows.records))
    np.savetxt(
        data / "rows.csv",
        np.stack([keys, keys + 1], axis=1),
        fmt="%d",
        delimiter=",",
        header="k,v",
        comments="",
    )
    surroundings = dict(os.environ, PATHWAY_THREADS=str(case.slots), PATHWAY_MONITORING_SERVER="")
    done = subprocess.run(
        [sys.executable, __file__, "--graph", str(data)], env=surroundings, capture_output=True, text=True
    )
    for line in done.stdout.splitlines():
        if line.startswith(MARK):
            seconds, found = json.loads(line.removeprefix(MARK))
            counts = rows.counts()
            held = np.flatnonzero(counts)
            wanted = {str(key): [int(counts[key]), int(counts[key]) * (int(key) + 1)] for key in held}
            if found != wanted:
                raise RuntimeError("Pathway gave other totals.")
            return float(seconds)
    raise RuntimeError(f"Pathway gave no result: {done.stderr[-300:]}")


def graph(data: str) -> None:
    """The graph, and how long it ran."""
    import pathway as pw

    class Row(pw.Schema):
        k: int
        v: int

    found: dict[int, tuple[int, int]] = {}

    def take(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if is_addition:
            found[row["k"]] = row["n"], row["total"]

    rows = pw.io.csv.read(data, schema=Row, mode="static")
    totals = rows.groupby(rows.k).reduce(rows.k, n=pw.reducers.count(), total=pw.reducers.sum(rows.v))
    pw.io.subscribe(totals, on_change=take)
    seconds, _ = timed(lambda: pw.run(monitoring_level=pw.MonitoringLevel.NONE))
    print(MARK + json.dumps([seconds, found]), flush=True)


def measure(case: Case) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="bench-pathway-") as scratch:
        few = run(case, Rows(FEW, case.keys, case.kind), Path(scratch))
        whole = run(case, Rows(case.records, case.keys, case.kind), Path(scratch))
    seconds = whole - few
    return {
        "rate": case.records / seconds,
        "rate_per_core": case.records / seconds / case.slots,
        "steady_s": seconds,
        "startup_s": few,
        "correct": True,
    }


if __name__ == "__main__":
    if sys.argv[1] == "--graph":
        graph(sys.argv[2])
    else:
        answer(measure)
