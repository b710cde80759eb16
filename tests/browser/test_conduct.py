"""How the page behaves: quiet when hidden, safe with hostile data, by keyboard, at every width, in both themes."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.browser.canned import CannedJob
from tests.browser.conftest import Complaints
from tests.browser.fixture_server import STATIC, FixtureServer
from tests.browser.page_objects import TABS, JobPage, grows, log_in

HOSTILE = "\"><img src=x onerror='document.title=1'><script>document.title=1</script>"


@pytest.fixture
def view(page: Page, site: FixtureServer, job: CannedJob) -> JobPage:
    return JobPage(page, site.url, job.job_id)


def hide(page: Page, hidden: bool) -> None:
    """What a browser does when another tab is chosen: the property changes, then the event comes."""
    page.evaluate(
        """hidden => {
            Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


def wait_for_streams(page: Page, site: FixtureServer, number: int) -> None:
    for _ in range(600):
        if site.streams == number:
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"{site.streams} streams are open, not {number}")


def test_the_stream_is_closed_while_the_tab_is_hidden(view: JobPage, site: FixtureServer) -> None:
    view.open()
    wait_for_streams(view.page, site, 1)
    hide(view.page, True)
    wait_for_streams(view.page, site, 0)
    hide(view.page, False)
    wait_for_streams(view.page, site, 1)
    grows(view.page, view.note("Read"))


def test_one_stream_follows_the_reader_from_job_to_job(view: JobPage, site: FixtureServer) -> None:
    view.open()
    for tab in TABS:
        view.tab(tab)
    wait_for_streams(view.page, site, 1)
    assert site.opened == 1
    view.page.get_by_role("link", name="All jobs").click()
    view.page.locator("h1", has_text="Jobs").wait_for()
    wait_for_streams(view.page, site, 1)
    assert site.opened == 2


def test_a_lost_server_is_said_and_found_again(page: Page, job: CannedJob, complaints: Complaints) -> None:
    with FixtureServer(job) as first:
        view = JobPage(page, first.url, job.job_id).open()
        expect(page.locator(".connection")).to_have_text("live")
        port = int(first.url.rpartition(":")[2])
    expect(page.locator(".connection")).to_contain_text("connection lost")
    expect(page.locator(".notice")).to_contain_text("tidemark web")
    with FixtureServer(job, port=port):
        expect(page.locator(".connection")).to_have_text("live")
        grows(page, view.note("Read"))
    complaints.clear()


def test_names_of_others_are_text_never_markup(page: Page) -> None:
    class Hostile(CannedJob):
        def vertex_name(self, i: int) -> str:
            return f"{HOSTILE} {i}"

        def log(self, slot: str) -> str:
            return HOSTILE

        def states(self) -> dict[str, object]:
            state = {"name": HOSTILE, "kind": HOSTILE, "type": HOSTILE, "queryable-name": HOSTILE}
            return {"operators": [{"uid": HOSTILE, "name": HOSTILE, "states": [state]}]}

        def exceptions(self) -> dict[str, object]:
            entry = {
                "exceptionName": HOSTILE,
                "stacktrace": HOSTILE,
                "taskName": HOSTILE,
                "location": HOSTILE,
            }
            return {"exceptionHistory": {"entries": [{**entry, "timestamp": self.now}]}}

        def settings(self) -> dict[str, object]:
            row = {"key": HOSTILE, "value": HOSTILE, "layer": HOSTILE, "effect": False, "reason": HOSTILE}
            return {"settings": [row]}

    job = Hostile(name=HOSTILE)
    with FixtureServer(job) as site:
        view = JobPage(page, site.url, job.job_id).open()
        for tab in TABS:
            view.tab(tab)
            page.locator("main .card, main table").first.wait_for()
            assert page.locator("main img, main script").count() == 0, tab
            expect(page.locator("h1")).to_have_text(HOSTILE)
            assert "tidemark" in page.title(), tab


def test_the_page_needs_neither_inline_code_nor_other_hosts() -> None:
    for file in STATIC.rglob("*.html"):
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"\sstyle=|\son\w+=|<style|<script(?![^>]*\ssrc=)", text), file
        assert "//" not in re.sub(r"<!--.*?-->", "", text), file
    for file in [*(STATIC / "js").rglob("*.js"), *(STATIC / "css").rglob("*.css")]:
        text = file.read_text(encoding="utf-8")
        assert "innerHTML" not in text, file
        assert "outerHTML" not in text, file
        assert "insertAdjacentHTML" not in text, file
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), file


