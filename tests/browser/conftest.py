"""A real browser (Debian's chromium, driven by Playwright) and pages that must not complain."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright
from tests.browser.canned import CannedJob
from tests.browser.fixture_server import FixtureServer

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
DEADLINE_MS = 60_000
"""For every wait; a machine ten times slower must pass."""


expect.set_options(timeout=DEADLINE_MS)
MISSING = "BROWSER TESTS DO NOT RUN: there is no chromium (scripts/ensure_browser.sh, or set CHROMIUM)"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this directory needs the browser; without it each test is skipped and says so."""
    here = os.path.dirname(__file__)
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.browser)
            if CHROMIUM is None:
                item.add_marker(pytest.mark.skip(reason=MISSING))


# Not for the session: while it is open, no other test of the process can run an event loop of its own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # Containers run as root, without the kernel features of the sandbox; only our own pages are opened.
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


class Complaints(list[str]):
    """What the browser complained about; a test may expect some of it."""

    def watch(self, page: Page) -> Page:
        page.set_default_timeout(DEADLINE_MS)
        page.on("pageerror", lambda error: self.append(f"error: {error}"))
        page.on("console", self._heard)
        return page

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.append(f"{message.type}: {message.text}")

    def expect(self, part: str) -> None:
        """Forget complaints with `part` in them; there must have been one."""
        assert any(part in each for each in self), f"nobody complained about {part}: {self}"
        self[:] = [each for each in self if part not in each]


@pytest.fixture
def complaints() -> Iterator[Complaints]:
    heard = Complaints()
    yield heard
    assert heard == []


@pytest.fixture
def page(browser: Browser, complaints: Complaints) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    yield complaints.watch(context.new_page())
    context.close()


@pytest.fixture
def job() -> CannedJob:
    return CannedJob()


@pytest.fixture
def site(job: CannedJob) -> Iterator[FixtureServer]:
    with FixtureServer(job) as server:
        yield server
