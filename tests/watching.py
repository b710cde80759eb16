"""Looking at what a running job owns: its files and processes come and go while somebody looks."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil


def files_below(root: Path, pattern: str) -> Iterator[Path]:
    """Files of that name below a directory; one that vanishes during the walk (`rglob` raises) is passed over."""
    for folder, _folders, names in os.walk(root):
        yield from (Path(folder, name) for name in fnmatch.filter(names, pattern))


def completed_checkpoints(root: Path) -> list[Path]:
    """The directories of all completed checkpoints below a directory, the highest number last."""
    found = (path.parent for path in files_below(root, "_metadata"))
    return sorted(found, key=lambda path: int(path.name.split("-")[1]))


def living(pids: Iterable[int]) -> list[psutil.Process]:
    """Those of the processes that have not ended meanwhile."""
    found = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(pid))
    return found
