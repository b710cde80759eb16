"""How values look in text output: times, sizes, aligned columns."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

__all__ = ["columns", "date_time", "duration", "own_command", "size", "visible"]


def date_time(millis: int | None) -> str:
    """A moment in local time, a dash if there is none."""
    if millis is None:
        return "-"
    try:
        return datetime.fromtimestamp(millis / 1000).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        # A snapshot may say anything.
        return f"{millis} ms"


def duration(millis: int | float | None) -> str:
    """A time span, a dash if there is none."""
    if millis is None:
        return "-"
    return f"{millis:.0f} ms" if millis < 10_000 else f"{millis / 1000:.1f} s"


def size(count: int | None) -> str:
    """Bytes in the largest unit that leaves a whole part, a dash if they are not known."""
    if count is None:
        return "-"
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def columns(rows: Iterable[Sequence[Any]], indent: str = "") -> list[str]:
    """Lines with the cells of `rows` under each other; None is a dash."""
    texts = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    if not texts:
        return []
    widths = [max(len(row[at]) for row in texts) for at in range(len(texts[0]))]
    return [
        (indent + "  ".join([cell.ljust(width) for cell, width in zip(row, widths, strict=True)])).rstrip()
        for row in texts
    ]


def own_command() -> str:
    """How to call `tidemark` from any directory of this shell: by its name if that is ours, else by its path."""
    script = Path(sys.executable).with_name("tidemark")
    found = shutil.which(script.name)
    if not script.exists() or (found is not None and script.samefile(found)):
        return script.name
    return str(script)


def visible(line: str) -> str:
    """`line` with its control characters, tabs aside, written out: what strangers named must not steer the terminal."""
    if line.isprintable():
        return line
    return "".join([char if char.isprintable() or char == "\t" else ascii(char)[1:-1] for char in line])
