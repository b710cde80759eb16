"""Draws the pictures of the concept pages into docs/images; run it after changing one. Plain SVG, no other program."""

from __future__ import annotations

from html import escape
from pathlib import Path

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
# Every picture brings its own ground, so that it reads the same on a light page and on a dark one.
INK, GROUND, LINE = "#1f2d33", "#fbfaf5", "#5b6b73"
TEAL, SAND, ROSE, GREY = "#cfe8e5", "#f5e6c4", "#f4cfcb", "#e6e9ea"
_WORDS = 'font-family="system-ui, sans-serif" fill="{ink}"'


class Drawing:
    """Boxes, words and arrows on one ground."""

    def __init__(self, width: int, height: int, title: str) -> None:
        """An empty one; `title` is what it says to those who do not see it."""
        self._size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        self._title = title
        self._parts = [f'<rect width="{width}" height="{height}" rx="10" fill="{GROUND}"/>']

    def box(self, x: int, y: int, w: int, h: int, words: str = "", colour: str = TEAL) -> None:
        """A box with words in its middle, a line each."""
        self._parts.append(
            f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="6" fill="{colour}" stroke="{LINE}"/>'
        )
        lines = words.split("\n") if words else []
        top = y + h / 2 - 8 * (len(lines) - 1) + 4
        for at, line in enumerate(lines):
            self.words(x + w / 2, top + 16 * at, line)

    def words(self, x: float, y: float, text: str, anchor: str = "middle", bold: bool = False) -> None:
        """One line of words."""
        weight = ' font-weight="600"' if bold else ""
        self._parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="13" text-anchor="{anchor}"{weight} '
            f"{_WORDS.format(ink=INK)}>{escape(text)}</text>"
        )

    def arrow(self, x1: int, y1: int, x2: int, y2: int, dashed: bool = False) -> None:
        """From here to there."""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(
            f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{LINE}" stroke-width="1.6"{dash} '
            'marker-end="url(#tip)"/>'
        )

    def barrier(self, x: int, y: int, h: int) -> None:
        """A thick line across a channel."""
        self._parts.append(f'<rect x="{x - 2}" y="{y}" width="5" height="{h}" fill="#c0392b"/>')

    def svg(self) -> str:
        """The whole picture."""
        tip = (
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            f'orient="auto-start-reverse"><path d="M0 0 L8 4 L0 8 z" fill="{LINE}"/></marker></defs>'
        )
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {self._size} role="img">'
        return "\n".join([head, f"<title>{escape(self._title)}</title>", tip, *self._parts, "</svg>\n"])


def slots() -> Drawing:
    """Who runs where, and over what they talk."""
    d = Drawing(760, 300, "Spark tasks send batches to slots, which own the state; the driver controls both")
    d.box(20, 110, 130, 80, "driver\nplan, coordinator", SAND)
    d.words(285, 28, "Spark executors", bold=True)
    d.words(560, 28, "slots: Python processes that last", bold=True)
    for i in range(2):
        y = 45 + 125 * i
        d.box(210, y, 160, 90, f"task {i}\nsource ► fused\noperators ► sink", GREY)
        d.box(460, y, 200, 90, "", TEAL)
        d.words(560, y + 24, f"slot {i}")
        d.box(475, y + 36, 80, 40, "operators", GROUND)
        d.box(565, y + 36, 80, 40, "state", GROUND)
        d.arrow(150, 150, 205, y + 45)
        for j in range(2):
            d.arrow(372, y + 45, 456, 45 + 125 * j + 45)
    d.words(415, 42, "batches, answers")
    d.words(
        380,
        288,
        "A task may die at any time. State is in the slots; its snapshots are in the checkpoint storage.",
    )
    return d


def epochs() -> Drawing:
    """The barrier between two epochs."""
    d = Drawing(760, 220, "The barrier of an epoch is the moment between two Spark jobs")
    d.words(20, 30, "One epoch is one Spark job; between two of them no record is under way.", "start", True)
    for at, name in enumerate(("epoch 7", "epoch 8", "epoch 9")):
        d.box(30 + 240 * at, 60, 200, 44, name, GREY)
    for at, name in enumerate(("barrier 7", "barrier 8")):
        x = 250 + 240 * at
        d.barrier(x, 50, 64)
        d.words(x, 132, name)
        d.arrow(x, 138, x + 20, 160)
        d.box(x + 6, 162, 170, 34, "slots write state, offsets", TEAL)
    d.words(30, 184, "freeze takes moments;", "start")
    d.words(30, 202, "writing goes on meanwhile", "start")
    return d


