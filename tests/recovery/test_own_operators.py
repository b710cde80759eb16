"""Operators of one's own: elements, time, timers, two inputs; raw state through crashes, rescaling and savepoints."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
from tests.campaign import seeds

from tidemark import (
    Configuration,
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    ListStateDescriptor,
    OneInputStreamOperator,
    OutputTag,
    SourceFunction,
    StreamExecutionEnvironment,
    StreamRecord,
    TwoInputStreamOperator,
    Types,
    ValueStateDescriptor,
)
from tidemark.checkpoint.inspection import describe
from tidemark.errors import ConfigError, ExecutionError
from tidemark.runtime.execution import CRASH_POINTS
from tidemark.state_processor.rewrite import rekey
from tidemark.testing import (
    ADVANCE,
    AT,
    CHECKPOINT,
    CRASH,
    CRASH_AT,
    END,
    RESCALE,
    SAVEPOINT,
    WATERMARK,
    run_script,
)

BACKENDS = pytest.mark.parametrize(
    "backend", [HashMapStateBackend, EmbeddedRocksDBStateBackend], ids=["heap", "rocksdb"]
)


class Hoarder(OneInputStreamOperator):
    """Keeps all elements as raw operator state, a partition each, and lets them out at the end."""

    def initialize_state(self, context: Any) -> None:
        self.kept = [json.load(part.get_stream()) for part in context.get_raw_operator_state_inputs()]
        assert context.is_restored() or not self.kept

    def process_element(self, element: StreamRecord) -> None:
        self.kept.append(element.value)

    def snapshot_state(self, context: Any) -> None:
        output = context.get_raw_operator_state_output()
        for value in self.kept:
            output.start_new_partition()
            output.write(json.dumps(value).encode())
        assert output.get_number_of_partitions() == len(self.kept)

    def end_input(self, input_id: int) -> Any:
        assert input_id == 1
        yield from self.kept


class RawCounter(OneInputStreamOperator):
    """Counts per key in a dictionary; in snapshots it is raw keyed state, JSON per key group."""

    def initialize_state(self, context: Any) -> None:
        self.groups: dict[int, dict[str, int]] = {}
        for provider in context.get_raw_keyed_state_inputs():
            self.groups[provider.get_key_group_id()] = json.load(provider.get_stream())

    def open(self) -> None:
        self.last = self.get_runtime_context().get_state(ValueStateDescriptor("last", Types.LONG()))

    def process_element(self, element: StreamRecord) -> None:
        counts = self.groups.setdefault(self.get_current_key_group(), {})
        key = str(self.get_current_key())
        counts[key] = counts.get(key, 0) + 1
        self.last.update(element.value)
        self.output.collect((self.get_current_key(), counts[key]))

    def snapshot_state(self, context: Any) -> None:
        output = context.get_raw_keyed_operator_state_output()
        assert output is context.get_raw_keyed_state_output()
        assert set(self.groups) <= set(output.get_key_group_list())
        for group in output.get_key_group_list():
            if group in self.groups:
                output.start_new_key_group(group)
                output.write(json.dumps(self.groups[group]).encode())


def counted(stream: Any) -> Any:
    pair = Types.TUPLE([Types.LONG(), Types.LONG()])
    return stream.key_by(lambda n: n % 5, Types.LONG()).transform("Count", pair, RawCounter()).uid("count")


def expected(count: int) -> list[tuple[int, int]]:
    return sorted((n % 5, n // 5 + 1) for n in range(count))


def script(seed: int) -> tuple[list[Any], int]:
    rng = random.Random(seed)
    events: list[Any] = []
    count = 0
    for _ in range(rng.randint(6, 25)):
        kind = rng.choice("eeeeecksr")
        if kind == "e":
            events.append(count)
            count += 1
        elif kind == "k":
            events.append(CRASH_AT(rng.choice(CRASH_POINTS)))
        else:
            events.append({"c": CHECKPOINT, "s": SAVEPOINT, "r": RESCALE(rng.randint(1, 4))}[kind])
    return [*events, END], count


@BACKENDS
@pytest.mark.parametrize("seed", seeds(8))
def test_raw_keyed_state_follows_its_key_groups(seed: int, backend: Any) -> None:
    events, count = script(seed)

    assert sorted(run_script(counted, events, parallelism=2, state_backend=backend())) == expected(count)


@pytest.mark.parametrize("seed", seeds(8))
def test_raw_operator_state_is_dealt_out_and_nothing_is_lost(seed: int) -> None:
    events, count = script(seed)

    def build(stream: Any) -> Any:
        return stream.transform("Hoard", Types.LONG(), Hoarder())

    assert sorted(run_script(build, events, parallelism=2)) == list(range(count))


class Clockwork(OneInputStreamOperator):
    """Writes down everything that happens to it."""

    late = OutputTag("late", Types.STRING())

    def process_element(self, element: StreamRecord) -> Any:
        service = self.get_timer_service()
        service.register_event_time_timer(element.value + 10)
        service.register_processing_time_timer(service.current_processing_time() + 100)
        if not element.has_timestamp():
            self.output.collect_side(self.late, "no time")
        self.output.collect(StreamRecord(f"element {element.get_value()}", 7))
        yield f"at {element.get_timestamp()}"

    def process_watermark(self, mark: Any) -> Any:
        return [f"watermark {mark.get_timestamp()}"] if mark.timestamp < 1000 else []

    def on_event_time(self, timer: Any) -> Any:
        yield f"event {timer.get_timestamp()} of {timer.get_key()}"

    def on_processing_time(self, timer: Any) -> Any:
        yield f"processing of {timer.get_key()}"


@BACKENDS
def test_time_and_timers_reach_the_operator_and_survive_a_crash(backend: Any) -> None:
    def build(stream: Any) -> Any:
        keyed = stream.key_by(lambda n: n, Types.LONG())
        return keyed.transform("Clock", Types.STRING(), Clockwork())

    events = [AT(1, 1), AT(2, 2), CHECKPOINT, CRASH, WATERMARK(11), ADVANCE(100), END]

    happened = run_script(build, events, state_backend=backend())

    assert happened[:6] == ["element 1", "at 1", "element 2", "at 2", "event 11 of 1", "watermark 11"]
    assert sorted(happened[6:8]) == ["processing of 1", "processing of 2"]
    assert happened[8:] == ["event 12 of 2"]


class Joined(TwoInputStreamOperator):
    """Keeps numbers of the first input in managed state, and answers the second with them."""

    def initialize_state(self, context: Any) -> None:
        store = context.get_keyed_state_store()
        self.seen = store.get_list_state(ListStateDescriptor("seen", Types.LONG()))

    def process_element1(self, element: StreamRecord) -> None:
        self.seen.add(element.value)

    def process_element2(self, element: StreamRecord) -> Any:
        yield element.value, sorted(self.seen.get())


@BACKENDS
def test_two_inputs_share_one_operator(backend: Any) -> None:
    def build(stream: Any) -> Any:
        kind = Types.TUPLE([Types.LONG(), Types.LIST(Types.LONG())])
        small, large = stream.filter(lambda n: n < 10), stream.filter(lambda n: n >= 10)
        both = small.connect(large).key_by(lambda n: n % 2, lambda n: n % 2, Types.LONG())
        return both.transform("Join", kind, Joined())

    events = [1, 2, CHECKPOINT, CRASH, 3, 11, RESCALE(2), 4, 10, END]

    assert sorted(run_script(build, events, state_backend=backend())) == [(10, [2, 4]), (11, [1, 3])]


class Held(SourceFunction):
    """Sends twenty numbers and stays."""

    def __init__(self) -> None:
        self.running = True

    def run(self, ctx: Any) -> None:
        for number in range(20):
            ctx.collect(number)
        while self.running:
            time.sleep(0.001)

    def cancel(self) -> None:
        self.running = False


def test_inspect_shows_raw_state_and_rekeying_refuses_it(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"execution.target": "local"})
    )
    env.set_parallelism(2)
    numbers = env.add_source(Held(), type_info=Types.LONG())
    counted(numbers).print()
    numbers.transform("Hoard", Types.LONG(), Hoarder()).uid("hoard").print()
    client = env.execute_async()
    shown: dict[str, Any] = {}
    path = ""
    deadline = time.monotonic() + 600
    while not shown.get("hoard") or shown["hoard"][0]["elements"] < 20:
        assert time.monotonic() < deadline
        path = client.trigger_savepoint(str(tmp_path)).result()
        operators = describe(path)["operators"]
        shown = {one["uid"]: one["operator_states"] for one in operators if one["uid"] in ("hoard", "count")}
    client.cancel().result()

    assert {name: (one[0]["name"], one[0]["mode"]) for name, one in shown.items()} == {
        "hoard": ("_raw/operator", "split"),
        "count": ("_raw/keyed", "raw"),
    }
    assert shown["hoard"][0]["state_size"] == sum(len(str(n)) for n in range(20))
    assert shown["count"][0]["state_size"] > 0
    with pytest.raises(ConfigError, match="raw keyed state"):
        rekey(path, 64, str(tmp_path / "new"))


def test_raw_state_of_a_stream_without_keys_is_refused() -> None:
    def build(stream: Any) -> Any:
        return stream.transform("Count", None, RawCounter())

    with pytest.raises(ExecutionError, match="key_by"):
        run_script(build, [1, END])
    env = StreamExecutionEnvironment.get_execution_environment()
    with pytest.raises(TypeError, match="OneInputStreamOperator"):
        env.from_collection([1]).transform("x", None, Joined())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="TwoInputStreamOperator"):
        env.from_collection([1]).connect(env.from_collection([1])).transform("x", None, Hoarder())
