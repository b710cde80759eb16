"""Whole jobs as scripts: elements, checkpoints, crashes, time and rescaling, deterministic and without a JVM.

`run_script(build, [a, a, CHECKPOINT, a, CRASH, a, END])` runs the job that `build` makes of the scripted
stream and returns the elements of its result whose effects survive, in order. The real epoch loop, slots,
coordinator and storage run; only sockets and Spark are left out.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from tidemark.api.collect import CollectBuffer
from tidemark.api.environment import StreamExecutionEnvironment
from tidemark.api.specs import CollectionSourceSpec, CollectSinkSpec
from tidemark.checkpoint.messages import JobEnd
from tidemark.checkpoint.storage.memory import MemoryStorage
from tidemark.clock import ManualClock
from tidemark.config import Configuration, ExecutionMode, Options
from tidemark.ids import new_job_id
from tidemark.plan.vertex import Vertex
from tidemark.protocol.batch import MIN_WATERMARK
from tidemark.protocol.deployment import BackendChoice, StorageChoice
from tidemark.runtime.continuous.execution import ContinuousExecution
from tidemark.runtime.continuous.local_engine import ContinuousLocalEngine
from tidemark.runtime.execution import CRASH_POINTS, JobExecution
from tidemark.runtime.local_engine import LocalEngine
from tidemark.runtime.progress import timed_accesses
from tidemark.runtime.records import Records
from tidemark.runtime.sources.driver import CollectionSource, DriverSource, SourcePoll
from tidemark.runtime.sources.enumerators import AssignedSplit, CollectionEnumerator, Enumerator
from tidemark.runtime.sources.factory import DriverSourceContext, make_source
from tidemark.runtime.sources.readers import Reader
from tidemark.runtime.sources.splits import IndexSplit
from tidemark.runtime.storage_plan import StoragePlan
from tidemark.runtime.worker import Worker

__all__ = [
    "ADVANCE",
    "AT",
    "BARRIER",
    "CHECKPOINT",
    "CRASH",
    "CRASH_AT",
    "END",
    "RESCALE",
    "SAVEPOINT",
    "WATERMARK",
    "run_script",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Mark:
    """An event without data."""

    name: str

    def __repr__(self) -> str:
        return self.name


CHECKPOINT = _Mark("CHECKPOINT")
"""Take a checkpoint; it is complete before the next event."""
BARRIER = _Mark("BARRIER")
"""Begin a checkpoint; it is written, and completes, after the next event."""
SAVEPOINT = _Mark("SAVEPOINT")
"""Take a savepoint; the job goes on."""
CRASH = _Mark("CRASH")
"""Kill the attempt between two epochs; the job recovers. Fires once."""
END = _Mark("END")
"""End of input."""


@dataclass(frozen=True, slots=True)
class ADVANCE:
    """Let processing time pass."""

    ms: int


@dataclass(frozen=True, slots=True)
class WATERMARK:
    """Emit a watermark from the scripted source."""

    timestamp: int


@dataclass(frozen=True, slots=True)
class AT:
    """An element with a timestamp."""

    timestamp: int
    value: Any


@dataclass(frozen=True, slots=True)
class RESCALE:
    """Take a savepoint, stop, and go on with another parallelism."""

    parallelism: int


@dataclass(frozen=True, slots=True)
class CRASH_AT:
    """Crash when the job next passes a named point (`runtime.execution.CRASH_POINTS`).

    Several may wait at a time; a `RESCALE` and the end of the script call them off.
    """

    point: str

    def __post_init__(self) -> None:
        if self.point not in CRASH_POINTS:
            raise ValueError(f"Unknown crash point '{self.point}'; use one of {', '.join(CRASH_POINTS)}.")


class ScriptedCrash(Exception):
    """What a scripted crash raises inside the job."""


class _LaterPool:
    """Writes snapshots when the script says so, whatever has happened to the state since."""

    def __init__(self) -> None:
        self._calls: list[Callable[[], Any]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> None:
        """Remember the call."""
        self._calls.append(lambda: fn(*args))

    def shutdown(self) -> None:
        """Forget what was never written, as a crash does."""
        self._calls.clear()

    abandon = shutdown

    def run(self) -> None:
        """Carry out what was submitted."""
        calls, self._calls = self._calls, []
        for call in calls:
            call()


class _NoThread(Worker):
    """Runs calls where they are made: a script has one thing going on at a time, and nothing in it hangs."""

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Carry it out."""
        return function(*args)

    def post(self, function: Callable[..., T], *args: Any) -> Future[T]:
        """The same; what it raises is kept for whoever asks."""
        future: Future[T] = Future()
        try:
            future.set_result(function(*args))
        except Exception as exc:
            future.set_exception(exc)
        return future


