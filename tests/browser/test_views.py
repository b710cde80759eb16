"""Every view shows what the server says."""

from __future__ import annotations

import json
from urllib.request import urlopen

import pytest
from playwright.sync_api import Page, expect
from tests.browser.canned import NAMES, CannedJob
from tests.browser.conftest import Complaints
from tests.browser.fixture_server import FixtureServer
from tests.browser.page_objects import TABS, JobPage, grows


@pytest.fixture
def view(page: Page, site: FixtureServer, job: CannedJob) -> JobPage:
    return JobPage(page, site.url, job.job_id)


def test_jobs_are_listed_and_lead_to_their_page(page: Page, site: FixtureServer, job: CannedJob) -> None:
    site.jobs["2"] = CannedJob(job_id="2", name="word count", state="FINISHED")
    page.goto(site.url)
    running = page.get_by_role("region", name="Running jobs").locator("tbody tr")
    expect(running).to_have_count(1)
    expect(page.get_by_role("region", name="Ended jobs").locator("tbody tr")).to_contain_text("word count")
    page.get_by_role("link", name=job.name).click()
    expect(page.locator("h1")).to_have_text(job.name)
    expect(page).to_have_title(f"Overview – {job.name} – tidemark")


def test_without_jobs_the_page_says_how_to_start_one(page: Page) -> None:
    with FixtureServer() as empty:
        page.goto(empty.url)
        expect(page.locator(".empty")).to_contain_text("tidemark run your_job.py")


def test_graph_shows_vertices_edges_and_figures(view: JobPage, job: CannedJob) -> None:
    view.open()
    vertices = view.page.locator(".vertex")
    expect(vertices).to_have_count(len(NAMES))
    score = view.page.locator(f"[data-vertex='{job.vertex_id(3)}']")
    expect(score).to_contain_text("score")
    expect(score).to_contain_text("×4")
    expect(score).to_contain_text("73.6 MB")
    expect(score.locator("[data-rate=in]")).to_contain_text("/s")
    expect(score.locator(".shares")).to_have_attribute(
        "aria-label", "busy 94 %, back-pressured 0 %, idle 6 %"
    )
    labels = view.page.locator(".edge-label").all_inner_texts()
    assert sorted(labels) == ["broadcast", "forward", "forward", "forward", "hash", "hash", "rebalance"]


def test_vertices_of_the_graph_do_not_overlap(view: JobPage) -> None:
    view.open()
    view.page.locator(".vertex").first.wait_for()
    boxes = [box for card in view.page.locator(".vertex").all() if (box := card.bounding_box())]
    for i, a in enumerate(boxes):
        for b in boxes[i + 1 :]:
            apart = (
                a["x"] + a["width"] <= b["x"]
                or b["x"] + b["width"] <= a["x"]
                or a["y"] + a["height"] <= b["y"]
                or b["y"] + b["height"] <= a["y"]
            )
            assert apart, (a, b)


def test_records_grow_while_one_watches(view: JobPage) -> None:
    view.open()
    grows(view.page, view.note("Read"))


def test_curves_are_drawn_and_name_their_newest_value(view: JobPage) -> None:
    view.open()
    charts = view.page.locator(".chart")
    expect(charts).to_have_count(4)
    expect(charts.locator("canvas")).to_have_count(4)
    expect(charts.first.locator(".chart-value").first).to_contain_text("k/s")


def test_a_vertex_opens_its_subtasks(view: JobPage, job: CannedJob) -> None:
    view.open()
    view.page.locator(f"[data-vertex='{job.vertex_id(3)}']").click()
    rows = view.rows("Subtasks")
    expect(rows).to_have_count(job.parallelism)
    expect(view.cell("Subtasks", "Time")).to_contain_text("70 % busy")
    expect(view.cell("Subtasks", "Watermark")).to_contain_text("behind")
    view.page.locator("[data-panel=vertex]").get_by_role("link", name="Close").click()
    expect(rows).to_have_count(0)


def test_checkpoints_overview_counts_and_names_the_latest(view: JobPage, job: CannedJob) -> None:
    view.open("checkpoints")
    expect(view.figure("Failed")).to_have_text("2")
    expect(view.page.locator("main")).to_contain_text("Checkpoint expired before completing")
    expect(view.page.locator(".strip a")).to_have_count(100)