def test_login_is_asked_for_and_leads_back(page: Page, job: CannedJob, complaints: Complaints) -> None:
    with FixtureServer(job, token="open sesame") as site:
        page.goto(f"{site.url}/#/jobs/{job.job_id}/slots")
        page.get_by_label("Token").wait_for()
        expect(page.get_by_role("alert")).to_be_hidden()
        log_in(page, "wrong")
        expect(page.get_by_role("alert")).to_have_text("That token is not the right one.")
        log_in(page, "open sesame")
        expect(page.locator("h1")).to_have_text(job.name)
        expect(page.get_by_role("region", name="Slots")).to_be_visible()
    complaints.expect("401")


def test_a_login_that_expires_is_asked_for_again(page: Page, job: CannedJob, complaints: Complaints) -> None:
    with FixtureServer(job, token="open sesame") as site:
        page.goto(site.url)
        log_in(page, "open sesame")
        page.get_by_role("link", name=job.name).click()
        expect(page.locator("h1")).to_have_text(job.name)
        page.context.clear_cookies()
        page.get_by_role("navigation", name="Views of the job").get_by_role("link", name="State").click()
        page.wait_for_url("**/login")
        log_in(page, "open sesame")
        expect(page.get_by_role("heading", name="Look up a key")).to_be_visible()
    complaints.expect("401")


def test_the_page_is_operable_by_keyboard(view: JobPage, job: CannedJob) -> None:
    view.open()
    view.page.locator(".vertex").first.wait_for()
    view.page.keyboard.press("Tab")
    assert view.page.evaluate("document.activeElement.className") == "skip"
    seen = set()
    for _ in range(60):
        view.page.keyboard.press("Tab")
        seen.add(view.page.evaluate("document.activeElement.textContent.trim()"))
    assert {"Savepoint…", "Stop…", "Cancel…", *TABS} <= seen
    assert any("score" in text for text in seen), "vertices are in the tab order"
    view.page.locator(f"[data-vertex='{job.vertex_id(3)}']").focus()
    view.page.keyboard.press("Enter")
    expect(view.rows("Subtasks")).to_have_count(job.parallelism)


def test_focus_and_typed_text_survive_updates(view: JobPage, job: CannedJob) -> None:
    view.open("state")
    box = view.page.get_by_label("Key, as JSON")
    box.fill("half a k")
    steps = job.steps
    while job.steps < steps + 10:
        view.page.wait_for_timeout(100)
    expect(box).to_be_focused()
    expect(box).to_have_value("half a k")


@pytest.mark.parametrize("width", [360, 768, 1440, 2000])
def test_no_view_is_wider_than_the_window(
    browser: Browser, complaints: Complaints, site: FixtureServer, job: CannedJob, width: int
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 800})
    page = complaints.watch(context.new_page())
    view = JobPage(page, site.url, job.job_id)
    details = ("checkpoints", "details", "100")
    vertex = ("vertices", job.vertex_id(3))
    places = [(), vertex, ("checkpoints",), ("checkpoints", "history"), ("checkpoints", "summary"), details]
    places += [
        ("savepoints",),
        ("state",),
        ("exceptions",),
        ("slots",),
        ("slots", f"{job.job_id}-0"),
        ("configuration",),
    ]
    for place in places:
        view.open(*place)
        page.locator("main .card, main table, main .empty, main .vertex").first.wait_for()
        assert view.overflow() <= 0, place
    context.close()


def test_themes_follow_the_system_and_the_button(
    browser: Browser, complaints: Complaints, site: FixtureServer
) -> None:
    def background() -> str:
        return str(page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))

    context = browser.new_context(color_scheme="dark")
    page = complaints.watch(context.new_page())
    page.goto(site.url)
    button = page.get_by_role("button", name="Colours")
    button.wait_for()
    dark = background()
    page.emulate_media(color_scheme="light")
    light = background()
    assert light != dark
    button.click()
    button.click()
    expect(button).to_have_text("◐Dark")
    assert background() == dark
    page.reload()
    button.wait_for()
    assert background() == dark
    context.close()