@dataclass(slots=True)
class _Tape:
    """The part of the script a source plays: elements and watermarks, and how far it may play."""

    items: list[Any] = field(default_factory=list)
    allowed: int = 0
    ended: bool = False
    turn: bool = False
    """Whether a continuous job may play one more: everybody has heard of the one before."""
    played: int = 0
    """How far a continuous job has come in this attempt."""


@dataclass(frozen=True, slots=True)
class _ScriptedSourceSpec(CollectionSourceSpec):
    """The elements of a script."""

    tape: _Tape = field(default_factory=_Tape)
    kind: ClassVar[str] = "scripted"

    def make_enumerator(self, vertex: Vertex) -> Enumerator:
        """One split in continuous execution, too."""
        return CollectionEnumerator(vertex)

    def open_reader(self, vertex: Vertex, assigned: AssignedSplit, subtask: int) -> Reader:
        """Plays the tape in continuous execution."""
        return _ScriptedReader(vertex.spec, assigned.position or 0)


class _ScriptedSource(CollectionSource):
    """Plays the tape, one element per epoch; the position is an index into it.

    A watermark reaches the last operator before the next element is read. When the tape is played again after
    a crash, everything therefore meets in the same order as the first time.
    """

    def __init__(self, vertex: Vertex, tape: _Tape, travelling: Callable[[], bool]) -> None:
        super().__init__(vertex)
        self._tape = tape
        self._travelling = travelling
        self._watermark = MIN_WATERMARK

    def start(self, position: Any | None) -> None:
        """Begin at an index; the newest watermark in front of it counts."""
        super().start(position)
        played = self._tape.items[: self._next]
        marks = [item.timestamp for item in played if isinstance(item, WATERMARK)]
        self._watermark = max(marks, default=MIN_WATERMARK)

    def poll(self) -> SourcePoll | None:
        """The next element; a watermark in front of it is taken, and has to arrive first."""
        tape = self._tape
        if self._travelling() or self._next >= tape.allowed:
            return None
        if isinstance(tape.items[self._next], WATERMARK):
            self._watermark = max(self._watermark, tape.items[self._next].timestamp)
            self._next += 1
            return None
        self._planned = self._next + 1
        return SourcePoll([IndexSplit(self._next, self._planned)])

    @property
    def behind(self) -> bool:
        """Whether there is more to play."""
        return self._next < self._tape.allowed

    @property
    def ended(self) -> bool:
        """Whether the script has ended and all of it was played."""
        return self._tape.ended and not self.behind

    def watermark(self) -> tuple[int, bool]:
        """The newest watermark played."""
        return self._watermark, False


class _ScriptedReader(Reader):
    """Plays the tape, one element at a time; see `_ScriptedSource`."""

    def __init__(self, spec: _ScriptedSourceSpec, position: int) -> None:
        self._spec = spec
        self._next = position
        self._watermark = MIN_WATERMARK
        spec.tape.played = position
        for item in spec.tape.items[:position]:
            self._take_mark(item)

    def _take_mark(self, item: Any) -> None:
        if isinstance(item, WATERMARK):
            self._watermark = max(self._watermark, item.timestamp)

    def read(self, max_records: int, timeout_s: float) -> Records | None:
        """The next element; nothing if it is a watermark, or not its turn yet."""
        tape = self._spec.tape
        if self._next >= tape.allowed:
            return None if tape.ended else Records([])
        if not tape.turn:
            return Records([])
        tape.turn = False
        item = tape.items[self._next]
        self._next += 1
        tape.played = self._next
        self._take_mark(item)
        if isinstance(item, WATERMARK):
            return Records([])
        stamps = self._spec.timestamps
        at = self._next - 1
        return Records([self._spec.elements[at]], None if stamps is None else [stamps[at]])

    def watermark(self) -> int:
        """The newest watermark played."""
        return self._watermark

    def position(self) -> int:
        """Index of the next element."""
        return self._next