def continuous() -> Drawing:
    """Barriers that travel with the records."""
    d = Drawing(760, 240, "In continuous execution barriers travel in the channels and are aligned at a slot")
    d.words(20, 28, "Tasks last; the barrier travels between the records of every channel.", "start", True)
    for i, (name, ahead) in enumerate((("task 0", 330), ("task 1", 250))):
        y = 50 + 90 * i
        d.box(20, y, 100, 50, name, GREY)
        d.arrow(122, y + 25, 466, y + 25)
        for x in range(150, 450, 40):
            if abs(x - ahead) > 14:
                d.box(x, y + 15, 18, 20, "", SAND)
        d.barrier(ahead + (126 if i == 0 else 8), y + 5, 40)
    d.box(470, 50, 120, 140, "gate of a slot:\nchannel 0 waits\nuntil barrier k\nis in channel 1", ROSE)
    d.arrow(592, 120, 636, 120)
    d.box(640, 85, 100, 70, "cut: state\nas of k", TEAL)
    d.words(
        20,
        226,
        "AT_LEAST_ONCE: nobody waits. Records behind a barrier may then be in the state of k.",
        "start",
    )
    return d


def key_groups() -> Drawing:
    """From keys to groups to subtasks, and what another parallelism moves."""
    d = Drawing(
        760, 270, "Keys are hashed to key groups; a subtask owns a range of groups, whatever its number"
    )
    d.words(20, 28, "key ► stable hash mod G ► key group; a subtask owns a range of groups", "start", True)
    for g in range(8):
        d.box(150 + 70 * g, 100, 62, 34, f"group {g}", SAND)
    for key, g in (("ann", 1), ("bob", 4), ("eve", 6)):
        x = 181 + 70 * g
        d.words(x, 58, key)
        d.arrow(x, 64, x, 96)
    d.words(20, 122, "G = 8", "start")
    for name, y, n in (("2 subtasks", 160, 2), ("3 subtasks", 212, 3)):
        d.words(20, y + 22, name, "start")
        for subtask in range(n):
            mine = [g for g in range(8) if g * n // 8 == subtask]
            x = 150 + 70 * mine[0]
            d.box(x, y, 70 * len(mine) - 8, 34, f"subtask {subtask}", (TEAL, GREY, ROSE)[subtask])
    return d


def incremental() -> Drawing:
    """What a checkpoint writes, names and lets go of."""
    d = Drawing(760, 250, "Incremental checkpoints write new files and name those of earlier ones")
    d.words(
        20, 28, "A checkpoint writes the files that are new, and names those that are there.", "start", True
    )
    rows = (
        ("checkpoint 1", {0: TEAL, 1: TEAL, 2: TEAL}),
        ("checkpoint 2", {0: GREY, 1: GREY, 2: GREY, 3: TEAL}),
        ("checkpoint 3", {2: GREY, 3: GREY, 4: TEAL}),
    )
    for at, (name, files) in enumerate(rows):
        y = 50 + 52 * at
        d.words(20, y + 24, name, "start")
        for file, colour in files.items():
            words = f"{'write' if colour == TEAL else 'name'} {'ABCDE'[file]}"
            d.box(150 + 118 * file, y, 106, 38, words, colour)
    d.words(
        20,
        222,
        "E holds what A and B held, merged. When checkpoints 1 and 2 are retired, nobody names",
        "start",
    )
    d.words(
        20,
        240,
        "A and B any more, and only then they are deleted. A savepoint names no file of others.",
        "start",
    )
    return d


DRAWINGS = {
    "concept-slots": slots,
    "concept-barrier-epochs": epochs,
    "concept-barrier-continuous": continuous,
    "concept-key-groups": key_groups,
    "concept-incremental": incremental,
}


def main() -> None:
    """Write all of them."""
    for name, draw in DRAWINGS.items():
        (IMAGES / f"{name}.svg").write_text(draw().svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
