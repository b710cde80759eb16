"""Random graphs, schedules, crashes and aborts of continuous execution against a model. No JVM.

Every seed is a graph, an interleaving of its tasks, and barriers, aborts and crashes between any two of their steps.
What comes out must be what the model says, every cut that is restored must be consistent, and every schedule must
come to its end within a bounded number of steps.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from unittest import mock

import pytest
from tests.campaign import seeds
from tests.property.random_graphs import Journal, build, journals, random_shape

from tidemark import CheckpointingMode, Configuration, StreamExecutionEnvironment
from tidemark.api.collect import CollectBuffer
from tidemark.api.specs import CollectSinkSpec
from tidemark.checkpoint.messages import JobEnd
from tidemark.checkpoint.storage.memory import MemoryStorage
from tidemark.clock import ManualClock
from tidemark.ids import new_job_id
from tidemark.protocol.deployment import BackendChoice, StorageChoice
from tidemark.runtime.continuous.channel_exchange import ChannelExchange
from tidemark.runtime.continuous.choice import number_of_tasks
from tidemark.runtime.continuous.execution import ContinuousExecution
from tidemark.runtime.continuous.local_engine import ContinuousLocalEngine
from tidemark.runtime.continuous.outputs import TaskOutputs
from tidemark.runtime.execution import CRASH_POINTS
from tidemark.runtime.storage_plan import StoragePlan
from tidemark.slot.gate import Gate

TIMEOUT_MS = 50
PATIENCE = 3000
"""Rounds of many steps within which every schedule must have come to its end."""


class Crash(Exception):
    """What a crash raises inside the job."""


class LaterPool:
    """Writes snapshots when the schedule says so, in any order."""

    def __init__(self, rng):
        self.rng, self.calls = rng, []

    def submit(self, fn, /, *args):
        self.calls.append((fn, args))

    def shutdown(self):
        self.calls.clear()

    abandon = shutdown

    def write_one(self):
        if self.calls:
            fn, args = self.calls.pop(self.rng.randrange(len(self.calls)))
            fn(*args)


class Run:
    """One seed."""

    def __init__(self, seed, mode=CheckpointingMode.EXACTLY_ONCE):
        self.rng = random.Random(seed)
        self.name = f"{seed}-{mode.name}"
        self.journal = journals[self.name] = Journal()
        self.shape = random_shape(self.rng)
        self.exact = mode is CheckpointingMode.EXACTLY_ONCE
        self.clock, self.pool, self.buffer = ManualClock(), LaterPool(self.rng), CollectBuffer()
        self.duplicates = 0
        self.restores = 0
        self.armed = None
        self.slow = None
        self.job = self._submit(mode)

    def _submit(self, mode):
        environment = StreamExecutionEnvironment.get_execution_environment(Configuration())
        environment.set_parallelism(self.rng.randint(1, 3))
        environment.enable_checkpointing(2**53, mode)
        config = environment.get_checkpoint_config()
        config.set_max_concurrent_checkpoints(self.rng.randint(1, 4))
        config.set_checkpoint_timeout(TIMEOUT_MS)
        config.set_tolerable_checkpoint_failure_number(10**6)
        result = build(environment, self.shape, self.name, self.rng)
        result._sink("result", CollectSinkSpec(self.buffer)).uid("result")
        graph, settings, _caches = environment._prepared("random")
        storage = MemoryStorage()
        tasks = number_of_tasks(graph, settings)
        engine = ContinuousLocalEngine(self.clock, storage, tasks, self.pool, choose=self._choose)
        plan = StoragePlan(storage, storage, "/random", StorageChoice())
        backend = BackendChoice.of(settings.state_backend)
        job = ContinuousExecution(graph, settings, new_job_id(), engine, self.clock, plan, backend)
        job.reached = self._reached
        return job

    def _choose(self, tasks):
        if self.armed == "step":
            self.armed = None
            raise Crash("step")
        faster = [task for task in tasks if task != self.slow]
        return self.rng.choice(faster or tasks)

    def _reached(self, point):
        if point == self.armed:
            self.armed = None
            raise Crash(point)

    def start(self):
        """Start an attempt; the cut it begins with must be consistent."""
        self.journal.new_attempt()
        self.job.start_attempt()
        self.job.engine.worker.call(lambda: None)  # tasks have obeyed
        restored = self.job.progress.restored_from is not None
        self.restores += restored
        positions = self.shape.positions(self.journal.opened)
        assert restored or not any(positions.values())
        for name, expected in self.shape.seen(positions).items():
            seen = self.journal.restored[name]
            for source, count in expected.items():
                told = f"{name} saw {seen}, but sources are at {positions}"
                assert seen[source] == count or (not self.exact and seen[source] > count), told
                self.duplicates += seen[source] > count

    def guarded(self, action):
        """Do it; after a crash start again until nothing crashes any more, recovering can crash, too."""
        try:
            action()
            return
        except Crash:
            pass
        while True:
            with contextlib.suppress(Crash):
                self.job.abandon_attempt()
                self.start()
                return

    def round(self, steps):
        self.job.engine.steps = steps
        self.job.tick()
        self.job.advance()

    def trigger(self):
        self.job.coordinator.request_checkpoint(self.clock.now())
        self.job.barrier()

    def act(self):
        """Do something at random."""
        rng = self.rng
        kind = rng.choices(
            ("round", "trigger", "write", "slow", "time", "crash", "arm"), (12, 5, 5, 1.5, 0.7, 0.8, 1)
        )[0]
        if kind == "round":
            self.round(rng.choice([1, 1, 2, 3, 5, 9]))
        elif kind == "trigger":
            self.trigger()
        elif kind == "write":
            self.pool.write_one()
        elif kind == "slow":
            self.slow = rng.choice([None, *range(self.job.engine.tasks)])
        elif kind == "time":
            self.clock.advance(rng.choice([1, 5, TIMEOUT_MS + 1, 300]))
        elif kind == "crash":
            raise Crash("between steps")
        else:
            self.armed = rng.choice([*CRASH_POINTS, "step"])

    def finish(self):
        """Let the input run out, cover everything by a last checkpoint, and return what came out."""
        self.armed = self.slow = None
        for _ in range(PATIENCE):
            self.round(64)
            self.pool.write_one()
            if self.job.finished() and not self.job.coordinator.pending():
                break
            self.clock.advance(1)
        else:
            raise AssertionError("the schedule stalls")
        self.trigger()
        for _ in range(PATIENCE):
            self.round(64)
            self.pool.write_one()
            if not self.job.coordinator.pending():
                break
        else:
            raise AssertionError("the last checkpoint does not complete")
        self.job.end(JobEnd.FINISHED)
        self.job.engine.stop()
        del journals[self.name]
        return Counter(self.buffer.drain()[0])


def play(seed, mode=CheckpointingMode.EXACTLY_ONCE):
    run = Run(seed, mode)
    try:
        run.guarded(run.start)
        for _ in range(run.rng.randint(10, 80)):
            run.guarded(run.act)
        out = run.finish()
        assert not run.journal.late, f"event time has overtaken {run.journal.late[:3]}"
    except Exception as exc:
        raise AssertionError(f"seed {seed} ({mode.name}): {exc}\n{run.shape}") from exc
    return run, out


@pytest.mark.parametrize("block", range(4))
def test_random_graphs_give_what_the_model_says_over_crashes_and_aborts(block):
    restores = 0
    for seed in seeds(200)[block::4]:
        run, out = play(seed)
        expected = run.shape.expected()
        assert out == expected, f"seed {seed}: lost {expected - out}, too much {out - expected}\n{run.shape}"
        restores += run.restores
    assert restores > 10, "the schedules hardly ever restore anything"


def test_at_least_once_loses_nothing_and_some_schedule_shows_a_record_twice():
    twice = 0
    for seed in seeds(60):
        run, out = play(seed, CheckpointingMode.AT_LEAST_ONCE)
        # Totals of what was seen twice are larger; what came out of sinks is what records said themselves.
        records = Counter({row: n for row, n in run.shape.expected().items() if row[0] != "total"})
        assert not records - out, f"seed {seed}: lost {records - out}\n{run.shape}"
        twice += run.duplicates
    assert twice, "no cut holds a record that its sources will read again"


@pytest.mark.parametrize(
    "fault",
    [
        mock.patch.object(Gate, "holds", return_value=False),
        mock.patch.object(ChannelExchange, "under_way", False),
        mock.patch.object(TaskOutputs, "_return"),
    ],
    ids=[
        "frames behind a barrier are let in",
        "barriers do not wait for what is under way",
        "output in front of an aborted barrier is forgotten",
    ],
)
def test_a_fault_in_the_protocol_is_noticed(fault):
    def is_noticed(seed):
        try:
            run, out = play(seed)
        except AssertionError:
            return True
        return out != run.shape.expected()

    with fault:
        assert any(is_noticed(seed) for seed in range(60))
