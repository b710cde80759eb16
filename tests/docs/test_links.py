"""Links inside the documentation resolve, and what it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.docs.markdown import PAGES, ROOT, anchors, links, prose

_PATH = re.compile(
    r"`((?:src|docs|tests|scripts|benchmarks|examples|state|runtime|slot|operators|checkpoint|backends|api|queryable|"
    r"processor|cli|web|testing|config|metrics)/[\w/.\-]*\w\.(?:py|md|sh|yaml))`"
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_to_our_own_pages_resolve(page: Path) -> None:
    broken = []
    for target in links(page):
        if "://" in target or target.startswith("mailto:"):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        if not path.exists() or (anchor and anchor not in anchors(path)):
            broken.append(target)

    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_files_named_in_code_marks_exist(page: Path) -> None:
    named = _PATH.findall(prose(page))

    missing = [
        name for name in named if not ((ROOT / name).exists() or (ROOT / "src/tidemark" / name).exists())
    ]

    assert missing == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md" or not page.exists():
            continue
        reached.add(page)
        waiting += [
            (page.parent / t.partition("#")[0]).resolve()
            for t in links(page)
            if "://" not in t and t[0] != "#"
        ]

    assert [page for page in PAGES if page not in reached] == []


def test_architecture_is_short_and_names_every_package_and_crash_point() -> None:
    from tidemark.runtime.execution import CRASH_POINTS

    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    packages = [path.parent.name for path in (ROOT / "src/tidemark").glob("*/__init__.py")]

    # Two execution modes have a walk each; what grows beyond that belongs on a page of docs/.
    assert len(text.splitlines()) < 300
    assert [name for name in packages if f"`{name}" not in text] == []
    assert [point for point in CRASH_POINTS if f"`{point}`" not in text] == []
