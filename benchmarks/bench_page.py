"""Benchmark of the web page: a job with 50 vertices, 200 slots and 10,000 checkpoints in history. `make bench-page`.

A real chromium opens every view of it. Measured is the time of the browser's main thread (script, style, layout,
paint) in CPU time, as the browser itself accounts for it: from the navigation until the view is painted (the middle
of five loads), and for each of the updates that the server then sends. The target of both is 300 ms; the last line
says whether it was met. With `--wall` the same by the wall clock, which on a busy machine also counts the time in which
other processes had the core.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from playwright.sync_api import CDPSession, Page, sync_playwright
from tests.browser.canned import CannedJob
from tests.browser.fixture_server import FixtureServer

VERTICES, SLOTS, CHECKPOINTS = 50, 200, 10_000
UPDATES = int(os.environ.get("BENCH_PAGE_UPDATES", "20"))
LOADS = 5
TARGET_MS = 300.0
VIEWS = {
    "overview": ((), ".vertex"),
    "vertex": (("vertices", f"{9:032x}"), "[data-panel=vertex] tbody tr"),
    "checkpoints": (("checkpoints",), ".strip a"),
    "history": (("checkpoints", "history"), "tbody tr"),
    "details": (("checkpoints", "details", "9000"), "tbody tr"),
    "state": (("state",), "tbody tr"),
    "exceptions": (("exceptions",), ".failure"),
    "slots": (("slots",), "tbody tr"),
    "configuration": (("configuration",), "tbody tr"),
}

# Counts the updates that have arrived; `checkpoints` is the last event of each.
COUNT_UPDATES = """
const listen = EventSource.prototype.addEventListener;
window.updates = 0;
EventSource.prototype.addEventListener = function (name, listener) {
  listen.call(this, name, name === "checkpoints" ? (event) => { listener(event); window.updates++; } : listener);
};
"""
PAINTED = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))"


def busy_ms(session: CDPSession) -> float:
    """Time the main thread of the page has worked since the browser began to count."""
    metrics = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    return float(metrics["TaskDuration"]) * 1000


def first_paint(page: Page, session: CDPSession, address: str, shown: str) -> float:
    """Main-thread milliseconds from a navigation until the view is painted."""
    page.goto("about:blank")
    before = busy_ms(session)
    page.goto(address)
    page.wait_for_selector(shown)
    page.evaluate(PAINTED)
    return busy_ms(session) - before


def update_costs(page: Page, session: CDPSession, site: FixtureServer) -> list[float]:
    """Main-thread milliseconds of each update."""
    page.wait_for_function("window.updates > 0")
    updates = []
    for _ in range(UPDATES):
        page.evaluate(PAINTED)
        before, seen = busy_ms(session), page.evaluate("window.updates")
        site.publish()
        page.wait_for_function("(seen) => window.updates > seen", arg=seen)
        page.evaluate(PAINTED)
        updates.append(busy_ms(session) - before)
    return updates


def main() -> int:
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    job = CannedJob(vertex_count=VERTICES, slot_count=SLOTS, checkpoint_count=CHECKPOINTS)
    wall = "--wall" in sys.argv[1:]
    clock = "timeTicks" if wall else "threadTicks"
    worst = 0.0
    print(f"{VERTICES} vertices, {SLOTS} slots, {CHECKPOINTS:,} checkpoints")
    print(f"ms of the main thread by {'the wall clock' if wall else 'its CPU time'}")
    print(f"{'view':<14} {'width':>5} {'first paint':>12} {'update p50':>11} {'update max':>11}")
    with FixtureServer(job, tick_s=0) as site, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for width in (1440, 360):
            page = browser.new_context(viewport={"width": width, "height": 900}).new_page()
            page.add_init_script(COUNT_UPDATES)
            session = page.context.new_cdp_session(page)
            session.send("Performance.enable", {"timeDomain": clock})
            for name, (parts, shown) in VIEWS.items():
                address = "/".join((f"{site.url}/#/jobs/{job.job_id}", *parts))
                first = statistics.median(first_paint(page, session, address, shown) for _ in range(LOADS))
                updates = update_costs(page, session, site)
                worst = max(worst, first, *updates)
                middle = statistics.median(updates)
                print(
                    f"{name:<14} {width:>5} {first:>12.0f} {middle:>11.0f} {max(updates):>11.0f}", flush=True
                )
            page.context.close()
        browser.close()
    met = worst < TARGET_MS
    print(f"worst {worst:.0f} ms, target {TARGET_MS:.0f} ms: {'met' if met else 'MISSED'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
