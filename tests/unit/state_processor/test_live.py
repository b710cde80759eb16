"""Live state as rows, without Spark: what each task reads of a running job."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.state_processor.jobs import Waiting

from tidemark import (
    AggregateFunction,
    AggregatingStateDescriptor,
    Configuration,
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    Row,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)
from tidemark.errors import ConfigError, JobNotFoundError, StateNotServedError
from tidemark.state_processor.live import LiveState

DEADLINE = 60
ELEMENTS = [(f"k{number % 40}", number) for number in range(400)]
STATES = ("totals", "lasts", "seens", "means")


class Mean(AggregateFunction):
    def create_accumulator(self):
        return (0, 0)

    def add(self, value, accumulator):
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, a, b):
        return a[0] + b[0], a[1] + b[1]


class Published(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        pair = Types.TUPLE([Types.LONG(), Types.LONG()])
        row = Types.ROW_NAMED(["n", "text"], [Types.LONG(), Types.STRING()])
        descriptors = [
            ValueStateDescriptor("total", Types.LONG()),
            MapStateDescriptor("last", Types.STRING(), row),
            ListStateDescriptor("seen", Types.LONG()),
            AggregatingStateDescriptor("mean", Mean(), pair),
        ]
        for name, descriptor in zip(STATES, descriptors, strict=True):
            descriptor.set_queryable(name)
        self.total = runtime_context.get_state(descriptors[0])
        self.last = runtime_context.get_map_state(descriptors[1])
        self.seen = runtime_context.get_list_state(descriptors[2])
        self.mean = runtime_context.get_aggregating_state(descriptors[3])

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.total.update((self.total.value() or 0) + value[1])
        self.last.put(str(value[1] % 2), Row(value[1], value[0]))
        self.seen.add(value[1])
        self.mean.add(value[1])
        yield value


@pytest.fixture(scope="module", params=[HashMapStateBackend, EmbeddedRocksDBStateBackend])
def job(request: pytest.FixtureRequest) -> Iterator[str]:
    configuration = Configuration()
    for key, value in {
        "execution.target": "local",
        "queryable-state.enable": "true",
        "queryable-state.proxy.ports": "0",
        "queryable-state.server.ports": "0",
    }.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    env.set_state_backend(request.param())
    seen, arrived = [0], threading.Event()

    def count(value: Any) -> Any:
        seen[0] += 1
        if seen[0] == len(ELEMENTS):
            arrived.set()
        return value

    stream = env.add_source(Waiting(ELEMENTS), type_info=Types.TUPLE([Types.STRING(), Types.LONG()]))
    keyed = stream.key_by(lambda value: value[0], Types.STRING())
    keyed.process(Published()).map(count).set_parallelism(1).print()
    client = env.execute_async("live")
    assert arrived.wait(DEADLINE)
    yield str(client.get_job_id())
    client.cancel().result(DEADLINE)


def rows(job: str, name: str, partitions: int = 0, **options: Any) -> list[dict[str, Any]]:
    state = LiveState.find(job, name, None, DEADLINE)
    ranges = state.ranges(partitions, options.get("key_groups"), options.get("key"))
    batches = [batch for part in ranges for batch in state.batches(part)]
    found: list[dict[str, Any]] = pa.Table.from_batches(batches, schema=state.schema()).to_pylist()
    return found


def of_key(number: int) -> list[int]:
    return [value for key, value in ELEMENTS if key == f"k{number}"]


@pytest.mark.parametrize("partitions", [0, 1, 7, 1000])
def test_every_key_is_in_one_range(job: str, partitions: int) -> None:
    found = rows(job, "totals", partitions)

    assert sorted((row["key"], row["value"]) for row in found) == sorted(
        (f"k{number}", sum(of_key(number))) for number in range(40)
    )


def test_rows_are_those_of_a_snapshot_for_every_kind(job: str) -> None:
    lasts = {(row["key"], row["map_key"]): row["value"] for row in rows(job, "lasts")}
    assert len(lasts) == 40
    assert {key: lasts["k7", "1"][key] for key in ("n", "text")} == {"n": 367, "text": "k7"}

    assert {row["key"]: row["value"] for row in rows(job, "seens")}["k3"] == of_key(3)
    means = {row["key"]: tuple(row["value"].values()) for row in rows(job, "means")}
    assert means["k3"] == (sum(of_key(3)), 10)


def test_one_key_and_some_key_groups(job: str) -> None:
    ((row),) = rows(job, "totals", key="k9")
    assert (row["key"], row["value"]) == ("k9", sum(of_key(9)))
    assert rows(job, "totals", key="nobody") == []

    group = row["key_group"]
    some = rows(job, "totals", key_groups=str(group))
    assert {each["key_group"] for each in some} == {group}
    assert "k9" in {each["key"] for each in some}
    with pytest.raises(ConfigError):
        rows(job, "totals", key_groups="9999")


def test_what_is_not_there_is_named(job: str) -> None:
    with pytest.raises(StateNotServedError, match="lasts"):
        LiveState.find(job, "nothing", None, DEADLINE)
    with pytest.raises(JobNotFoundError):
        LiveState.find("f" * 32, "totals", None, DEADLINE)
    assert "token" not in repr(LiveState.find(job, "totals", None, DEADLINE))
