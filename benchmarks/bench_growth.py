"""How the cost of a record grows: with keys, bytes of state, slots, and operators in a row. `make bench-growth`.

Whole jobs on Spark, running (count, sum) per key with a row for every row (`totals.py`; against bytes: a text per key
that every row replaces), by record and by column, one after the other in one session; every result is checked. Where
slots exceed cores, CPU time per record says what the rate cannot; that of a job over few rows is taken off it. Tables
are printed and kept with a plot in `benchmarks/results/<date>-growth/`; what is not measured again stays.

    python benchmarks/bench_growth.py --only keys slots --keys 100 10000 1000000
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from measure import EpochLog, epoch_log, progress, tuned_session
from suite.peers import drawn
from suite.work import Rows
from totals import Work, run_job

HERE = Path(__file__).resolve().parent
PARTS = ("keys", "bytes", "slots", "depth")
TITLES = {
    "keys": ("Keys", "keys"),
    "bytes": ("Bytes of state per key, 10,000 keys", "bytes per key"),
    "slots": ("Parallelism, 10,000 keys, heap, two cores", "slots"),
    "depth": ("Keyed operators in a row, 10,000 keys, heap, 2 slots", "operators"),
}
STYLES = ("record", "batch")
FEWER = 20
"""From the CPU time of a job that of one over so many times fewer rows is taken off: each slot's first imports."""
POINT = ("part", "at", "backend", "style")
"""What makes a figure another one than those of an earlier run."""
Row = dict[str, Any]


def points(part: str, arguments: argparse.Namespace) -> Iterator[tuple[int, str, Rows, Work]]:
    """What a part measures: where on its axis, on which backend, over which rows, which job."""
    records = arguments.records
    if part == "keys":
        for keys in arguments.keys:
            for backend in ("heap", "rocksdb"):
                yield keys, backend, Rows(max(records, keys), keys, "random"), Work(backend)
    elif part == "bytes":
        for size in (8, 64, 512, 4_096):
            for backend in ("heap", "rocksdb"):
                yield size, backend, Rows(records // 2, 10_000, "random"), Work(backend, text_bytes=size)
    elif part == "slots":
        for slots in (1, 2, 4, 8):
            yield slots, "heap", Rows(records, 10_000, "random"), Work("heap", slots=slots)
    else:
        for depth in range(1, 9):
            yield depth, "heap", Rows(records // 4, 10_000, "random"), Work("heap", depth=depth)


def measure(spark: Any, part: str, arguments: argparse.Namespace) -> Iterator[Row]:
    for at, backend, rows, work in points(part, arguments):
        for style in STYLES:
            progress(f"{part} {at:,}, {backend}, by {style}")
            few = replace(rows, records=rows.records // FEWER)
            with epoch_log(cpu=True) as log:
                start, job = (run_job(spark, log, each, work, style == "batch") for each in (few, rows))
                yield {
                    "part": part,
                    "at": at,
                    "backend": backend,
                    "style": style,
                    "rate": log.steady_rate(job),
                    "cpu_us": 1e6 * (cpu(log, job) - cpu(log, start)) / (rows.records - few.records),
                }


def cpu(log: EpochLog, job: str) -> float:
    """CPU seconds of all processes of a job while records were processed."""
    return sum(sum(epoch.cpu.values()) for epoch in log.of(job) if epoch.records)


def tables(rows: list[Row]) -> list[str]:
    """The tables in Markdown."""
    lines = []
    for part, (title, axis) in TITLES.items():
        chosen = [row for row in rows if row["part"] == part]
        if not chosen:
            continue
        curves = list(dict.fromkeys((row["style"], row["backend"]) for row in chosen))
        heads = [f"by {style}, {backend}" for style, backend in curves]
        lines += [f"## {title}", "", f"| {axis} | {' | '.join(heads)} |", "|---" * (len(curves) + 1) + "|"]
        for at in sorted({row["at"] for row in chosen}):
            cells = {
                (row["style"], row["backend"]): f"{row['rate'] / 1e6:.2f} M/s, {row['cpu_us']:.2f} us"
                for row in chosen
                if row["at"] == at
            }
            lines.append(f"| {at:,} | {' | '.join(cells.get(curve, '') for curve in curves)} |")
        lines.append("")
    return lines


def main() -> None:
    warnings.filterwarnings("ignore", category=FutureWarning)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument(
        "--records", type=int, default=2_000_000, help="rows of a job; as many as keys at least"
    )
    parser.add_argument("--keys", type=int, nargs="+", default=[10**power for power in range(2, 8)])
    parser.add_argument("--out", type=Path, help="folder of the results")
    arguments = parser.parse_args()
    folder = arguments.out or HERE / "results" / f"{date.today().isoformat()}-growth"
    folder.mkdir(parents=True, exist_ok=True)
    spark = tuned_session("tidemark bench-growth")
    kept = folder / "growth.json"
    held: list[Row] = json.loads(kept.read_text()) if kept.exists() else []
    rows = {tuple(row[name] for name in POINT): row for row in held}
    try:
        progress("warm-up")
        with epoch_log() as log:
            for style in (*STYLES, *STYLES):
                run_job(spark, log, Rows(1_000_000, 10_000, "random"), Work("heap"), style == "batch")
        for part in arguments.only:
            for row in measure(spark, part, arguments):
                rows[tuple(row[name] for name in POINT)] = row
                kept.write_text(json.dumps(list(rows.values()), indent=1))
    finally:
        spark.stop()
    lines = tables(list(rows.values()))
    (folder / "growth.md").write_text("\n".join(["Records per second and CPU time per record.", "", *lines]))
    print("\n".join(lines))
    if drawn("growth_plot.py", folder):
        print(folder / "growth.png")


if __name__ == "__main__":
    main()
