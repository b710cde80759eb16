"""Draws `latency.png` from `latency.json`, the age of events over rates; runs in the environment with matplotlib."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def main() -> None:
    folder = Path(sys.argv[1])
    rows = json.loads((folder / "latency.json").read_text())
    rates = sorted({row["rate"] for row in rows})
    figure, panels = plt.subplots(1, 2, figsize=(12, 4.5), sharey=True)
    for axes, field, title in zip(panels, ("p50_ms", "p99_ms"), ("median", "99 in 100"), strict=True):
        for system in dict.fromkeys(row["system"] for row in rows):
            held = sorted((row["rate"], row[field]) for row in rows if row["system"] == system)
            axes.plot(*zip(*held, strict=True), marker="o", label=system)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(rates, [f"{rate:,}" for rate in rates])
        axes.minorticks_off()
        axes.yaxis.set_major_formatter(lambda value, _at: f"{value:g}")
        axes.set_xlabel("events per second")
        axes.set_title(f"Age of an event at the sink, {title}", fontsize=10)
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("ms")
    panels[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(folder / "latency.png", dpi=110)


if __name__ == "__main__":
    main()
