"""Small jobs for the local executor, and functions whose behaviour a test can steer and watch.

Functions are pickled on their way into a job but run in this process, so they share a `Board` by its name.
"""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass, field

from tidemark import (
    CheckpointedFunction,
    CheckpointListener,
    Configuration,
    KeyedProcessFunction,
    ListStateDescriptor,
    SourceFunction,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)

DEADLINE = 60
"""Seconds a test waits for something that should take milliseconds."""

_boards: dict[str, Board] = {}
_numbers = itertools.count()


@dataclass
class Board:
    """What the functions of one job and its test tell each other."""

    name: str
    events: list = field(default_factory=list)
    values: dict = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def note(self, *event):
        with self.changed:
            self.events.append(event[0] if len(event) == 1 else event)
            self.changed.notify_all()

    def set(self, name, value=True):
        with self.changed:
            self.values[name] = value
            self.changed.notify_all()

    def wait(self, condition, what="what the test waits for"):
        with self.changed:
            assert self.changed.wait_for(lambda: condition(self), DEADLINE), f"{what} did not happen"

    def wait_set(self, name):
        self.wait(lambda board: board.values.get(name), name)


def new_board():
    name = f"board-{next(_numbers)}"
    return _boards.setdefault(name, Board(name))


def board(name):
    return _boards[name]


def lane_threads(others=()):
    """Threads that run user code of local jobs, except those of earlier tests in the same process (`others`)."""
    return [
        t for t in threading.enumerate() if t.name in ("local-slots", "local-questions") and t not in others
    ]


def local_env(settings=None, parallelism=1, backend=None):
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"execution.target": "local", **(settings or {})})
    )
    env.set_parallelism(parallelism)
    if backend is not None:
        env.set_state_backend(backend)
    return env


class Numbers(SourceFunction, CheckpointedFunction, CheckpointListener):
    """Emits 0, 1, ..., one block after the other; a checkpoint has to cover each before the next begins.

    Stays open after the last block until the board says "end", if `bounded` is off.
    """

    def __init__(self, board_name, blocks=3, size=10, bounded=True):
        self.board_name, self.blocks, self.size, self.bounded = board_name, blocks, size, bounded
        self.running = True

    def initialize_state(self, context):
        store = context.get_operator_state_store()
        self.state = store.get_list_state(ListStateDescriptor("offset", Types.LONG()))
        self.offset = next(iter(self.state.get()), 0)
        self.cuts, self.covered = {}, self.offset
        self.told = threading.Event()
        board(self.board_name).note("source starts", self.offset)

    def snapshot_state(self, context):
        self.state.update([self.offset])
        self.cuts[context.get_checkpoint_id()] = self.offset

    def notify_checkpoint_complete(self, checkpoint_id):
        board(self.board_name).note("complete", checkpoint_id)
        self.covered = self.cuts.pop(checkpoint_id)
        self.told.set()

    def run(self, ctx):
        lock = ctx.get_checkpoint_lock()
        while self.running and self.offset < self.blocks * self.size:
            with lock:
                ctx.collect(self.offset)
                self.offset += 1
            while self.running and self.offset % self.size == 0 and self.covered < self.offset:
                self.told.wait(0.01)
                self.told.clear()
        board(self.board_name).set("emitted")
        while self.running and not self.bounded and not board(self.board_name).values.get("end"):
            self.told.wait(0.01)
            self.told.clear()

    def cancel(self):
        self.running = False


class Count(KeyedProcessFunction):
    """Counts per key; emits (key, count); notes its life on the board."""

    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        yield ctx.get_current_key(), self.count.value()


def finals(pairs):
    """The last count of every key."""
    return dict(pairs)
