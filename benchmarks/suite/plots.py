"""Draws `report.png` from `report.json`; runs in the environment that has matplotlib."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

COLOURS = {
    "tidemark": "#1f6f8b",
    "spark-pandas": "#e07a1f",
    "spark-row": "#f2b26b",
    "flink-thread": "#b5446e",
    "flink-process": "#d99ab5",
    "bytewax": "#6a8f3c",
    "pathway": "#a0527a",
}
Rows = list[dict[str, Any]]


def bars(axes: Any, rows: Rows) -> None:
    """Rates of all systems, case by case, on a logarithmic scale."""
    labels = list(dict.fromkeys(row["label"] for row in rows))
    systems = [name for name in COLOURS if any(row["system"] == name for row in rows)]
    width = 0.8 / len(systems)
    for at, system in enumerate(systems):
        held = {row["label"]: row["figures"]["rate"] for row in rows if row["system"] == system}
        places = [labels.index(label) + at * width for label in held]
        rates = [figure["median"] for figure in held.values()]
        spread = [
            [figure["median"] - figure["low"] for figure in held.values()],
            [figure["high"] - figure["median"] for figure in held.values()],
        ]
        axes.bar(places, rates, width, yerr=spread, color=COLOURS[system], label=system, capsize=2)
    axes.set_yscale("log")
    lowest = min(row["figures"]["rate"]["low"] for row in rows)
    axes.set_ylim(bottom=10 ** math.floor(math.log10(lowest)))
    axes.set_xticks(
        [at + 0.4 - width / 2 for at in range(len(labels))], labels, rotation=30, ha="right", fontsize=7
    )
    axes.set_ylabel("records/s")
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def curve(field: str, xlabel: str) -> Callable[[Any, Rows], None]:
    """Rate against a property of the case, one line per backend."""

    def draw(axes: Any, rows: Rows) -> None:
        for backend in dict.fromkeys(row["case"]["backend"] for row in rows):
            held = sorted(
                (row["case"][field], row["figures"]["rate"]["median"])
                for row in rows
                if row["case"]["backend"] == backend
            )
            axes.plot(*zip(*held, strict=True), marker="o", label=backend)
        if field == "slots":
            axes.set_xticks(sorted({row["case"]["slots"] for row in rows}))
        else:
            axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.set_xlabel(xlabel)
        axes.set_ylabel("records/s")
        axes.legend(fontsize=7)

    return draw


def epoch_times(axes: Any, rows: Rows) -> None:
    """Time of an epoch against its rows."""
    held = sorted((row["case"]["epoch_rows"], row["figures"]["epoch_ms"]["median"]) for row in rows)
    axes.plot(*zip(*held, strict=True), marker="o")
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("rows per epoch")
    axes.set_ylabel("ms per epoch")


PANELS: list[tuple[str, str, Callable[[Any, Rows], None]]] = [
    ("value", "Running sum with ValueState", bars),
    ("state", "List and map state", bars),
    ("ttl", "Time-to-live", bars),
    ("window", "Tumbling window", bars),
    ("broadcast", "Broadcast rules", bars),
    ("checkpoint", "Checkpoints", bars),
    ("nexmark", "Nexmark", bars),
    ("growth-keys", "Throughput against keys", curve("keys", "keys")),
    ("growth-slots", "Throughput against slots", curve("slots", "slots")),
    ("growth-epochs", "Throughput against epoch size", curve("epoch_rows", "rows per epoch")),
    ("growth-epochs", "Time of an epoch", epoch_times),
]


def main() -> None:
    folder = Path(sys.argv[1])
    rows = [
        row for row in json.loads((folder / "report.json").read_text())["rows"] if "rate" in row["figures"]
    ]
    panels = [panel for panel in PANELS if any(row["group"] == panel[0] for row in rows)]
    if not panels:
        sys.exit("No rates to draw.")
    across = min(2, len(panels))
    down = -(-len(panels) // across)
    figure, grid = plt.subplots(down, across, figsize=(8 * across, 4.5 * down), squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.axis("off")
    for axes, (group, title, draw) in zip(grid.flat, panels, strict=False):
        draw(axes, [row for row in rows if row["group"] == group])
        axes.set_title(title, fontsize=10)
    figure.tight_layout()
    figure.savefig(folder / "report.png", dpi=110)


if __name__ == "__main__":
    main()