class _Script:
    """Drives one scripted job through its events."""

    def __init__(
        self,
        build: Callable[[Any], Any],
        events: Sequence[Any],
        parallelism: int,
        configuration: Configuration | None,
        state_backend: Any,
        clock: ManualClock,
        seed: int = 0,
    ) -> None:
        self._choose = random.Random(seed).choice
        self._build = build
        self._clock = clock
        self._configuration = Configuration(configuration) if configuration is not None else Configuration()
        self._backend = state_backend
        self._storage = MemoryStorage()
        self._buffer = CollectBuffer()
        self._job_id = new_job_id()
        self._pool = _LaterPool()
        data = [event for event in events if not _is_control(event)]
        self._tape = _Tape(data)
        self._armed: list[str] = []
        self._job = self._submit(parallelism, None)
        self._start()

    def _submit(self, parallelism: int, savepoint: str | None) -> JobExecution:
        configuration = Configuration(self._configuration)
        if savepoint is not None:
            configuration.set_string(Options.SAVEPOINT_PATH.key, savepoint)
        environment = StreamExecutionEnvironment.get_execution_environment(configuration)
        environment.set_parallelism(parallelism)
        environment.enable_checkpointing(2**53)
        if self._backend is not None:
            environment.set_state_backend(self._backend)
        values = [event.value if isinstance(event, AT) else event for event in self._tape.items]
        stamps = [event.timestamp if isinstance(event, AT) else None for event in self._tape.items]
        timed = any(stamp is not None for stamp in stamps)
        from tidemark.api.builder import stream_from_source

        spec = _ScriptedSourceSpec(values, stamps if timed else None, tape=self._tape)
        stream = stream_from_source(environment, spec, "script", None, 1)
        stream.uid("script")
        result = self._build(stream)
        result._sink("result", CollectSinkSpec(self._buffer)).uid("result")
        graph, settings, _caches = environment._prepared("script")
        plan = StoragePlan(self._storage, self._storage, "/script", StorageChoice())
        backend = BackendChoice.of(settings.state_backend, timed_accesses(settings.configuration))
        job: JobExecution
        if settings.configuration.get(Options.EXECUTION_MODE) is ExecutionMode.CONTINUOUS:
            tasks = ContinuousLocalEngine(
                self._clock,
                self._storage,
                parallelism,
                self._pool,
                choose=self._choose,
                worker=_NoThread("script"),
            )
            job = ContinuousExecution(graph, settings, self._job_id, tasks, self._clock, plan, backend)
        else:
            engine = LocalEngine(self._clock, self._storage, self._pool, worker=_NoThread("script"))
            job = JobExecution(
                graph, settings, self._job_id, engine, self._make_source, self._clock, plan, backend
            )
        job.reached = self._reached
        return job

    def _make_source(self, vertex: Vertex, context: DriverSourceContext) -> DriverSource:
        if isinstance(vertex.spec, _ScriptedSourceSpec):
            return _ScriptedSource(vertex, self._tape, lambda: self._job.watermarks.travelling())
        return make_source(vertex, context)

    def _reached(self, point: str) -> None:
        if point in self._armed:
            self._armed.remove(point)
            raise ScriptedCrash(point)

    def _start(self) -> None:
        self._guarded(self._job.start_attempt)

    def _guarded(self, action: Callable[[], Any]) -> None:
        """Run an action; a scripted crash in it is recovered from, as the runner would."""
        try:
            action()
        except ScriptedCrash:
            self._recover()

    def _recover(self) -> None:
        """Start again until nothing crashes any more; recovering can crash, too."""
        while True:
            with contextlib.suppress(ScriptedCrash):
                self._job.abandon_attempt()
                self._job.start_attempt()
                self._pump()
                return

    def _pump(self) -> None:
        """Run epochs until there is nothing to do."""
        job = self._job
        quiet = 0
        while quiet < 2 or self._is_behind():  # a watermark that one poll reads is seen by the next one
            self._tape.turn = quiet > 0
            job.tick()
            quiet = 0 if job.advance() else quiet + 1

    def _is_behind(self) -> bool:
        """Whether there is more to play."""
        if isinstance(self._job, ContinuousExecution):
            return self._tape.played < self._tape.allowed
        return any(
            isinstance(source, _ScriptedSource) and source.behind for source in self._job.sources.values()
        )

    def _begin(self) -> None:
        self._job.coordinator.request_checkpoint(self._clock.now())
        self._job.barrier()
        self._travel()

    def _travel(self) -> None:
        """Let the barrier reach everybody; in epochs it has."""
        if isinstance(self._job, ContinuousExecution):
            self._pump()

    def _complete(self) -> None:
        """Write the checkpoint under way, if there is one."""
        self._pool.run()
        self._job.tick()

    def _snapshot(self) -> None:
        self._begin()
        self._complete()

    def _savepoint(self) -> str:
        future = self._job.snapshots.request_savepoint("/savepoints")
        self._job.barrier()
        self._travel()
        self._complete()
        return future.result(0)

    def play(self, event: Any) -> None:
        """Carry one event out, and complete a checkpoint that began before it."""
        if event is BARRIER or event is CHECKPOINT or event is SAVEPOINT or isinstance(event, RESCALE):
            self._guarded(self._complete)
        self._carry_out(event)
        if event is not BARRIER:
            self._guarded(self._complete)

    def _carry_out(self, event: Any) -> None:
        if event is CHECKPOINT:
            self._guarded(self._snapshot)
        elif event is BARRIER:
            self._guarded(self._begin)
        elif event is SAVEPOINT:
            self._guarded(self._savepoint)
        elif event is CRASH:
            self._recover()
        elif event is END:
            self._tape.ended = True
            self._guarded(self._pump)
        elif isinstance(event, CRASH_AT):
            self._armed.append(event.point)
        elif isinstance(event, ADVANCE):
            self._clock.advance(event.ms)
            self._guarded(self._pump)
        elif isinstance(event, RESCALE):
            self._armed.clear()
            self._rescale(event.parallelism)
        else:
            self._tape.allowed += 1
            self._guarded(self._pump)

    def _rescale(self, parallelism: int) -> None:
        path = self._savepoint()
        self._job.engine.stop()
        self._job = self._submit(parallelism, path)
        self._start()
        self._guarded(self._pump)

    def finish(self) -> list[Any]:
        """Cover everything by a last checkpoint, commit it, and return what came out."""
        self._armed.clear()
        self._complete()
        self._snapshot()
        self._job.end(JobEnd.FINISHED)
        self._job.engine.stop()
        return self._buffer.drain()[0]


