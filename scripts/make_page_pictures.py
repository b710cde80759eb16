"""Takes the pictures of the web page for the documentation, from canned data: `python scripts/make_page_pictures.py`.

With a directory as argument: every view at four widths and in both themes, to be looked at after a change of the page.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent.parent))

from playwright.sync_api import sync_playwright
from tests.browser.canned import CannedJob
from tests.browser.fixture_server import FixtureServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parent.parent
DOCUMENTED = {
    ("jobs", 1440, "light"),
    ("overview", 1440, "light"),
    ("overview", 2000, "dark"),
    ("overview", 360, "dark"),
    ("vertex", 1440, "dark"),
    ("checkpoints", 1440, "light"),
    ("history", 360, "light"),
    ("summary", 1440, "light"),
    ("details", 1440, "light"),
    ("savepoints", 1440, "light"),
    ("state", 1440, "light"),
    ("exceptions", 1440, "light"),
    ("slot", 1440, "dark"),
    ("configuration", 1440, "light"),
}
"""View, width, theme of the pictures in docs/images."""

JOB = CannedJob()
OTHERS = (
    CannedJob(
        job_id="2b8de1f04c6a4f7e9d0b7a6c5e4f3d21", name="word count", state="FINISHED", failed_once=False
    ),
    CannedJob(job_id="9c41d7ab03e84bd2a6f5e4d3c2b1a098", name="sessionize clicks", state="FAILED"),
)
PLACES = {
    "jobs": None,
    "overview": "",
    "vertex": f"/vertices/{JOB.vertex_id(3)}",
    "checkpoints": "/checkpoints",
    "history": "/checkpoints/history",
    "summary": "/checkpoints/summary",
    "checkpoint-configuration": "/checkpoints/configuration",
    "details": "/checkpoints/details/120",
    "savepoints": "/savepoints",
    "state": "/state",
    "exceptions": "/exceptions",
    "slots": "/slots",
    "slot": f"/slots/{JOB.job_id}-1",
    "configuration": "/configuration",
}


def prepare(page: Page, name: str) -> None:
    """Do what shows most of a view."""
    if name == "details":
        page.get_by_role("button", name="score").click()
        page.locator("[data-subtasks] table").first.wait_for()
    elif name == "savepoints":
        page.get_by_role("button", name="Take a savepoint").click()
        page.locator("[data-savepoint=COMPLETED]").wait_for()
    elif name == "state":
        page.get_by_label("Key, as JSON").fill('"anna"')
        page.get_by_role("button", name="Look up").click()
        page.locator("[data-value]").wait_for()
    elif name == "exceptions":
        page.get_by_text("Traceback", exact=True).first.click()
    elif name in ("slots", "slot"):
        page.locator("td[data-label=CPU]", has_text="%").first.wait_for()
    page.wait_for_timeout(400)
    page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")


def pictures(browser: Browser, url: str, wanted: set[tuple[str, int, str]]) -> Iterator[tuple[str, bytes]]:
    """Name and content of each picture."""
    for name, width, theme in sorted(wanted):
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=theme)
        page = context.new_page()
        place = PLACES[name]
        page.goto(url if place is None else f"{url}/#/jobs/{JOB.job_id}{place}")
        page.locator("h1").wait_for()
        prepare(page, name)
        yield f"page-{name}-{width}-{theme}.png", page.screenshot(full_page=True)
        context.close()


def main() -> None:
    """Take them."""
    wanted = DOCUMENTED
    directory = ROOT / "docs" / "images"
    if sys.argv[1:]:
        directory = Path(sys.argv[1])
        wanted = {
            (name, width, theme)
            for name in PLACES
            for width in (360, 768, 1440, 2000)
            for theme in ("light", "dark")
        }
    directory.mkdir(parents=True, exist_ok=True)
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    with FixtureServer(JOB, *OTHERS, tick_s=0.5) as site, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, content in pictures(browser, site.url, wanted):
            (directory / name).write_bytes(content)
            print(directory / name)
        browser.close()


if __name__ == "__main__":
    main()
