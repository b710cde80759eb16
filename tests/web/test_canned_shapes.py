"""The page is tried out with made-up answers; they must have the shapes of real ones."""

from __future__ import annotations

from typing import Any

import pytest
from tests.browser.canned import CannedJob
from tests.web.conftest import Site, Start, until

CANNED = CannedJob()
VERTEX = CANNED.vertex_id(3)


def unknown_parts(made_up: Any, real: Any, place: str = "") -> list[str]:
    """Where the made-up answer has something that the real one has not, or something of another kind."""
    if made_up is None or real is None:
        return []
    if isinstance(made_up, dict) and isinstance(real, dict):
        missing = [f"{place}.{key}" for key in made_up if key not in real]
        return missing + [
            part
            for key, value in made_up.items()
            if key in real
            for part in unknown_parts(value, real[key], f"{place}.{key}")
        ]
    if isinstance(made_up, list) and isinstance(real, list):
        return unknown_parts(made_up[0], real[0], f"{place}[]") if made_up and real else []
    numbers = isinstance(made_up, int | float) and isinstance(real, int | float)
    return [] if numbers or type(made_up) is type(real) else [f"{place}: {made_up!r} is not like {real!r}"]


def by_name(answer: Any, *places: str) -> Any:
    """The answer with one entry, named `*`, where names are ids."""
    for place in places:
        answer[place] = {"*": next(iter(answer[place].values()))}
    return answer


@pytest.fixture
def site(start: Start) -> Site:
    running = start({"execution.mode": "continuous", "state.checkpoints.num-retained": "1000"})
    until(lambda: running.of_job("/checkpoints")["counts"]["completed"])
    until(lambda: running.vertex("count")["metrics"]["busy"] is not None)
    return running


def test_made_up_answers_have_nothing_that_real_ones_lack(site: Site) -> None:
    vertex = site.vertex("count")["id"]
    newest = site.of_job("/checkpoints")["latest"]["completed"]["id"]
    details = f"/checkpoints/details/{newest}"
    slot = site.get("/taskmanagers")["taskmanagers"][0]
    pairs = {
        "overview": (CANNED.overview(), site.get("/jobs/overview")["jobs"][0]),
        "job": (CANNED.job(), site.of_job()),
        "checkpoints": (CANNED.checkpoints(), site.of_job("/checkpoints")),
        "checkpoint": (
            by_name(CANNED.checkpoint(120, tasks=True), "tasks"),
            by_name(site.of_job(details), "tasks"),
        ),
        "subtasks": (CANNED.checkpoint_subtasks(120, VERTEX), site.of_job(f"{details}/subtasks/{vertex}")),
        "configuration": (CANNED.checkpoint_config(), site.of_job("/checkpoints/config")),
        "exceptions": (CannedJob(failed_once=False).exceptions(), site.of_job("/exceptions")),
        "vertex": (CANNED.vertex_details(VERTEX), site.of_job(f"/vertices/{vertex}")),
        "pressure": (CANNED.backpressure(), site.of_job(f"/vertices/{vertex}/backpressure")),
        "slot": (by_name(CANNED.slots()[0], "key-groups"), by_name(slot, "key-groups")),
        "states": (CANNED.states(), site.of_job("/states")),
        "settings": (CANNED.settings(), site.of_job("/settings")),
        "series": (CANNED.series(), site.of_job("/series")),
    }

    wrong = [part for name, pair in pairs.items() for part in unknown_parts(*pair, name)]

    assert wrong == []
