"""Markdown as far as our pages use it: fenced blocks, links, headings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")], key=lambda path: path.relative_to(ROOT).as_posix()
)

_FENCE = re.compile(r"^```(?P<info>.*)$")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#+ (?P<title>.+)$")


@dataclass(frozen=True)
class Block:
    """A fenced block. `words` is its info string: language first, then what the tests should do with it."""

    path: Path
    line: int
    words: tuple[str, ...]
    text: str

    @property
    def where(self) -> str:
        """For messages."""
        return f"{self.path.relative_to(ROOT)}:{self.line}"


def blocks(path: Path) -> list[Block]:
    """All fenced blocks of a page, in order."""
    found: list[Block] = []
    info: str | None = None
    start, lines = 0, []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        fence = _FENCE.match(line)
        if fence is None:
            lines.append(line)
        elif info is None:
            info, start, lines = fence["info"].strip(), number, []
        else:
            found.append(Block(path, start, tuple(info.split()), "\n".join([*lines, ""])))
            info = None
    assert info is None, f"{path}:{start}: the fence is never closed"
    return found


def prose(path: Path) -> str:
    """The page without its fenced blocks."""
    kept, inside = [], False
    for line in path.read_text(encoding="utf-8").splitlines():
        if _FENCE.match(line):
            inside = not inside
        elif not inside:
            kept.append(line)
    return "\n".join(kept)


def links(path: Path) -> list[str]:
    """Targets of all links outside of code."""
    return [match["target"] for match in _LINK.finditer(re.sub(r"`[^`]*`", "", prose(path)))]


def anchors(path: Path) -> set[str]:
    """Anchors of the headings, as GitHub makes them."""
    titles = [match["title"] for line in prose(path).splitlines() if (match := _HEADING.match(line))]
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles}
