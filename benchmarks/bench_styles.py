"""Where each style wins: a slot's rate against the number of keys and the size of batches. `make bench-styles`.

The work is that of a slot, as in `bench_columns.py`: Arrow frames in, Arrow frames out, no Spark, no socket. Styles
take turns in one process; rates are records per second of CPU time of the thread that works, medians of three rounds.
- `process`: running count and sum of a key in a `KeyedProcessFunction`; `process_batch`: the same by column;
- `reduce` with a Python function, and `sum` by column;
- tumbling windows of ten records per key: an `AggregateFunction`, and `sum_` and `count` by column.

Tables are printed and kept with a plot in `benchmarks/results/<date>-styles/`.

    python benchmarks/bench_styles.py --backend rocksdb --only keys
"""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from bench_columns import FRAME, Slot, all_keys, cpu
from bench_window import CASES, add
from measure import median, progress
from suite.peers import drawn
from totals import PAIR, TRIPLE, BatchTotals, RecordTotals

from tidemark.api.specs import ReduceSpec
from tidemark.api.stateful_functions import SumFunction
from tidemark.operators.base import Operator
from tidemark.operators.batch_process import BatchProcessOperator
from tidemark.operators.factory import create_operator
from tidemark.operators.keyed import KeyedProcessOperator
from tidemark.protocol.batch import MAX_WATERMARK
from tidemark.protocol.codec import codec_for
from tidemark.state.key_tokens import key_serializer_for
from tidemark.types.typeinfo import Types

HERE = Path(__file__).resolve().parent
LONG = Types.LONG()
WINDOW_ROW = Types.ROW_NAMED(["k", "window_start", "window_end", "total", "n"], [LONG] * 5)
ROUNDS = 3
RECORDS = 4 * FRAME
WINDOW_KEYS = 100_000
"""Windows are not measured with more keys: they would need ten records of each."""

STYLES: dict[str, tuple[Callable[[], Operator], Any]] = {
    "process": (lambda: KeyedProcessOperator(RecordTotals(), LONG), TRIPLE),
    "process_batch": (lambda: BatchProcessOperator(BatchTotals(), LONG, PAIR, TRIPLE), TRIPLE),
    "reduce": (lambda: create_operator(ReduceSpec(add), LONG, [PAIR]), PAIR),
    "sum": (lambda: create_operator(ReduceSpec(SumFunction(1)), LONG, [PAIR]), PAIR),
    "window, AggregateFunction": (
        lambda: create_operator(CASES["tumbling 1 s, aggregate"](), LONG, [PAIR]),
        LONG,
    ),
    "window, sum_ and count": (
        lambda: create_operator(CASES["tumbling 1 s, by column"](), LONG, [PAIR]),
        WINDOW_ROW,
    ),
}
Frame = tuple[int, Any, int]
"""Flags, bytes, and the last timestamp."""


def frames(keys: int, size: int, records: int) -> list[Frame]:
    """Frames of random keys; a second of event time has ten records per key."""
    rng, codec = np.random.default_rng(1), codec_for(PAIR, key_serializer_for(LONG))
    made = []
    for start in range(0, records, size):
        key = pa.array(rng.integers(0, keys, size) * 7919)
        value = pa.array(rng.integers(0, 100, size))
        stamps = np.arange(start, start + size) * 100 // keys
        column = pa.StructArray.from_arrays([key, value], ["f0", "f1"])
        made.append((*codec.encode_column(column, pa.array(stamps), key), int(stamps[-1])))
    return made


def seconds(style: str, backend: str, keys: int, work: list[Frame]) -> float:
    """CPU seconds of a slot with the frames; a function of single keys has seen all of them before."""
    make, results = STYLES[style]
    windows = style.startswith("window")
    with tempfile.TemporaryDirectory() as scratch:
        slot = Slot(make(), backend, Path(scratch) / "state", results)
        if not windows:
            for frame in all_keys(keys):
                slot.take(*frame)
        gc.collect()

        def take() -> None:
            for flags, frame, last in work:
                slot.take(flags, frame)
                if windows:
                    slot.advance(last - 1)
            if windows:
                slot.advance(MAX_WATERMARK)

        spent = cpu(take)
        slot.subtask.close()
    return spent


def points(part: str) -> Iterator[tuple[int, int, int]]:
    """Where on the axis, number of keys, rows of a batch."""
    if part == "keys":
        yield from ((keys, keys, FRAME) for keys in (10, 100, 1_000, 10_000, 100_000, 1_000_000))
    else:
        yield from ((size, 10_000, size) for size in (16, 64, 256, 1_024, 4_096, 16_384, 65_536))


def measure(part: str, backend: str) -> Iterator[dict[str, Any]]:
    for at, keys, size in points(part):
        progress(f"{part} {at:,}")
        work = {False: frames(keys, size, RECORDS)}
        if keys <= WINDOW_KEYS:
            work[True] = frames(keys, size, max(RECORDS, -(-10 * keys // size) * size))
        spent: dict[str, list[float]] = {style: [] for style in STYLES if style.startswith("window") in work}
        for _ in range(ROUNDS):
            for style, held in spent.items():
                chosen = work[style.startswith("window")]
                held.append(seconds(style, backend, keys, chosen) / (len(chosen) * size))
        for style, held in spent.items():
            yield {"part": part, "at": at, "style": style, "backend": backend, "rate": 1 / median(held)}


def tables(rows: list[dict[str, Any]]) -> list[str]:
    """In Markdown: millions of records per second."""
    lines = []
    for part, title in (("keys", f"batches of {FRAME:,}: keys"), ("size", "10,000 keys: rows of a batch")):
        chosen = {(row["at"], row["style"]): row["rate"] for row in rows if row["part"] == part}
        if not chosen:
            continue
        lines += [f"| {title} | {' | '.join(STYLES)} |", "|---" * (len(STYLES) + 1) + "|"]
        for at in sorted({at for at, _ in chosen}):
            cells = [f"{chosen[at, style] / 1e6:.2f}" if (at, style) in chosen else "" for style in STYLES]
            lines.append(f"| {at:,} | {' | '.join(cells)} |")
        lines.append("")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=("keys", "size"), default=["keys", "size"])
    parser.add_argument("--backend", choices=("heap", "rocksdb"), default="heap")
    parser.add_argument("--out", type=Path, help="folder of the results")
    arguments = parser.parse_args()
    folder = arguments.out or HERE / "results" / f"{date.today().isoformat()}-styles"
    folder.mkdir(parents=True, exist_ok=True)
    rows = [row for part in arguments.only for row in measure(part, arguments.backend)]
    (folder / "styles.json").write_text(json.dumps(rows, indent=1))
    lines = tables(rows)
    (folder / "styles.md").write_text("\n".join(lines))
    print("\n".join(lines))
    if drawn("styles_plot.py", folder):
        print(folder / "styles.png")


if __name__ == "__main__":
    main()