def _is_control(event: Any) -> bool:
    return isinstance(event, (_Mark, ADVANCE, RESCALE, CRASH_AT))


def run_script(
    build: Callable[[Any], Any],
    events: Sequence[Any],
    *,
    parallelism: int = 1,
    configuration: Configuration | None = None,
    state_backend: Any = None,
    clock: ManualClock | None = None,
    seed: int = 0,
) -> list[Any]:
    """Run a scripted job in the local executor.

    Args:
        build: Gets the scripted stream and returns the result stream.
        events: Elements (plain, or `AT(timestamp, value)`), `WATERMARK(t)`, `CHECKPOINT`, `BARRIER`,
            `SAVEPOINT`, `CRASH`, `CRASH_AT(point)`, `ADVANCE(ms)`, `RESCALE(p)`, `END`.
        parallelism: Of the job at its start.
        configuration: Laid over the configuration file.
        state_backend: As `env.set_state_backend`.
        clock: Where time comes from; a fresh `ManualClock` otherwise.
        seed: Which task of a continuous job (`execution.mode`: continuous) moves next, all along.

    Returns:
        The elements of the result stream whose effects survive, in order.
    """
    script = _Script(build, events, parallelism, configuration, state_backend, clock or ManualClock(), seed)
    for event in events:
        script.play(event)
    return script.finish()
