"""Benchmark of latency: the age of an event when it reaches the sink, continuous beside epochs. `make bench-latency`.

Work: a process sends lines with the time of their creation over a socket at a fixed rate; they are split, keyed,
counted in a `ValueState`, and a `SinkFunction` notes their age. The same program runs in both modes, one after the
other, and PyFlink's thread mode reads from the same kind of sender. The first half of a run is warming up and left out.
Each rate is run a second time over a state of 100,000 keys with a checkpoint each second. The ages over all rates are
written to `latency.json` in the results and drawn in `latency.png`. Throughput: a `NumberSequenceSource` read by tasks
in Python, as fast as the job can; the modes take turns, behind a short job of each that starts Python workers and warms
the JVM up. What barriers cost is `bench_barriers.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from jobs import environment
from measure import Table, progress, spread, tuned_session
from suite.latency import Ticker, figures_of, noted_ages
from suite.peers import drawn, run_case
from suite.tidemark_cases import CountAndPass, NoteLatency
from suite.worker import Case

from tidemark import NumberSequenceSource, Types, WatermarkStrategy

PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
MODES = ("continuous", "epochs")
PARTS = (*MODES, "flink", "throughput")
PATIENCE_S = 600.0
WARM_UP = 100_000
"""Records of the job before the measured ones."""
KEYS = 100_000
"""Of the state that is in every checkpoint."""
RESULTS = Path(__file__).resolve().parent / "results"


def split_line(line: str) -> tuple[int, int]:
    key, created = line.split(",")
    return int(key), int(created)


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("The job did not get on.")
        time.sleep(0.05)


def run_latency(mode: str, case: Case) -> dict[str, Any]:
    """Percentiles of the ages of one run."""
    with tempfile.TemporaryDirectory() as name, Ticker(case) as ticker:
        folder = Path(name)
        settings = {"execution.mode": mode}
        env = environment(case.backend, 2, folder / "checkpoints", case.checkpoint_ms, **settings)
        lines = env.socket_text_stream("127.0.0.1", ticker.port)
        keyed = lines.map(split_line, PAIR).key_by(lambda pair: pair[0], Types.LONG())
        ages = keyed.process(CountAndPass(), output_type=Types.LONG()).filter(lambda created: created > 0)
        ages.add_sink(NoteLatency(folder))
        client = env.execute_async(f"latency-{mode}")
        # A job that fails leaves the sender without its reader.
        client.get_job_execution_result().add_done_callback(lambda _done: ticker.stop())
        try:
            sent = ticker.sent()
        except ValueError:
            client.get_job_execution_result().result(PATIENCE_S)
            raise
        wait_until(lambda: client.get_progress()["records"] >= sent + case.options.get("fill", 0))
        client.stop_with_savepoint(True, str(folder / "savepoints")).result(PATIENCE_S)
        client.get_job_execution_result().result(PATIENCE_S)
        return figures_of(noted_ages(folder), sent)


def run_throughput(mode: str, records: int) -> float:
    """Records per second of a whole job with its start: results of epochs come late, so the first one marks nothing."""
    env = environment("heap", 2, **{"execution.mode": mode})
    numbers = env.from_source(NumberSequenceSource(1, records), WatermarkStrategy.no_watermarks(), "numbers")
    keyed = numbers.map(lambda n: (n % 1000, n), PAIR).key_by(lambda pair: pair[0], Types.LONG())
    results = keyed.process(CountAndPass(), output_type=Types.LONG()).filter(lambda n: n % 1000 == 0)
    started = time.perf_counter()
    with results.execute_and_collect(f"throughput-{mode}") as found:
        count = sum(1 for _ in found)
    if count != records // 1000:
        raise SystemExit(
            f"{mode} gave {count} results instead of {records // 1000}; its speed does not matter."
        )
    return records / (time.perf_counter() - started)


def compare_throughput(table: Table, records: int, turns: int) -> None:
    table.title("throughput of a Python source, whole jobs with their start, in turns")
    rates: dict[str, list[float]] = {mode: [] for mode in MODES}
    for mode in MODES:
        run_throughput(mode, WARM_UP)
    for turn in range(turns):
        for mode in MODES:
            progress(f"throughput, {mode}, turn {turn + 1}")
            rates[mode].append(run_throughput(mode, records))
    for mode, found in rates.items():
        table.row(mode, f"{statistics.median(found):,.0f}/s", spread(found))


def draw(figures: list[dict[str, Any]], *, add: bool) -> None:
    """Keep the figures, with those of other rates that are there if `add`, and draw them if matplotlib can be had."""
    RESULTS.mkdir(exist_ok=True)
    kept = RESULTS / "latency.json"
    if add and kept.exists():
        new = {(row["system"], row["rate"]) for row in figures}
        before = json.loads(kept.read_text())
        figures = [row for row in before if (row["system"], row["rate"]) not in new] + figures
    kept.write_text(json.dumps(figures, indent=2))
    if drawn("latency_plot.py", RESULTS):
        print(f"\n{RESULTS / 'latency.png'}")


def show(table: Table, what: str, figures: dict[str, Any]) -> None:
    correct = "" if figures["correct"] else "EVENTS ARE MISSING"
    table.row(what, f"{figures['p50_ms']:.1f} / {figures['p99_ms']:.1f} ms", correct)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rates", type=int, nargs="+", default=[100, 1_000, 3_000, 10_000])
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--records", type=int, default=2_000_000, help="of the throughput part")
    parser.add_argument("--turns", type=int, default=3, help="of each mode in the throughput part")
    parser.add_argument("--backend", choices=("heap", "rocksdb"), default="heap", help="of the ages")
    parser.add_argument("--add", action="store_true", help="draw figures of an earlier run, too")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    options = parser.parse_args()
    table = Table(width=48)
    # Workers and slots have to find the functions of the suite.
    here = str(Path(__file__).resolve().parent)
    os.environ["PYTHONPATH"] = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
    tuned_session("bench-latency", cores=6)
    modes = [mode for mode in MODES if mode in options.only]
    table.title("age of an event at the sink, p50 / p99")
    found: list[dict[str, Any]] = []
    paced: dict[str, Any]
    for rate in options.rates:
        paced = {"rate": rate, "seconds": options.seconds}
        for interval in (0, 1_000):
            label = f"{rate:,}/s" + (f", a checkpoint of {KEYS:,} keys each second" if interval else "")
            filled = {**paced, "fill": KEYS if interval else 0}
            case = Case(
                "",
                backend=options.backend,
                keys=KEYS if interval else 1_000,
                checkpoint_ms=interval,
                options=filled,
            )
            for mode in modes:
                progress(f"{mode}, {label}")
                figures = run_latency(mode, case)
                found.append(
                    {"system": mode + (", checkpoints" if interval else ""), "rate": rate, **figures}
                )
                show(table, f"{mode}, {label}", figures)
        if "flink" in options.only:
            peer = Case(
                "flink-thread", "latency", keys=1_000, options={**paced, "seconds": options.seconds * 3}
            )
            figures = run_case(peer, PATIENCE_S)
            if "error" in figures:
                table.row("PyFlink, thread mode", "-", str(figures["error"])[:60])
            else:
                found.append({"system": "PyFlink, thread mode", "rate": rate, **figures})
                show(table, f"PyFlink, thread mode, {rate:,}/s", figures)
    if found:
        draw(found, add=options.add)
    if "throughput" in options.only:
        compare_throughput(table, options.records, options.turns)
    table.exit()


if __name__ == "__main__":
    main()
