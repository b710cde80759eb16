"""Epoch ids: they grow by one, belong to the snapshot, and go on behind it, whoever restores it."""

from __future__ import annotations

import pickle

import pytest

from tidemark.checkpoint.metadata.registry import read_metadata
from tidemark.clock import ManualClock
from tidemark.testing import CHECKPOINT, CRASH, END, RESCALE
from tidemark.testing.scripts import _Script

pytestmark = pytest.mark.modes("epochs", reason="a continuous job has no epochs")


class Noting:
    """A sink that notes what it takes, and in which epoch."""

    def __init__(self, sink, taken):
        self._sink = sink
        self._taken = taken

    def __getattr__(self, name):
        return getattr(self._sink, name)

    def take(self, rows, staged, epoch):
        rows = list(rows)
        self._taken.append((epoch, [value for row in rows for value in pickle.loads(row)[0]]))
        self._sink.take(rows, staged, epoch)


class Watched(_Script):
    """A script whose sink is watched, in every job that it starts."""

    def __init__(self, events):
        self.taken = []
        super().__init__(lambda stream: stream, events, 1, None, None, ManualClock())

    def _submit(self, parallelism, savepoint):
        job = super()._submit(parallelism, savepoint)
        job.sinks = {key: Noting(sink, self.taken) for key, sink in job.sinks.items()}
        return job

    def epoch_in(self, snapshot):
        return int(read_metadata(self._storage, snapshot.directory).properties["epoch"])

    def play_all(self, events):
        """Play, and return what the sink has taken meanwhile."""
        before = len(self.taken)
        for event in events:
            self.play(event)
        return self.taken[before:]


def ids(taken):
    return [epoch for epoch, _values in taken]


def values(taken):
    return [value for _epoch, some in taken for value in some]


@pytest.mark.parametrize("again", [CRASH, RESCALE(1)], ids=["same driver", "job started from a savepoint"])
def test_counting_goes_on_behind_the_snapshot(again):
    first, lost, later = ["a", "b", CHECKPOINT], ["c", "d"], ["e", END]
    script = Watched([*first, *lost, *later])
    covered = script.play_all(first)
    beyond = script.play_all(lost)
    assert ids(covered) + ids(beyond) == list(range(len(covered) + len(beyond)))

    # A crash goes back to the checkpoint; a savepoint is taken where the job stands.
    replayed = script.play_all([again])
    snapshot = script._job.coordinator.completed.latest()
    assert script.epoch_in(snapshot) == len(covered) + (0 if again is CRASH else len(beyond))

    after = replayed + script.play_all(later)
    assert ids(after) == list(range(script.epoch_in(snapshot), script.epoch_in(snapshot) + len(after)))
    assert values(after) == (["c", "d", "e"] if again is CRASH else ["e"])
    assert script.finish() == ["a", "b", "c", "d", "e"]


def test_replayed_epochs_have_their_old_ids_though_they_are_cut_differently():
    first, lost = ["a", CHECKPOINT], ["b", "c"]
    script = Watched([*first, *lost, END])
    script.play_all(first)
    before = script.play_all(lost)

    after = script.play_all([CRASH])

    assert ids(after)[0] == ids(before)[0]
    assert values(after) == values(before)
    assert after != before
    assert script.finish() == ["a", "b", "c"]
