"""The job of the crash test: all kinds of state, both kinds of timer, windows, a committing sink.

Elements are `("data", key, number)` and `("rule", name, number)`. What comes out is told apart by branch and
key, `(branch, key, ...)`, because the order between keys and between branches is free. What functions hold
at the end, and what the sink committed, is written to the `Journal` of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tidemark.api.connected import BroadcastConnectedStream
from tidemark.api.functions import (
    AggregateFunction,
    CheckpointedFunction,
    CheckpointListener,
    KeyedBroadcastProcessFunction,
    MapFunction,
    ProcessWindowFunction,
    ReduceFunction,
    SinkFunction,
)
from tidemark.api.output_tag import OutputTag
from tidemark.api.stream import DataStream
from tidemark.api.time_domain import TimeDomain
from tidemark.api.windows.assigners import TumblingEventTimeWindows
from tidemark.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from tidemark.state.ttl import StateTtlConfig
from tidemark.types.time import Time
from tidemark.types.typeinfo import Types

__all__ = ["FINAL", "LATENESS", "PARTS", "TTL", "WINDOW", "Journal", "build_crash_job"]

FINAL = 10**15
"""Time of the timer that empties a key's state into the output; only the end of input reaches it."""
WINDOW = 20
LATENESS = 5
TTL = 40
PARTS = ("ledger", "window", "operator", "sink")
"""Parts a job can be made of; fewer make more runs per second."""

RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
THIRDS = OutputTag("thirds", Types.TUPLE([Types.STRING(), Types.LONG()]))
LATE = OutputTag("late", Types.PICKLED_BYTE_ARRAY())


@dataclass(slots=True)
class Journal:
    """What a run did to the world outside, in this process."""

    held: dict[int, dict[int, tuple[list[int], list[int]]]] = field(default_factory=dict)
    """Checkpoint -> subtask -> what the operator-state function held in its two lists."""
    committed: dict[tuple[int, int], list[Any]] = field(default_factory=dict)
    """Transaction of the sink (checkpoint, subtask) -> its elements; committing twice changes nothing."""

    def last_held(self) -> tuple[list[int], list[int]]:
        """Both lists over all subtasks as of the newest checkpoint, sorted."""
        newest = self.held.get(max(self.held, default=0), {}).values()
        even = sorted(number for held, _ in newest for number in held)
        return even, sorted(number for _, held in newest for number in held)

    def output(self) -> list[Any]:
        """Everything the sink committed, sorted."""
        return sorted(element for elements in self.committed.values() for element in elements)


_journals: dict[str, Journal] = {}


def open_journal(run: str) -> Journal:
    """The journal of a run; functions find it by the name of the run."""
    return _journals.setdefault(run, Journal())


def close_journal(run: str) -> None:
    """Forget the journal of a run."""
    _journals.pop(run, None)


class _Sum(ReduceFunction):
    def reduce(self, value1: Any, value2: Any) -> Any:
        return value1 + value2


class _Mean(AggregateFunction):
    def create_accumulator(self) -> Any:
        return (0, 0)

    def add(self, value: Any, accumulator: Any) -> Any:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: Any) -> Any:
        return accumulator[0] / accumulator[1] if accumulator[1] else None

    def merge(self, a: Any, b: Any) -> Any:
        return a[0] + b[0], a[1] + b[1]


