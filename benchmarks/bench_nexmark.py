"""Nexmark: our queries by record and by column beside Flink SQL in the JVM. `make bench-nexmark`.

Every query that needs no outside system, parallelism 2, heap, on the same events (`suite/nexmark_events.py`), in turns:
- tidemark, functions of single records (`suite/nexmark_records.py`) and columns (`suite/nexmark_columns.py`), in
  continuous execution, rows made of the numbers of its own sequence source;
- Flink SQL (`suite/nexmark_sql.py`) on the mini cluster, with mini-batches and without, rows made of `fromSequence`.

First all of them run over few events, and what they give must be the same: number and checksum of the rows, or of those
that stay where later rows replace earlier ones. Then they are timed over many, tidemark from the first row made to the
last row made or result given, Flink as in `bench_totals.py`; results that no order can change are compared again.
Rates count the events that a query reads. CPU time is that of all processes of a system, less that of the run over few
events: it says more than the rate if the machine has other work.

    python benchmarks/bench_nexmark.py --queries q0 q5 q20 --events 1000000 --systems record batch
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import cloudpickle
from jobs import environment
from measure import CpuMeter, median, progress, tuned_session
from suite import nexmark, nexmark_columns, nexmark_events, nexmark_records, nexmark_site
from suite.flink_java import FlinkSql
from suite.nexmark_site import REPLACING, UNCHECKED, Site, added_up, events_read, staying, wrapped
from suite.nexmark_sql import QUERIES as SQL
from suite.peers import PeerMissingError

HERE = Path(__file__).resolve().parent
SYSTEMS = {
    "record": "tidemark, by record",
    "batch": "tidemark, by column",
    "flink": "Flink SQL",
    "flink-mini": "Flink SQL, mini-batches",
}
PROGRAMS: dict[str, dict[str, Callable[[Site], Any]]] = {
    "record": nexmark_records.QUERIES,
    "batch": nexmark_columns.QUERIES,
}
FEW = 100_000
FIGURES = nexmark.longs(3)
Rates = dict[str, dict[str, list[tuple[float, float]]]]
"""Query -> system -> events per second and CPU microseconds per event, of each round."""


def run(system: str, query: str, events: int, target: str) -> tuple[float, tuple[int, int] | None]:
    """Seconds of one of our jobs, and number and checksum of its rows if no order can change them."""
    with tempfile.TemporaryDirectory(prefix="bench-nexmark-") as times:
        site = Site(_environment(target), events, Path(times))
        stream = PROGRAMS[system][query](site).map_batch(added_up, output_type=FIGURES)
        with stream.execute_and_collect(query) as results:
            found = list(results)
        began, last = site.made()
    ended = max([last, *[result[2] for result in found]])
    checked = query not in UNCHECKED and query not in REPLACING and query != "q19"
    figures = sum(result[0] for result in found), wrapped(sum(result[1] for result in found))
    return (ended - began) / 1e9, figures if checked else None


def view(system: str, query: str, events: int, target: str) -> tuple[int, int]:
    """Number and checksum of the rows of a query that stay."""
    if query not in REPLACING and query != "q19":
        figures = run(system, query, events, target)[1]
        assert figures is not None
        return figures
    with tempfile.TemporaryDirectory(prefix="bench-nexmark-") as times:
        stream = PROGRAMS[system][query](Site(_environment(target), events, Path(times)))
        with stream.execute_and_collect(query) as results:
            return staying(query, list(map(tuple, results)))


def _environment(target: str) -> Any:
    settings = {"execution.target": "local"} if target == "local" else {"execution.mode": "continuous"}
    return environment("heap", 2, **settings)


class Contest:
    """All systems, each at hand for its turn."""

    def __init__(self, systems: list[str]) -> None:
        for module in (nexmark, nexmark_columns, nexmark_events, nexmark_records, nexmark_site):
            cloudpickle.register_pickle_by_value(sys.modules[module.__name__])
        self.systems = list(systems)
        self._flink: FlinkSql | None = None
        if any(system.startswith("flink") for system in systems):
            try:
                self._flink = FlinkSql()
            except PeerMissingError as exc:
                print(f"Without Flink, which cannot be had here: {exc}")
                self.systems = [system for system in systems if not system.startswith("flink")]
        self._few: dict[tuple[str, str], float] = {}
        """CPU seconds of our jobs over few events."""
        self._spark = tuned_session("tidemark bench-nexmark") if {"record", "batch"} & set(systems) else None

    def takes(self, query: str) -> list[str]:
        """Systems that have a query."""
        return [system for system in self.systems if system.startswith("flink") or query in PROGRAMS[system]]

    def result(self, system: str, query: str) -> tuple[int, int] | None:
        """What a query gives over few events; None if that depends on when they come."""
        if self._flink is not None and system.startswith("flink"):
            found = self._flink.result(SQL[query], FEW, system == "flink-mini")
            return None if query in UNCHECKED else found
        with CpuMeter() as meter:
            if query in UNCHECKED:
                run(system, query, FEW, "spark")
                given = None
            else:
                given = view(system, query, FEW, "spark")
        self._few[system, query] = meter.seconds
        return given

    def timed(self, system: str, query: str, events: int) -> tuple[float, float, tuple[int, int] | None]:
        """Events per second and CPU microseconds per event of a turn, and what can be compared of its results."""
        read = events_read(query, events)
        if self._flink is not None and system.startswith("flink"):
            seconds, used, found = self._flink.seconds(SQL[query], events, system == "flink-mini")
            loose = query in UNCHECKED or query in REPLACING or query == "q19"
            return read / seconds, used / read * 1e6, None if loose else found
        with CpuMeter() as meter:
            seconds, figures = run(system, query, events, "spark")
        used = max(meter.seconds - self._few[system, query], 0.001)
        return read / seconds, used / (read - events_read(query, FEW)) * 1e6, figures

    def close(self) -> None:
        if self._flink is not None:
            self._flink.close()
        if self._spark is not None:
            self._spark.stop()


def same(query: str, found: dict[str, Any]) -> None:
    """All that can be compared is equal.

    Raises:
        RuntimeError: It is not.
    """
    known = {system: each for system, each in found.items() if each is not None}
    if len(set(known.values())) > 1:
        raise RuntimeError(f"{query} gave {known}.")


def measure(arguments: argparse.Namespace) -> Rates:
    contest = Contest(arguments.systems)
    rates: Rates = {query: defaultdict(list) for query in arguments.queries}
    try:
        for system in contest.systems:
            progress(f"warm-up of {SYSTEMS[system]}")
            contest.result(system, "q0")
        for turn in range(arguments.rounds + 1):
            progress(f"round {turn} of {arguments.rounds}" if turn else "results compared over few events")
            for query in arguments.queries:
                found: dict[str, Any] = {}
                for system in contest.takes(query):
                    gc.collect()
                    if not turn:
                        found[system] = contest.result(system, query)
                        continue
                    rate, used, found[system] = contest.timed(system, query, arguments.events)
                    rates[query][system].append((rate, used))
                    progress(f"{query}, {SYSTEMS[system]}: {rate:,.0f} /s, {used:.2f} us")
                same(query, found)
                if not turn:
                    progress(f"{query}: {found}")
    finally:
        contest.close()
    return rates


def table(rates: Rates, systems: list[str]) -> list[str]:
    """In Markdown: medians of rates and CPU times, and how the better of ours stands to the better Flink by either."""
    lines = [
        f"| 1,000 events/s, CPU us | {' | '.join(SYSTEMS[system] for system in systems)} | rate, CPU : Flink |",
        "|---" * (len(systems) + 2) + "|",
    ]
    for query, held in rates.items():
        middle = {
            system: tuple(median(column) for column in zip(*turns, strict=True))
            for system, turns in held.items()
        }
        cells = [
            f"{middle[system][0] / 1e3:,.0f}, {middle[system][1]:.2f}" if system in middle else ""
            for system in systems
        ]
        flink, ours = (
            [figures for system, figures in middle.items() if system.startswith("flink") == is_flink]
            for is_flink in (True, False)
        )
        ratio = ""
        if flink and ours:
            faster = max(rate for rate, _ in ours) / max(rate for rate, _ in flink)
            cheaper = min(used for _, used in ours) / min(used for _, used in flink)
            ratio = f"{faster:.1f}, {cheaper:.2f}"
        lines.append(f"| {query} | {' | '.join(cells)} | {ratio} |")
    return lines


def main() -> None:
    warnings.filterwarnings("ignore", category=FutureWarning)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queries", nargs="+", choices=list(SQL), default=list(SQL))
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--events", type=int, default=2_000_000, help="of the site, a multiple of 100")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path, help="file that rates are added to, as JSON")
    arguments = parser.parse_args()
    kept = arguments.out or HERE / "results" / f"{date.today().isoformat()}-nexmark.json"
    rates = measure(arguments)
    kept.parent.mkdir(parents=True, exist_ok=True)
    before: Rates = json.loads(kept.read_text()) if kept.exists() else {}
    merged = {query: rates.get(query) or before[query] for query in SQL if query in rates or query in before}
    kept.write_text(json.dumps(merged, indent=1))
    print("\n".join(table(merged, arguments.systems)))


if __name__ == "__main__":
    main()
