"""Which snapshots the note of what a sink has published lets a job start from: the beginning is one of them."""

from __future__ import annotations

import pytest

from tidemark.runtime.sinks.frontier import Frontier

UNTOUCHED = Frontier.at_start("job", None, settled=True)


def test_a_job_that_died_before_its_first_checkpoint_begins_again() -> None:
    assert UNTOUCHED.admits(None)
    assert Frontier("job").admits(None)


@pytest.mark.parametrize(
    "note",
    [
        pytest.param(Frontier("job", 1), id="a checkpoint may be published"),
        pytest.param(Frontier("job", origin_job="first", origin_checkpoint=3), id="it began at a snapshot"),
        pytest.param(Frontier("job", shared=("part-0",)), id="files that waited are published"),
        pytest.param(Frontier("job", withdrawn_to=1), id="output is being taken back"),
        pytest.param(Frontier("job", withdrawn=((1, 2),)), id="output was taken back"),
        pytest.param(Frontier("job", beyond=True), id="output without a checkpoint is published"),
    ],
)
def test_nothing_begins_again_behind_anything_published(note: Frontier) -> None:
    assert not note.admits(None)
