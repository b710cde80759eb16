"""The pictures of the concepts: each is what its script draws, is well-formed, and is shown on a page."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_drawings", ROOT / "scripts/make_drawings.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT = load_script()


@pytest.mark.parametrize("name", SCRIPT.DRAWINGS)
def test_a_drawing_is_current_and_on_a_page(name: str) -> None:
    file = SCRIPT.IMAGES / f"{name}.svg"
    pages = "".join(page.read_text() for page in (ROOT / "docs/concepts").glob("*.md"))

    drawn = SCRIPT.DRAWINGS[name]().svg()

    assert file.read_text() == drawn, "run python scripts/make_drawings.py"
    assert ElementTree.fromstring(drawn).find("{http://www.w3.org/2000/svg}title") is not None
    assert f"../images/{name}.svg" in pages


@pytest.mark.parametrize("name", SCRIPT.DRAWINGS)
def test_everything_is_within_the_picture(name: str) -> None:
    picture = ElementTree.fromstring(SCRIPT.DRAWINGS[name]().svg())
    width, height = int(picture.attrib["width"]), int(picture.attrib["height"])

    for box in picture.iter("{http://www.w3.org/2000/svg}rect"):
        x, y = float(box.get("x", "0")), float(box.get("y", "0"))
        assert x + float(box.attrib["width"]) <= width
        assert y + float(box.attrib["height"]) <= height
    for words in picture.iter("{http://www.w3.org/2000/svg}text"):
        # Seven points a letter is more than any font of that size takes.
        length = 7 * len(words.text or "")
        left = float(words.attrib["x"]) - (length / 2 if words.get("text-anchor") == "middle" else 0)
        assert left >= 0
        assert left + length <= width
