"""Thousands of crashes: random schedules give what the same schedules give without a crash.

More of it: `make chaos`, or `python -m tidemark.testing.crashtest --seeds 10000 --backend rocksdb`.
"""

from __future__ import annotations

import os
import tempfile
from unittest import mock

import pytest
from tests.campaign import seeds

from tidemark.runtime.execution import CRASH_POINTS
from tidemark.runtime.sinks.driver import TransactionalSink
from tidemark.runtime.snapshots import JobSnapshots
from tidemark.runtime.watermarks import WatermarkTracker
from tidemark.state.timers import InternalTimers
from tidemark.testing import ADVANCE, AT, CHECKPOINT, CRASH, CRASH_AT, END, RESCALE, WATERMARK
from tidemark.testing.crashtest import Mismatch, check_seed, main, model_of, run_schedule
from tidemark.testing.strategies import Schedule, random_schedule

pytestmark = pytest.mark.modes("epochs", reason="every schedule is run in a mode of its own")
MODES = ("epochs", "continuous")


@pytest.fixture(autouse=True)
def _files_in_memory(monkeypatch):
    """Opening a RocksDB store waits for the disk; hundreds of stores are opened here."""
    if os.access("/dev/shm", os.W_OK):
        monkeypatch.setattr(tempfile, "tempdir", "/dev/shm")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("backend", "count"), [("heap", 35), ("incremental-heap", 20), ("rocksdb", 25)])
def test_random_schedules_survive_their_crashes(backend, count, mode):
    for seed in seeds(count):
        check_seed(seed, backend, mode)


def test_a_seed_gives_the_same_schedule_every_time():
    assert random_schedule(17) == random_schedule(17)
    assert random_schedule(17) != random_schedule(18)


def test_schedules_reach_every_crash_point():
    points = {e.point for seed in range(50) for e in random_schedule(seed).events if isinstance(e, CRASH_AT)}
    assert points == set(CRASH_POINTS)


@pytest.mark.parametrize(
    "fault",
    [
        mock.patch.object(TransactionalSink, "restore"),
        mock.patch.object(InternalTimers, "restore_table"),
        mock.patch.object(JobSnapshots, "handle"),
    ],
    ids=["sinks keep what a crash took back", "timers are not restored", "nothing is ever snapshot"],
)
def test_a_fault_in_recovery_is_noticed_and_its_seed_is_told(fault, capsys):
    with fault:
        assert main(["--seeds", "3"]) == 1
    assert "again: python -m tidemark.testing.crashtest --start" in capsys.readouterr().err


def test_a_timer_that_waits_for_the_next_watermark_still_waits_after_a_crash():
    schedule = Schedule(
        0,
        (WATERMARK(100), AT(5, ("data", "a", 1)), CHECKPOINT, CRASH, AT(6, ("data", "a", 2)), END),
        2,
        ("ledger",),
    )
    expected = run_schedule(schedule.peaceful())
    assert run_schedule(schedule).difference(expected) is None
    with mock.patch.object(WatermarkTracker, "restore", return_value={}):
        assert "event" in run_schedule(schedule).difference(expected)


@pytest.mark.parametrize("mode", MODES)
def test_timers_that_are_due_fire_in_front_of_the_end_after_a_crash_took_their_firing_back(mode):
    events = (AT(5, ("data", "a", 1)), CHECKPOINT, ADVANCE(48), CRASH_AT("epoch"), END)
    schedule = Schedule(0, events, 2, ("ledger",))
    expected = run_schedule(schedule.peaceful())
    assert any(row[0] == "processing" for rows in expected.branches.values() for row in rows)
    assert run_schedule(schedule, mode=mode).difference(expected) is None


def test_all_backends_and_modes_are_judged_by_one_run_without_crashes(capsys):
    seed = min(range(50), key=lambda seed: len(random_schedule(seed).events))
    with mock.patch("tidemark.testing.crashtest.run_schedule", wraps=run_schedule) as run:
        assert main(["--start", str(seed), "--seeds", "1", "--backend", "all", "--mode", "all"]) == 0
    peaceful, *others = [call.args for call in run.call_args_list]
    assert peaceful == (random_schedule(seed).peaceful(),)
    assert [tuple(place) for _, *place in others] == [
        (backend, mode) for backend in ("heap", "incremental-heap", "rocksdb") for mode in MODES
    ]
    assert "6 schedules in" in capsys.readouterr().out


def test_the_command_stops_when_the_time_is_over(capsys):
    assert main(["--seeds", "1000000", "--seconds", "0"]) == 0
    assert capsys.readouterr().out.startswith("1 seeds from 0 on heap (epochs), 1 schedules in")


def test_a_wrong_model_fails_the_seed():
    seed = next(seed for seed in range(100) if "ledger" in random_schedule(seed).parts)
    model = {**model_of(random_schedule(seed)), ("numbers", "a"): [0]}
    with (
        mock.patch("tidemark.testing.crashtest.model_of", return_value=model),
        pytest.raises(Mismatch, match="the model says"),
    ):
        check_seed(seed)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("point", CRASH_POINTS)
def test_a_crash_at_every_point_of_one_schedule(point, mode):
    """The same crash before each event in turn, recovery included (a `restore` crash needs another one)."""
    events = [
        AT(1, ("data", "a", 1)),
        AT(2, ("data", "b", 2)),
        CHECKPOINT,
        AT(3, ("rule", "x", 3)),
        WATERMARK(4),
        CHECKPOINT,
        RESCALE(3),
        AT(9, ("data", "a", 4)),
        CHECKPOINT,
        CHECKPOINT,
        ADVANCE(30),
        AT(12, ("data", "b", 5)),
        CHECKPOINT,
        END,
    ]
    expected = run_schedule(Schedule(0, tuple(events), 2, ("ledger", "sink", "operator")).peaceful())
    crash = (CRASH_AT(point), CRASH_AT("epoch")) if point == "restore" else (CRASH_AT(point),)
    for at in (2, 5, 9, 12, 13):
        schedule = Schedule(0, (*events[:at], *crash, *events[at:]), 2, ("ledger", "sink", "operator"))
        outcome = run_schedule(schedule, mode=mode)
        assert outcome.difference(expected) is None, f"crash before event {at}"
