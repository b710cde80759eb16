"""What tests say about the page, whichever server is behind it: canned answers or a job that runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

TABS = ("Overview", "Checkpoints", "Savepoints", "State", "Exceptions", "Slots", "Configuration")


class JobPage:
    """The page of one job."""

    def __init__(self, page: Page, url: str, job_id: str) -> None:
        self.page = page
        self.root = f"{url}/#/jobs/{job_id}"

    def open(self, *parts: str) -> JobPage:
        self.page.goto("/".join((self.root, *parts)))
        self.page.locator("h1").wait_for()
        return self

    def tab(self, name: str) -> None:
        self.page.get_by_role("navigation", name="Views of the job").get_by_role("link", name=name).click()

    def state(self, expected: str) -> Locator:
        """The pill beside the job's name, which must come to say `expected`."""
        pill = self.page.locator(f".job-title [data-state={expected}]")
        pill.wait_for()
        return pill

    def figure(self, name: str) -> Locator:
        return self.page.locator(f"[data-figure='{name}'] dd:not(.note)")

    def note(self, name: str) -> Locator:
        return self.page.locator(f"[data-figure='{name}'] dd.note")

    def rows(self, table: str) -> Locator:
        return self.page.get_by_role("region", name=table).locator("tbody tr:not(.below)")

    def cell(self, table: str, column: str, row: int = 0) -> Locator:
        return self.rows(table).nth(row).locator(f"td[data-label='{column}']")

    def take_savepoint(self, directory: str = "") -> str:
        """Press the button, wait for the end, and answer with the path that is shown."""
        self.tab("Savepoints")
        self.page.get_by_label("Directory").fill(directory)
        self.page.get_by_role("button", name="Take a savepoint").click()
        self.page.locator("[data-savepoint=COMPLETED]").wait_for()
        return self.page.locator("[data-location]").inner_text()

    def cancel(self) -> None:
        """Cancel the job; the dialog is answered."""
        self.page.get_by_role("button", name="Cancel…").click()
        self.page.get_by_role("button", name="Cancel the job").click()

    def overflow(self) -> int:
        """How many pixels the page is wider than the window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - innerWidth"))


def log_in(page: Page, token: str) -> None:
    """Fill the login form in and send it."""
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Log in").click()


def grows(page: Page, locator: Locator) -> None:
    """Waits until a number that is shown has become larger."""
    read = "element => Number(element.textContent.replace(/[^0-9.]/g, ''))"
    before = locator.evaluate(read)
    page.wait_for_function(
        "([element, before]) => Number(element.textContent.replace(/[^0-9.]/g, '')) > before",
        arg=[locator.element_handle(), before],
    )
