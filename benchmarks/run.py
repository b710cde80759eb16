"""The side-by-side suite: tidemark, PyFlink, Spark's own state and Bytewax at the same work. `make bench`.

Each measurement is a process of its own in its system's own environment; repetitions go round all cases, so that
a slower hour of the machine meets all of them. Every result is checked. Figures land in
`benchmarks/results/<date>-<mode>/`: `raw.jsonl` as they come, `report.md` and `report.png` at the end.

    python benchmarks/run.py --mode quick
    python benchmarks/run.py --mode full --only value nexmark --repeat 3
    python benchmarks/run.py --report benchmarks/results/2026-01-31-full     # write the report again
"""

from __future__ import annotations

import argparse
import json
import re
import time
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path
from typing import Any

from suite.peers import SYSTEMS, run_case
from suite.plan import PLANS, Entry
from suite.report import machine, write_report

RESULTS = Path(__file__).resolve().parent / "results"
QUICK_BUDGET_S = 225.0


def selected(arguments: argparse.Namespace) -> list[Entry]:
    entries = PLANS[arguments.mode]()
    if arguments.only:
        entries = [entry for entry in entries if entry.group in arguments.only]
    if arguments.match:
        entries = [entry for entry in entries if re.search(arguments.match, entry.label)]
    if arguments.systems:
        entries = [entry for entry in entries if entry.case.system in arguments.systems]
    if arguments.scale != 1.0:
        entries = [_scaled(entry, arguments.scale) for entry in entries]
    if not entries:
        raise SystemExit("Nothing is left to measure; see --only, --match and --systems.")
    return entries


def _scaled(entry: Entry, scale: float) -> Entry:
    case = entry.case
    records = max(1_000, int(case.records * scale))
    keys = max(100, int(case.keys * scale)) if case.state in ("recovery", "rescale", "memory") else case.keys
    return replace(entry, case=replace(case, records=records, keys=keys))


def measure(entries: list[Entry], arguments: argparse.Namespace, folder: Path) -> None:
    started = time.monotonic()
    turns = [
        (repetition, entry)
        for repetition in range(arguments.repeat)
        for entry in entries
        if repetition < (entry.repeat or arguments.repeat)
    ]
    with (folder / "raw.jsonl").open("a") as raw:
        raw.write(json.dumps({"machine": machine()}) + "\n")
        for number, (repetition, entry) in enumerate(turns, 1):
            left = arguments.budget - (time.monotonic() - started)
            if left <= 0:
                result: dict[str, Any] = {"error": "not run: the time of this mode was used up"}
            else:
                result = run_case(entry.case, min(arguments.timeout, max(left, 60.0)))
            line = {"group": entry.group, "label": entry.label, "case": asdict(entry.case), "result": result}
            raw.write(json.dumps(line) + "\n")
            raw.flush()
            print(
                f"[{number}/{len(turns)}] {repetition + 1}. {entry.group}: {entry.label}, {entry.case.system}: "
                f"{_short(result)}",
                flush=True,
            )


def _short(result: dict[str, Any]) -> str:
    if "error" in result:
        return str(result["error"])
    wrong = "" if result.get("correct") else "WRONG RESULT, "
    if "rate" in result:
        return f"{wrong}{result['rate']:,.0f} records/s"
    shown = {key: round(value, 2) for key, value in result.items() if isinstance(value, float)}
    return f"{wrong}{shown}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mode", choices=sorted(PLANS), default="quick", help="quick: under five minutes")
    parser.add_argument(
        "--only", nargs="+", metavar="GROUP", help="value state ttl window broadcast checkpoint ..."
    )
    parser.add_argument("--match", metavar="REGEX", help="only cases whose label it is found in")
    parser.add_argument("--systems", nargs="+", choices=sorted(SYSTEMS), help="leave the others out")
    parser.add_argument("--repeat", type=int, help="repetitions of every case (quick: 1, full: 3)")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the rows, to try the suite out")
    parser.add_argument("--timeout", type=float, default=1800.0, help="seconds for one measurement")
    parser.add_argument("--budget", type=float, help="seconds after which nothing new starts")
    parser.add_argument("--out", type=Path, help="folder of the results")
    parser.add_argument("--report", type=Path, metavar="FOLDER", help="only write the report of a folder")
    arguments = parser.parse_args()
    if arguments.report is not None:
        print(write_report(arguments.report))
        return
    quick = arguments.mode == "quick"
    arguments.repeat = arguments.repeat or (1 if quick else 3)
    arguments.budget = arguments.budget or (QUICK_BUDGET_S if quick else float("inf"))
    folder = arguments.out or RESULTS / f"{date.today().isoformat()}-{arguments.mode}"
    folder.mkdir(parents=True, exist_ok=True)
    measure(selected(arguments), arguments, folder)
    print(write_report(folder))


if __name__ == "__main__":
    main()