def test_history_is_paged_newest_first(page: Page, job: CannedJob) -> None:
    table = "Checkpoints, newest first"
    with FixtureServer(job, tick_s=0) as quiet:
        view = JobPage(page, quiet.url, job.job_id).open("checkpoints", "history")
        newer, older = page.get_by_role("button", name="Newer"), page.get_by_role("button", name="Older")
        expect(view.rows(table)).to_have_count(50)
        expect(newer).to_be_disabled()
        older.click()
        expect(page.locator(".pager")).to_contain_text("51–100 of 137")
        expect(view.cell(table, "Id")).to_have_text("#87")
        older.click()
        expect(page.locator(".pager")).to_contain_text("101–137 of 137")
        expect(view.rows(table)).to_have_count(37)
        expect(older).to_be_disabled()
        newer.click()
        newer.click()
        expect(view.cell(table, "Id")).to_have_text("#137")
        expect(newer).to_be_disabled()


def test_summary_and_configuration_show_flinks_figures(view: JobPage) -> None:
    view.open("checkpoints", "summary")
    row = view.rows("Summary of the completed checkpoints").first
    expect(row).to_have_text("Duration181 ms300 ms300 ms407 ms417 ms419 ms")
    view.page.get_by_role("navigation", name="Views of the checkpoints").get_by_role(
        "link", name="Configuration"
    ).click()
    expect(view.page.locator(".facts")).to_contain_text("exactly once")
    expect(view.page.locator(".facts")).to_contain_text("10 min")


def test_details_go_from_checkpoint_to_operator_to_subtask(view: JobPage, job: CannedJob) -> None:
    view.open("checkpoints", "details", "100")
    expect(view.note("Full size")).to_have_text("331,303,456 B")
    expect(view.rows("Operators of the checkpoint")).to_have_count(job.vertex_count)
    score = view.page.get_by_role("button", name="score")
    score.click()
    expect(score).to_have_attribute("aria-expanded", "true")
    expect(view.rows("Subtasks of score")).to_have_count(job.parallelism)
    expect(view.cell("Subtasks of score", "Async", row=2)).to_have_text("124 ms")
    score.click()
    expect(view.rows("Subtasks of score")).to_have_count(0)


def test_a_failed_checkpoint_says_why(view: JobPage) -> None:
    view.open("checkpoints", "details", "90")
    expect(view.page.locator(".problem")).to_contain_text("slot 3 did not answer in 10 s")


def test_a_savepoint_is_taken_by_the_button_and_listed(view: JobPage, site: FixtureServer) -> None:
    path = view.open().take_savepoint("file:/tmp/mine")
    assert path.startswith("file:/tmp/mine/savepoint-")
    expect(view.cell("Savepoints", "Path")).to_contain_text(path)
    method, address, body, guard = site.requests[0]
    assert (method, guard) == ("POST", "1")
    assert address.endswith("/savepoints")
    assert body == {"target-directory": "file:/tmp/mine", "cancel-job": False}


def test_a_refused_savepoint_shows_the_servers_words(view: JobPage, complaints: Complaints) -> None:
    view.open("savepoints")
    view.page.get_by_label("Directory").fill("/refused")
    view.page.get_by_role("button", name="Take a savepoint").click()
    expect(view.page.locator("[data-savepoint=FAILED]")).to_contain_text(
        "The directory /refused cannot be written."
    )
    complaints.expect("400")


def test_cancel_asks_first_and_then_acts(view: JobPage, site: FixtureServer) -> None:
    view.open()
    view.page.get_by_role("button", name="Cancel…").click()
    view.page.keyboard.press("Escape")
    expect(view.page.get_by_role("dialog")).to_have_count(0)
    assert site.requests == []
    view.cancel()
    view.state("CANCELED")
    assert site.requests[0][0] == "PATCH"
    expect(view.page.get_by_role("button", name="Cancel…")).to_have_count(0)


def test_stop_sends_directory_and_drain(view: JobPage, site: FixtureServer) -> None:
    view.open()
    view.page.get_by_role("button", name="Stop…").click()
    view.page.get_by_label("Savepoint directory").fill("file:/tmp/stop")
    view.page.get_by_label("Drain").check()
    view.page.get_by_role("button", name="Stop with a savepoint").click()
    expect(view.page.locator(".notice")).to_contain_text("file:/tmp/stop/savepoint-")
    assert site.requests[0][2] == {"drain": True, "targetDirectory": "file:/tmp/stop"}


