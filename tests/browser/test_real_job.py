"""The page of a job that really runs: what it shows is what the job does and what is on disk."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from tests.browser.conftest import Complaints
from tests.browser.page_objects import JobPage, grows, log_in

from tidemark import JobClient
from tidemark.checkpoint.metadata.registry import read_metadata
from tidemark.checkpoint.storage.filesystem import FileSystemStorage

rest = pytest.importorskip("tidemark.runtime.rest", reason="the server of the page is not there")
jobs = pytest.importorskip("tests.web.jobs", reason="the job of the server's tests is not there")

OPERATOR = "count"


@dataclass
class Running:
    """A job of this process and its page."""

    client: JobClient
    view: JobPage


Start = Callable[..., Running]


@pytest.fixture
def start(page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts jobs with a page, and ends them after the test; jobs of one test share a server."""
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path / "home"))
    clients: list[JobClient] = []
    addresses: list[str] = []

    def run(**settings: str) -> Running:
        with rest.announcing(addresses.append):
            client = jobs.start(tmp_path, settings)
        clients.append(client)
        return Running(client, JobPage(page, addresses[-1], str(client.get_job_id())))

    jobs.BROKEN.clear()
    yield run
    page.goto("about:blank")  # a page that watches would only see its server go
    for client in clients:
        client.cancel()
        client.get_job_execution_result().exception()


def test_records_of_a_running_job_grow_on_the_page(start: Start) -> None:
    view = start().view.open()
    view.state("RUNNING")
    expect(view.page.locator(".vertex")).to_have_count(4)
    grows(view.page, view.note("Read"))
    expect(view.page.locator(".edge-label").get_by_text("hash")).to_have_count(1)
    expect(view.page.locator(".chart canvas")).to_have_count(4)


def test_details_of_a_checkpoint_are_those_of_its_metadata(start: Start) -> None:
    view = start(**{"state.checkpoints.num-retained": "1000"}).view.open("checkpoints")
    latest = view.page.locator(".card", has=view.page.get_by_role("heading", name="Latest completed"))
    latest.get_by_role("link").click()
    path = view.page.locator(".facts .wide code").inner_text()
    metadata = read_metadata(FileSystemStorage(), path)
    state = next(operator for operator in metadata.operators if operator.uid == OPERATOR)

    assert bytes_of(view.note("Full size").inner_text()) == metadata.state_size
    assert bytes_of(view.note("New bytes").inner_text()) == metadata.written_size
    view.page.get_by_role("button", name=state.name, exact=True).click()
    table = f"Subtasks of {state.name}"
    expect(view.rows(table)).to_have_count(len(state.subtasks))
    for row, subtask in enumerate(state.subtasks):
        expect(view.cell(table, "Subtask", row)).to_have_text(str(subtask.index))
        expect(view.cell(table, "Sync", row)).to_have_text(f"{subtask.sync_ms} ms")


def test_a_continuous_job_behind_a_token_shows_how_it_runs_and_where_its_time_goes(
    start: Start, complaints: Complaints
) -> None:
    settings = {"rest.token": "open sesame", "execution.mode": "continuous"}
    view = start(**settings).view
    view.page.goto(view.root)
    log_in(view.page, "wrong")
    expect(view.page.get_by_role("alert")).to_have_text("That token is not the right one.")
    log_in(view.page, "open sesame")

    expect(view.page.locator("[data-mode=continuous]")).to_have_attribute(
        "title", re.compile("every source and sink can")
    )
    expect(view.figure("Latency")).to_have_text(re.compile(r"\d m?s$"))
    expect(view.page.locator(".vertex .shares").first).to_have_attribute(
        "aria-label", re.compile(r"busy \d+ %, back-pressured \d+ %, idle \d+ %")
    )
    complaints.expect("401")


def bytes_of(note: str) -> int:
    return int(re.sub(r"[^0-9]", "", note))


def test_a_savepoint_of_the_button_starts_another_job_and_the_first_is_cancelled(
    start: Start, tmp_path: Path
) -> None:
    first = start()
    path = first.view.open().take_savepoint(str(tmp_path / "mine"))
    assert read_metadata(FileSystemStorage(), path).is_savepoint

    second = start(**{"execution.savepoint.path": path})
    second.view.open()
    second.view.state("RUNNING")
    expect(second.view.page.locator(".job-facts")).to_contain_text(path)
    grows(second.view.page, second.view.note("Read"))

    first.view.open().cancel()
    first.view.state("CANCELED")
    assert "cancelled" in str(first.client.get_job_execution_result().exception())


def test_a_job_that_fails_shows_its_traceback(start: Start) -> None:
    view = start().view.open("exceptions")
    expect(view.page.locator(".empty")).to_contain_text("Nothing has failed.")
    jobs.BROKEN.set()
    failure = view.page.locator(".failure").first
    expect(failure).to_contain_text("the number is broken")
    if not failure.locator("pre").is_visible():
        failure.get_by_text("Traceback", exact=True).click()
    expect(failure.locator("pre")).to_contain_text("in process_element")


def test_a_key_of_the_running_job_is_looked_up(start: Start) -> None:
    view = start().view.open("state")
    view.page.get_by_label("Key, as JSON").fill("3")
    view.page.get_by_role("button", name="Look up").click()
    expect(view.page.locator("[data-value]")).to_have_text(re.compile(r"^\d+$"))


def test_slots_and_settings_of_the_running_job_are_shown(start: Start) -> None:
    view = start().view.open("slots")
    expect(view.rows("Slots")).to_have_count(2)
    expect(view.cell("Slots", "Key groups")).to_have_text(re.compile(r"0–\d+"))
    view.rows("Slots").first.get_by_role("link").click()
    expect(view.page.locator("[data-slot]")).to_be_visible()
    view.tab("Configuration")
    expect(view.page.get_by_role("region", name="Settings")).to_contain_text(
        "execution.checkpointing.interval"
    )
