"""Random graphs, schedules, crashes and aborts of continuous execution against a model. No JVM.

Every seed is a graph, an interleaving of its tasks, and barriers, aborts and crashes between any two of their steps:
tasks and slots die at any frame, attempts at every crash point of the driver, and in every third schedule the driver
dies itself and another one goes on from what it finds in the storage, at another parallelism. What comes out must be
what the model says, every cut that is restored must be consistent, and every schedule must come to its end within a
bounded number of steps.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path
from unittest import mock

import pytest
from tests.campaign import seeds
from tests.property.random_graphs import Journal, build, journals, random_shape

from tidemark import CheckpointingMode, Configuration, Encoder, FileSink, StreamExecutionEnvironment
from tidemark.api.collect import CollectBuffer
from tidemark.api.specs import CollectSinkSpec
from tidemark.checkpoint.messages import JobEnd
from tidemark.checkpoint.storage.memory import MemoryStorage
from tidemark.clock import ManualClock
from tidemark.errors import ExecutionError
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
from tidemark.wire import WireClosed

TIMEOUT_MS = 50
MEMORY = next((place for place in ("/dev/shm",) if Path(place).is_dir()), None)
PATIENCE = 3000
"""Rounds of many steps within which every schedule must have come to its end."""


class Crash(Exception):
    """What a crash raises inside the job."""


class FragileLink:
    """A link at every frame of which a task or a slot may die."""

    def __init__(self, link, host, run):
        self.link, self.host, self.run = link, host, run
        self.close, self.fileno = link.close, link.fileno

    def send(self, header, body=b""):
        self.run.on_frame(self.host)
        self.link.send(header, body)

    def poll(self):
        if self.host in self.run.dead:
            raise WireClosed("the slot was killed")
        return self.link.poll()


class FragileEngine(ContinuousLocalEngine):
    """An engine whose links are fragile."""

    run = None

    def link(self, host):
        return FragileLink(super().link(host), host, self.run)


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
        self.drivers = 0
        self.killed = Counter()
        self.armed = None
        self.slow = None
        self.victim, self.frames = "task", None
        """Who dies after how many frames."""
        self.dead = set()
        self.mode, self.seed = mode, seed
        self.storage = MemoryStorage()
        # Output must outlive a driver that dies; files are slow, so only then.
        self.files = tempfile.TemporaryDirectory(dir=MEMORY) if seed % 3 == 0 else None
        self.job = self._submit()

    def _submit(self, restored=None):
        self.drivers += 1
        configuration = {"pipeline.auto-watermark-interval": "1 ms"}
        if restored is not None:
            configuration["execution.savepoint.path"] = restored
        environment = StreamExecutionEnvironment.get_execution_environment(
            Configuration.from_dict(configuration)
        )
        environment.set_parallelism(self.rng.randint(1, 3))
        environment.enable_checkpointing(2**53, self.mode)
        config = environment.get_checkpoint_config()
        config.set_max_concurrent_checkpoints(self.rng.randint(1, 4))
        config.set_checkpoint_timeout(TIMEOUT_MS)
        config.set_tolerable_checkpoint_failure_number(10**6)
        result = build(environment, self.shape, self.name, random.Random(self.seed))
        if self.files is None:
            result._sink("result", CollectSinkSpec(self.buffer)).uid("result")
        else:
            sink = FileSink.for_row_format(self.files.name, Encoder.simple_string_encoder()).build()
            result.map(str).uid("text").sink_to(sink).uid("result")
        graph, settings, _caches = environment._prepared("random")
        tasks = number_of_tasks(graph, settings)
        engine = FragileEngine(self.clock, self.storage, tasks, self.pool, choose=self._choose)
        engine.run = self
        plan = StoragePlan(self.storage, self.storage, "/random", StorageChoice())
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

    def on_frame(self, host):
        """A task is about to send a frame to a slot."""
        if host in self.dead:
            raise WireClosed("the slot was killed")
        if self.frames is None:
            return
        self.frames -= 1
        if self.frames <= 0:
            self.frames = None
            self.killed[self.victim] += 1
            if self.victim == "task":
                raise Crash("the task was killed")
            self.dead.add(host)
            self.pool.calls = [call for call in self.pool.calls if host not in call[1]]
            raise WireClosed("the slot was killed")

    def _reached(self, point):
        if point == self.armed:
            self.armed = None
            raise Crash(point)

    def start(self):
        """Start an attempt; the cut it begins with must be consistent."""
        self.journal.new_attempt()
        self.dead.clear()
        frames, self.frames = self.frames, None
        self.job.start_attempt()
        self.job.engine.worker.call(lambda: None)  # tasks have obeyed
        self.frames = frames
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
        while True:
            try:
                action()
                return
            except Crash:
                lost = self.files is not None and self.rng.random() < 0.5
                action = self.next_driver if lost else self.restart
            except ExecutionError:
                # A task has failed, or lost its slot.
                action = self.restart

    def restart(self):
        """The attempt is over; the same driver makes another one."""
        self.job.abandon_attempt()
        self.start()

    def next_driver(self):
        """The driver is gone; another one starts from the newest snapshot that can be seen."""
        self.job.engine.stop()
        found = {
            int(name.removeprefix("chk-")): f"/random/{job}/{name}"
            for job in self.storage.list("/random")
            for name in self.storage.list(f"/random/{job}")
            if self.storage.exists(f"/random/{job}/{name}/_metadata")
        }
        self.killed["driver"] += 1
        self.job = self._submit(found[max(found)] if found else None)
        self.start()

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
            ("round", "trigger", "write", "slow", "time", "crash", "arm", "kill"),
            (12, 5, 5, 1.5, 0.7, 0.6, 1, 0.8),
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
        elif kind == "kill":
            self.victim, self.frames = rng.choice(["task", "slot"]), rng.randint(1, 12)
        else:
            self.armed = rng.choice([*CRASH_POINTS, "step"])

    def finish(self):
        """Let the input run out, cover everything by a last checkpoint, and return what came out."""
        self.armed = self.slow = self.frames = None
        if self.dead:
            self.guarded(self.restart)
        for _ in range(PATIENCE):
            self.guarded(lambda: self.round(64))
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
        return self.output()

    def output(self):
        """What came out, as text."""
        if self.files is None:
            return Counter(map(str, self.buffer.drain()[0]))
        with self.files as name:
            parts = [path for path in Path(name).rglob("part-*") if path.is_file()]
            return Counter(line for path in parts for line in path.read_text().splitlines())

    def expected(self):
        return Counter({str(row): count for row, count in self.shape.expected().items()})


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
    restores, killed = 0, Counter()
    for seed in seeds(100, campaign=2000)[block::4]:
        run, out = play(seed)
        expected = run.expected()
        assert out == expected, f"seed {seed}: lost {expected - out}, too much {out - expected}\n{run.shape}"
        restores += run.restores
        killed += run.killed
    assert restores > 10, "the schedules hardly ever restore anything"
    assert min(killed["task"], killed["slot"], killed["driver"]) > 3, f"hardly anybody dies: {killed}"


def test_at_least_once_loses_nothing_and_some_schedule_shows_a_record_twice():
    twice = 0
    for seed in seeds(40):
        run, out = play(seed, CheckpointingMode.AT_LEAST_ONCE)
        # Totals of what was seen twice are larger; what came out of sinks is what records said themselves.
        records = Counter({row: n for row, n in run.expected().items() if not row.startswith("('total'")})
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
        return out != run.expected()

    with fault:
        assert any(is_noticed(seed) for seed in range(60))
