"""Draws the picture of a soak from its JSON; runs in the environment with matplotlib."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

PANELS = {
    "own memory, MB": lambda name: name.endswith(".own"),
    "JVM heap behind a collection, MB": lambda name: name == "jvm.live heap",
    "threads": lambda name: name.endswith(".threads"),
    "open descriptors": lambda name: name.endswith(".descriptors"),
    "sockets": lambda name: name.endswith(".sockets"),
    "files": lambda name: name.startswith("files.") and name != "files.out",
}


def main() -> None:
    results = Path(sys.argv[1])
    content = json.loads(results.read_text())
    jobs = content["jobs"]
    figure, grid = plt.subplots(
        len(PANELS), len(jobs), figsize=(6 * len(jobs), 2.2 * len(PANELS)), sharex=True, squeeze=False
    )
    for column, (job, found) in enumerate(jobs.items()):
        for axes, (title, wanted) in zip(grid[:, column], PANELS.items(), strict=True):
            for name, (times, values) in found["series"].items():
                if wanted(name):
                    grew = found["trends"].get(name, {}).get("grows")
                    kind, what = name.split(".")
                    label = what if kind == "files" else kind
                    axes.plot([at / 60 for at in times], values, label=label + (" GROWS" if grew else ""))
            axes.axvspan(0, content["warm_up_s"] / 60, color="0.93")
            axes.set_ylim(bottom=0)
            axes.set_title(f"{job}: {title}", fontsize=9)
            axes.legend(fontsize=6, loc="lower right")
            axes.grid(alpha=0.3)
        grid[-1, column].set_xlabel("minutes")
    figure.tight_layout()
    figure.savefig(results.with_suffix(".png"), dpi=100)


if __name__ == "__main__":
    main()
