"""Draws `growth.png` from `growth.json`, a panel per axis; runs in the environment with matplotlib."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

PANELS = {
    "keys": ("keys", "rate", "records per second"),
    "bytes": ("bytes of state per key", "rate", "records per second"),
    "slots": ("slots, on two cores", "cpu_us", "CPU microseconds per record"),
    "depth": ("keyed operators in a row", "cpu_us", "CPU microseconds per record"),
}


def main() -> None:
    folder = Path(sys.argv[1])
    rows = json.loads((folder / "growth.json").read_text())
    parts = [part for part in PANELS if any(row["part"] == part for row in rows)]
    figure, panels = plt.subplots(1, len(parts), figsize=(5 * len(parts), 4), squeeze=False)
    for axes, part in zip(panels[0], parts, strict=True):
        label, field, unit = PANELS[part]
        chosen = [row for row in rows if row["part"] == part]
        for style, backend in dict.fromkeys((row["style"], row["backend"]) for row in chosen):
            held = [
                (row["at"], row[field])
                for row in chosen
                if (row["style"], row["backend"]) == (style, backend)
            ]
            axes.plot(*zip(*sorted(held), strict=True), marker="o", label=f"by {style}, {backend}")
        if part in ("keys", "bytes"):
            axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.set_xlabel(label)
        axes.set_title(unit, fontsize=10)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(folder / "growth.png", dpi=110)


if __name__ == "__main__":
    main()
