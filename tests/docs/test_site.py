"""The documentation site builds without a warning, and neither building nor reading it needs a network."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from tests.docs.markdown import ROOT

import tidemark

pytest.importorskip("mkdocs", reason="this environment is older than requirements.lock: run make setup")

_LOADED = re.compile(r"<(?:script|img|iframe|source)[^>]*\ssrc=[\"']?(?P<source>[^\"'\s>]+)")
_TARGET = re.compile(r"\s(?:href|src)=(?:\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)'|(?P<bare>[^\s>\"']+))")
_LINKED = re.compile(r"<link[^>]*\srel=[\"']?(?P<rel>[\w -]+)[\"']?[^>]*>")
_STYLE_URL = re.compile(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly: a dead link or anchor, or a page that is in no menu, fails it."""
    place = tmp_path_factory.mktemp("site")
    # Whoever asks for another host fails: there is no proxy at port 9.
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    environment = {**os.environ, **nowhere, "NO_MKDOCS_2_WARNING": "1"}
    # Not quietly: what is not said is not counted, and strictness forgives it.
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(place)],
        cwd=ROOT, capture_output=True, text=True, timeout=600, env=environment,
    )  # fmt: skip
    assert built.returncode == 0, built.stdout + built.stderr
    return place


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    foreign = []
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        foreign += [
            (page.name, found["source"]) for found in _LOADED.finditer(text) if "//" in found["source"]
        ]
        foreign += [
            (page.name, found[0])
            for found in _LINKED.finditer(text)
            if found["rel"] != "canonical" and re.search(r"href=[\"']?(?:https?:)?//", found[0])
        ]
    foreign += [
        (sheet.name, "url")
        for sheet in site.rglob("*.css")
        if _STYLE_URL.search(sheet.read_text(encoding="utf-8"))
    ]

    assert foreign == []


def test_every_link_of_a_page_leads_to_a_file_of_the_site(site: Path) -> None:
    """Strictness forgives links to files that are left out of the site."""
    dead = set()
    for page in site.rglob("*.html"):
        if page.name == "404.html":  # Its links begin at the root of a server.
            continue
        for found in _TARGET.finditer(page.read_text(encoding="utf-8")):
            target = urlsplit(unquote(found["double"] or found["single"] or found["bare"] or ""))
            if target.scheme or target.netloc or not target.path:
                continue
            if not (page.parent / target.path).exists():
                dead.add((page.name, target.path))

    assert dead == set()


def test_search_finds_pages_options_and_every_public_name_offline(site: Path) -> None:
    script = (site / "search" / "search_index.js").read_text(encoding="utf-8")
    index = json.loads(script[script.index("{") :])
    titles = {entry["title"] for entry in index["docs"]}
    text = " ".join(entry["text"] for entry in index["docs"])

    assert {name for name in tidemark.__all__ if not name.startswith("_")} <= titles
    assert "execution.checkpointing.interval" in text
    assert "A tutorial in five steps" in titles


def test_code_of_two_systems_stands_side_by_side(site: Path) -> None:
    pages = [f"coming-from/{name}" for name in ("flink-java", "spark-transform-with-state", "kafka-streams")]
    for page in (*pages, "guides/porting-from-pyflink"):
        text = (site / f"{page}.html").read_text(encoding="utf-8")

        assert text.count('class="beside"') >= 2, page
