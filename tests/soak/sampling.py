"""What the processes and directories of a job hold right now, read from outside of it.

Processes are found by the `TIDEMARK_HOME` they inherited: slots are nobody's children. Memory is their own, without
that of files: a page that forked workers share counts once over all of them. (Of the pages of libraries every process
of the machine has its share, which grows whenever a stranger ends.)
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from pathlib import Path

import psutil

KINDS = ("driver", "jvm", "slots", "workers")


def sample(folder: Path, home: Path) -> dict[str, float]:
    """Figures by name, `kind.figure` for processes and `files.directory` for what lies below the job's folder.

    A process that ends meanwhile is left out. Memory is in MB.
    """
    figures: Counter[str] = Counter()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get("TIDEMARK_HOME") == str(home):
                figures.update(_process(process.pid, _kind(process.cmdline())))
    for directory in sorted(folder.iterdir()):
        if directory.is_dir():
            figures[f"files.{directory.name}"] = _files(directory)
    return dict(figures)


def _kind(command: list[str]) -> str:
    text = " ".join(command)
    if "tidemark.slot.server" in text:
        return "slots"
    if "pyspark.daemon" in text or "pyspark/daemon" in text:
        return "workers"
    return "jvm" if "org.apache.spark" in text else "driver"


def _process(pid: int, kind: str) -> dict[str, float]:
    memory = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, size = line.split()[:2]
        memory[name] = int(size) / 1024
    threads = len(os.listdir(f"/proc/{pid}/task"))
    descriptors = sockets = 0
    for entry in os.scandir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            descriptors += 1
            sockets += os.readlink(entry.path).startswith("socket:")
    return {
        f"{kind}.own": memory["Pss_Anon:"],
        f"{kind}.rss": memory["Rss:"],
        f"{kind}.processes": 1,
        f"{kind}.threads": threads,
        f"{kind}.descriptors": descriptors,
        f"{kind}.sockets": sockets,
    }


def _files(directory: Path) -> int:
    """Files and directories below; those that are deleted meanwhile may be counted or not."""
    return sum(len(names) + len(below) for _, below, names in os.walk(directory))
