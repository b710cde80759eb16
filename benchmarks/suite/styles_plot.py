"""Draws `styles.png` from `styles.json`, a panel per axis; runs in the environment with matplotlib."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

AXES = {"keys": "keys, batches of 32,768 rows", "size": "rows of a batch, 10,000 keys"}
LOOKS = {
    "process": ("tab:blue", "--"),
    "process_batch": ("tab:blue", "-"),
    "reduce": ("tab:orange", "--"),
    "sum": ("tab:orange", "-"),
    "window, AggregateFunction": ("tab:green", "--"),
    "window, sum_ and count": ("tab:green", "-"),
}


def main() -> None:
    folder = Path(sys.argv[1])
    rows = json.loads((folder / "styles.json").read_text())
    parts = [part for part in AXES if any(row["part"] == part for row in rows)]
    figure, panels = plt.subplots(1, len(parts), figsize=(6 * len(parts), 4.5), squeeze=False)
    for axes, part in zip(panels[0], parts, strict=True):
        for style, (colour, line) in LOOKS.items():
            held = sorted(
                (row["at"], row["rate"] / 1e6) for row in rows if (row["part"], row["style"]) == (part, style)
            )
            if held:
                axes.plot(
                    *zip(*held, strict=True),
                    color=colour,
                    linestyle=line,
                    marker="o",
                    markersize=4,
                    label=style,
                )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel(AXES[part])
        axes.set_ylabel("million records per second of a core")
        axes.grid(alpha=0.3, which="both")
    panels[0][0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(folder / "styles.png", dpi=110)


if __name__ == "__main__":
    main()