def test_state_lists_types_and_looks_up_a_key(view: JobPage, complaints: Complaints) -> None:
    view.open("state")
    expect(view.cell("States of score", "Time to live")).to_have_text("7 d")
    expect(view.cell("States of score", "Entries")).to_have_text("1,284,113")
    view.page.get_by_label("Key, as JSON").fill("anna")
    view.page.get_by_role("button", name="Look up").click()
    shown = view.page.locator("[data-value]")
    assert json.loads(shown.inner_text()) == {"seen": 17, "last": "2026-11-16T16:40:12Z"}
    view.page.get_by_label("Key, as JSON").fill("42")
    view.page.keyboard.press("Enter")
    expect(view.page.locator(".answer")).to_contain_text("There is nothing at")
    complaints.expect("404")


def test_exceptions_show_cause_attempt_slot_and_folded_traceback(view: JobPage) -> None:
    view.open("exceptions")
    newest = view.page.locator(".failure").first
    expect(newest).to_contain_text("KeyError: 'XK'")
    expect(newest).to_contain_text("attempt 2")
    trace = newest.locator("pre")
    expect(trace).to_be_hidden()
    newest.get_by_text("Traceback", exact=True).click()
    expect(trace).to_contain_text("limit = self.limits[value.country]")
    newest.get_by_role("link", name="worker-2:4213").click()
    expect(view.page.locator("[data-slot]")).to_contain_text("epoch 89")


def test_slots_show_process_key_groups_and_load(view: JobPage, job: CannedJob) -> None:
    view.open("slots")
    expect(view.rows("Slots")).to_have_count(job.slot_count)
    expect(view.cell("Slots", "Key groups", row=1)).to_have_text("21–41")
    expect(view.cell("Slots", "Memory")).to_have_text("412 MB")
    expect(view.cell("Slots", "CPU", row=1)).to_have_text("33 %")


def test_a_foreign_jobs_slots_are_not_shown(view: JobPage, site: FixtureServer, job: CannedJob) -> None:
    site.jobs["2"] = CannedJob(job_id="2")
    view.open("slots")
    expect(view.rows("Slots")).to_have_count(job.slot_count)


def test_configuration_marks_what_has_no_effect(view: JobPage) -> None:
    view.open("configuration")
    marked = view.page.locator("tr.without-effect")
    expect(marked).to_have_count(1)
    expect(marked).to_contain_text("no effect")
    expect(marked).to_contain_text("spark.executor.memoryOverhead")
    view.page.get_by_label("Only what has no effect").check()
    expect(view.rows("Settings")).to_have_count(1)
    view.page.get_by_label("Only what has no effect").uncheck()
    expect(view.rows("Settings")).to_have_count(7)
    view.page.get_by_label("Show defaults").check()
    expect(view.rows("Settings")).to_have_count(8)
    view.page.get_by_label("Filter by key, value or layer").fill("rocksdb")
    expect(view.rows("Settings")).to_have_count(1)


@pytest.mark.parametrize("tab", TABS)
def test_every_view_of_a_job_that_did_nothing_says_what_to_do(page: Page, tab: str) -> None:
    class Bare(CannedJob):
        def states(self) -> dict[str, object]:
            return {"operators": []}

        def settings(self) -> dict[str, object]:
            return {"settings": []}

        def series(self) -> dict[str, object]:
            return {"step-ms": 1000, "timestamps": []}

        def advance(self) -> None:
            self.now_ms += 1000

    job = Bare(failed_once=False, checkpoint_count=0, slot_count=0)
    with FixtureServer(job) as site:
        view = JobPage(page, site.url, job.job_id).open()
        view.tab(tab)
        advice = page.locator(".empty").first.locator("p")
        expect(advice, "an empty state says what to do").to_have_count(2)


def test_an_unknown_job_shows_the_servers_error(
    page: Page, site: FixtureServer, complaints: Complaints
) -> None:
    page.goto(f"{site.url}/#/jobs/nobody")
    expect(page.get_by_role("alert")).to_contain_text("There is nothing at /v1/jobs/nobody")
    complaints.expect("404")


def test_an_unknown_address_leads_back(page: Page, site: FixtureServer) -> None:
    page.goto(f"{site.url}/#/nowhere/at/all")
    expect(page.locator(".empty")).to_contain_text("There is no such page.")


def test_files_of_the_page_are_complete_and_licensed(site: FixtureServer) -> None:
    with urlopen(f"{site.url}/static/vendor/uplot/LICENSE") as licence:
        assert b"MIT License" in licence.read()