class Ledger(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    """Keeps every kind of keyed state, sets and deletes timers, reads the rules."""

    def open(self, runtime_context: Any) -> None:
        """Register all states."""
        expiring = StateTtlConfig.new_builder(Time.milliseconds(TTL)).build()
        self._count = runtime_context.get_state(_COUNT)
        self._numbers = runtime_context.get_list_state(ListStateDescriptor("numbers", Types.LONG()))
        self._classes = runtime_context.get_map_state(
            MapStateDescriptor("classes", Types.LONG(), Types.LONG())
        )
        self._total = runtime_context.get_reducing_state(
            ReducingStateDescriptor("total", _Sum(), Types.LONG())
        )
        self._mean = runtime_context.get_aggregating_state(
            AggregatingStateDescriptor("mean", _Mean(), Types.PICKLED_BYTE_ARRAY())
        )
        recent = ValueStateDescriptor("recent", Types.LONG())
        recent.enable_time_to_live(expiring)
        self._recent = runtime_context.get_state(recent)
        visits = MapStateDescriptor("visits", Types.LONG(), Types.LONG())
        visits.enable_time_to_live(expiring)
        self._visits = runtime_context.get_map_state(visits)

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        """Write all states, set and delete timers."""
        _, key, number = value
        self._count.update((self._count.value() or 0) + 1)
        if number % 11 == 0:
            self._numbers.clear()
        self._numbers.add(number)
        if number % 7 == 0:
            self._classes.remove(0)
        self._classes.put(number % 3, (self._classes.get(number % 3) or 0) + 1)
        self._total.add(number)
        self._mean.add(number)
        recent, visits = self._recent.value(), sorted(self._visits.keys())
        if number % 2:
            self._recent.update(number)
        self._visits.put(number % 4, number)
        timers, stamp = ctx.timer_service(), ctx.timestamp()
        timers.register_event_time_timer(stamp + number % 13)
        timers.register_processing_time_timer(timers.current_processing_time() + 5 + number % 40)
        if number % 4 == 0:
            timers.delete_event_time_timer(stamp + 1)
        timers.register_event_time_timer(FINAL)
        if number % 3 == 0:
            ctx.output(THIRDS, (key, number))
        rules = sorted(ctx.get_broadcast_state(RULES).items())
        yield "ledger", key, "seen", number, self._count.value(), rules, recent, visits

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        """Change a rule; some change the counts of all keys."""
        _, name, number = value
        rules = ctx.get_broadcast_state(RULES)
        if number % 5 == 0 and name in rules:
            rules.remove(name)
        else:
            rules.put(name, number)
        if number % 2 == 0:
            ctx.apply_to_keyed_state(_COUNT, lambda _key, count: count.update(count.value() + 100))
        return ()

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        """Show some state, or at the end all of it."""
        key = ctx.get_current_key()
        if timestamp < FINAL:
            kind = "event" if ctx.time_domain() is TimeDomain.EVENT_TIME else "processing"
            yield "ledger", key, kind, timestamp, self._count.value(), self._recent.value()
            return
        yield (
            "ledger",
            key,
            "final",
            self._count.value(),
            list(self._numbers.get()),
            sorted(self._classes.items()),
            self._total.get(),
            self._mean.get(),
            self._recent.value(),
            sorted(self._visits.items()),
            sorted(ctx.get_broadcast_state(RULES).items()),
        )


_COUNT = ValueStateDescriptor("count", Types.LONG())


class _WindowContent(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterator[Any]:
        fired = context.window_state().get_state(ValueStateDescriptor("fired", Types.LONG()))
        fired.update((fired.value() or 0) + 1)
        yield "window", key, context.window().start, [number for _, _, number in elements], fired.value()

    def clear(self, context: Any) -> None:
        context.window_state().get_state(ValueStateDescriptor("fired", Types.LONG())).clear()


class Witness(MapFunction, CheckpointedFunction, CheckpointListener):
    """Remembers every number in an even-split list and in a union list."""

    def __init__(self, run: str) -> None:
        self._run = run

    def initialize_state(self, context: Any) -> None:
        """Take back this subtask's share; of the union list that is what the number assigns to it."""
        store = context.get_operator_state_store()
        self._even = store.get_list_state(ListStateDescriptor("even", Types.LONG()))
        self._union = store.get_union_list_state(ListStateDescriptor("union", Types.LONG()))
        self._mine = list(self._even.get())
        self._all = list(self._union.get())
        self._seen: dict[int, tuple[list[int], list[int]]] = {}

    def open(self, runtime_context: Any) -> None:
        """Find out who this is."""
        self._index = runtime_context.get_index_of_this_subtask()
        count = runtime_context.get_number_of_parallel_subtasks()
        self._all = [number for number in self._all if number % count == self._index]

    def map(self, value: Any) -> Any:
        """Remember the number, pass the element on."""
        self._mine.append(value[2])
        self._all.append(value[2])
        return value

    def snapshot_state(self, context: Any) -> None:
        """Put what is held now into both lists."""
        self._even.update(self._mine)
        self._union.update(self._all)
        self._seen[context.get_checkpoint_id()] = (list(self._mine), list(self._all))

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Write to the journal what the checkpoint holds."""
        held = open_journal(self._run).held.setdefault(checkpoint_id, {})
        held[self._index] = self._seen.pop(checkpoint_id)


class CommittingSink(SinkFunction, CheckpointedFunction, CheckpointListener):
    """Commits elements when the checkpoint that covers them is complete, again after a crash if need be."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._index = 0

    def initialize_state(self, context: Any) -> None:
        """Commit again what the snapshot had prepared."""
        store = context.get_operator_state_store()
        self._prepared_state = store.get_list_state(
            ListStateDescriptor("prepared", Types.PICKLED_BYTE_ARRAY())
        )
        self._prepared: list[tuple[tuple[int, int], list[Any]]] = []
        self._buffer: list[Any] = []
        for transaction, elements in self._prepared_state.get():
            open_journal(self._run).committed[tuple(transaction)] = list(elements)

    def open(self, runtime_context: Any) -> None:
        """Find out who this is."""
        self._index = runtime_context.get_index_of_this_subtask()

    def invoke(self, value: Any, context: Any) -> None:
        """Hold an element back."""
        self._buffer.append(value)

    def snapshot_state(self, context: Any) -> None:
        """Close the transaction of this checkpoint."""
        if self._buffer:
            self._prepared.append(((context.get_checkpoint_id(), self._index), self._buffer))
            self._buffer = []
        self._prepared_state.update(list(self._prepared))

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Commit what this checkpoint and earlier ones cover."""
        committed = open_journal(self._run).committed
        for transaction, elements in self._prepared:
            if transaction[0] <= checkpoint_id:
                committed[transaction] = elements
        self._prepared = [p for p in self._prepared if p[0][0] > checkpoint_id]


def build_crash_job(run: str, parts: Iterable[str] = PARTS) -> Callable[[DataStream], DataStream]:
    """What `run_script` needs to run the job.

    Args:
        run: Names the journal.
        parts: Some of `PARTS`.
    """
    chosen = set(parts)

    def build(stream: DataStream) -> DataStream:
        data = stream.filter(lambda element: element[0] == "data")
        if "operator" in chosen:
            spread = data.partition_custom(lambda number, count: number % count, lambda element: element[2])
            data = spread.map(Witness(run)).uid("witness")
        results = []
        if "ledger" in chosen:
            rules = stream.filter(lambda element: element[0] == "rule")
            results += _ledger(data, rules)
        if "window" in chosen:
            results += _window(data)
        if not results:
            results.append(data.map(lambda element: ("data", element[1], element[2])))
        result = results[0].union(*results[1:]) if len(results) > 1 else results[0]
        if "sink" in chosen:
            result.map(repr, Types.STRING()).add_sink(CommittingSink(run)).uid("sink")
        return result

    return build


def _ledger(data: DataStream, rules: DataStream) -> list[DataStream]:
    keyed = data.key_by(lambda element: element[1], Types.STRING())
    connected: BroadcastConnectedStream = keyed.connect(rules.broadcast(RULES))
    ledger = connected.process(Ledger()).uid("ledger")
    thirds = (
        ledger.get_side_output(THIRDS)
        .key_by(lambda pair: pair[0], Types.STRING())
        .reduce(lambda a, b: (a[0], a[1] + b[1]))
        .uid("thirds")
    )
    return [ledger, thirds.map(lambda pair: ("thirds", pair[0], pair[1]))]


def _window(data: DataStream) -> list[DataStream]:
    windows = (
        data.key_by(lambda element: element[1], Types.STRING())
        .window(TumblingEventTimeWindows.of(Time.milliseconds(WINDOW)))
        .allowed_lateness(LATENESS)
        .side_output_late_data(LATE)
        .process(_WindowContent())
        .uid("window")
    )
    late = windows.get_side_output(LATE)
    return [windows, late.map(lambda element: ("late", element[1], element[2]))]
