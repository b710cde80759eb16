"""Savepoints of window and broadcast operators, written by jobs in the local executor."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from tests.unit.state_processor.jobs import PAIR, environment

from tidemark import (
    AggregateFunction,
    BroadcastProcessFunction,
    EventTimeSessionWindows,
    MapStateDescriptor,
    ProcessWindowFunction,
    SourceFunction,
    Time,
    TumblingEventTimeWindows,
    Types,
)

EVENTS = [("a", 1), ("a", 5), ("b", 3), ("a", 22)]
RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())


def add(left: Any, right: Any) -> Any:
    return left[0], left[1] + right[1]


class Count(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class Keep(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        return []


class Events(SourceFunction):
    """Emits with timestamps and no watermark, then one record that says that all the others are through."""

    def run(self, ctx: Any) -> None:
        self.stopped = threading.Event()
        for key, number in EVENTS:
            ctx.collect_with_timestamp((key, number), number)
        self.stopped.wait()

    def cancel(self) -> None:
        self.stopped.set()


def window_savepoint(directory: Path) -> str:
    env = environment()
    source = env.add_source(Events(), "events", PAIR).uid("events")
    keyed = source.key_by(lambda pair: pair[0], Types.STRING())
    tumbling = keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
    streams = [
        tumbling.process(Keep(), PAIR).uid("lists"),
        keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(10))).reduce(add).uid("sums"),
        keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
        .aggregate(Count(), accumulator_type=Types.LONG())
        .uid("counts"),
        keyed.window(EventTimeSessionWindows.with_gap(Time.milliseconds(5)))
        .process(Keep(), PAIR)
        .uid("sessions"),
    ]
    for number, stream in enumerate(streams):
        stream.map(lambda value: value).print().uid(f"print-{number}")
    return _savepoint_after(source, len(EVENTS), directory)


class Rules(BroadcastProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        return []

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        ctx.get_broadcast_state(RULES).put(*value)
        yield value


def broadcast_savepoint(directory: Path) -> str:
    env = environment()
    data = env.from_collection([("x", 1)], PAIR).uid("data")

    class Twice(SourceFunction):
        def run(self, ctx: Any) -> None:
            self.stopped = threading.Event()
            ctx.collect(("a", 1))
            ctx.collect(("b", 2))
            self.stopped.wait()

        def cancel(self) -> None:
            self.stopped.set()

    rules = env.add_source(Twice(), "rules", PAIR).uid("rule-source")
    stream = data.connect(rules.broadcast(RULES)).process(Rules(), PAIR).uid("rules")
    return _savepoint_after(stream, 4, directory)


def _savepoint_after(stream: Any, count: int, directory: Path) -> str:
    """A savepoint of the job once `count` elements of `stream` have come out."""
    with stream.execute_and_collect() as iterator:
        for _ in range(count):
            next(iterator)
        return str(iterator.get_job_client().trigger_savepoint(str(directory)).result())
