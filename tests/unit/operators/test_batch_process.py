"""Batch functions: rows, state by column, timers for many keys, side outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidemark import (
    BatchProcessFunction,
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    OutputTag,
    Row,
    TimeDomain,
    Types,
    ValueStateDescriptor,
)
from tidemark.errors import ConfigError, IllegalStateError, SerializationError, UnsupportedOperationException
from tidemark.testing import OneInputHarness

BACKENDS = [HashMapStateBackend, EmbeddedRocksDBStateBackend]
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
TRIPLE = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])


class CountAndSum(BatchProcessFunction):
    """Running (count, sum) of each key, a row per row."""

    def open(self, runtime_context: Any) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("totals", PAIR))

    def process_batch(self, batch: pa.RecordBatch, keys: Any, ctx: Any) -> Any:
        count, total = self.state.read(keys)
        counts = keys.running_count(count)
        sums = keys.running_sum(batch["f1"], total)
        self.state.write(keys, (keys.last(counts), keys.last(sums)))
        return pa.record_batch([batch["f0"], pa.array(counts), pa.array(sums)], names=["f0", "f1", "f2"])


def harness_of(function: Any, backend: Any = HashMapStateBackend, **others: Any) -> OneInputHarness:
    settings = {
        "key_selector": lambda value: value[0],
        "key_type": Types.LONG(),
        "input_type": PAIR,
        **others,
    }
    return OneInputHarness(function, state_backend=backend(), **settings)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_running_sum_goes_on_from_batch_to_batch(backend: Any) -> None:
    harness = harness_of(CountAndSum(), backend, output_type=TRIPLE)

    harness.process_elements([(1, 10), (2, 5), (1, 1)], [100, 101, 102])
    harness.process_elements([(2, 1), (3, 7)])

    assert harness.output_with_timestamps() == [
        ((1, 1, 10), 100),
        ((2, 1, 5), 101),
        ((1, 2, 11), 102),
        ((2, 2, 6), None),
        ((3, 1, 7), None),
    ]


class _Calls(BatchProcessFunction):
    """Does what a test wants."""

    def __init__(self, call: Any, descriptor: Any = None, on_timers: Any = None) -> None:
        self.call, self.descriptor, self.timer_call = call, descriptor, on_timers

    def open(self, runtime_context: Any) -> None:
        if self.descriptor is not None:
            self.state = runtime_context.get_state(self.descriptor)

    def process_batch(self, batch: pa.RecordBatch, keys: Any, ctx: Any) -> Any:
        return self.call(self, batch, keys, ctx)

    def on_timers(self, keys: Any, timestamps: Any, ctx: Any) -> Any:
        return None if self.timer_call is None else self.timer_call(self, keys, timestamps, ctx)


TYPES: list[tuple[Any, list[Any]]] = [
    (Types.LONG(), [2**63 - 1, -(2**63), 0]),
    (Types.INT(), [7, -7, 0]),
    (Types.SHORT(), [7, -7, 0]),
    (Types.BYTE(), [7, -7, 0]),
    (Types.DOUBLE(), [0.5, -0.0, 1e300]),
    (Types.FLOAT(), [0.5, -0.0, 2.0]),
    (Types.BOOLEAN(), [True, False, True]),
    (Types.STRING(), ["a", "", "ä" * 300]),
    (PAIR, [(1, 2), (0, 0), (-5, 2**62)]),
    (Types.TUPLE([Types.DOUBLE(), Types.STRING()]), [(0.5, "x"), (1.5, ""), (2.0, "y")]),
    (
        Types.ROW_NAMED(["n", "t"], [Types.LONG(), Types.STRING()]),
        [Row(n=1, t="a"), Row(n=None, t=None), Row(n=3, t="")],
    ),
    (Types.LIST(Types.LONG()), [[1, 2], [], [3]]),
    (Types.MAP(Types.STRING(), Types.LONG()), [{"a": 1}, {}, {"b": 2, "c": 3}]),
    (Types.PICKLED_BYTE_ARRAY(), [{"a"}, (1, 2), "text"]),
]


def _arrow(value_type: Any, values: list[Any]) -> pa.Array:
    from tidemark.state.serializers.registry import serializer_for

    return serializer_for(value_type).to_arrow(values)


def _plain(shown: Any, value_type: Any) -> list[Any]:
    """What `read` gave, as Python values; null is None."""
    from tidemark.state.serializers.registry import serializer_for

    if isinstance(shown, tuple):
        parts = [_plain(each, field) for each, field in zip(shown, value_type.get_field_types(), strict=True)]
        return list(zip(*parts, strict=True))
    return shown.tolist() if isinstance(shown, np.ndarray) else serializer_for(value_type).from_arrow(shown)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("value_type", "values"), TYPES, ids=[str(kind) for kind, _ in TYPES])
def test_values_of_every_type_are_written_read_and_cleared(
    value_type: Any, values: list[Any], backend: Any
) -> None:
    seen: list[Any] = []

    def call(self: Any, batch: Any, keys: Any, ctx: Any) -> None:
        shown, present = self.state.read(keys, with_mask=True)
        seen.append((_plain(shown, value_type), present.tolist()))
        if len(seen) == 1:
            self.state.write(keys[np.arange(3)], _arrow(value_type, values))
        elif len(seen) == 2:
            self.state.write(keys, shown)
            self.state.clear(keys[np.array([False, True, False, True])])

    harness = harness_of(_Calls(call, ValueStateDescriptor("v", value_type)), backend)
    for _ in range(3):
        harness.process_elements([(1, 0), (2, 0), (3, 0), (4, 0)])

    assert seen[0][1] == [False] * 4
    assert seen[1][1] == [True, True, True, False]
    assert seen[1][0][:3] == values
    assert seen[2][1] == [True, False, True, False]
    assert [seen[2][0][0], seen[2][0][2]] == [values[0], values[2]]


def test_missing_values_are_the_default_zero_or_null() -> None:
    seen: list[Any] = []

    def call(self: Any, batch: Any, keys: Any, ctx: Any) -> None:
        seen.append((self.state.read(keys), self.state.read(keys, default=7)))

    with_default = ValueStateDescriptor("a", Types.LONG(), 3)
    for descriptor in (ValueStateDescriptor("a", Types.LONG()), with_default):
        harness_of(_Calls(call, descriptor)).process_elements([(1, 0)])
    assert [(a.tolist(), b.tolist()) for a, b in seen] == [([0], [7]), ([3], [7])]
    seen.clear()
    harness_of(
        _Calls(
            lambda self, batch, keys, ctx: seen.append(
                (self.state.read(keys), self.state.read(keys, default="x"))
            ),
            ValueStateDescriptor("a", Types.STRING()),
        )
    ).process_elements([(1, 0)])
    assert [(a.to_pylist(), b.to_pylist()) for a, b in seen] == [([None], ["x"])]


def test_writing_null_clears_its_key() -> None:
    seen = []

    def call(self: Any, batch: Any, keys: Any, ctx: Any) -> None:
        seen.append(self.state.read(keys, with_mask=True)[1].tolist())
        self.state.write(keys, pa.array([1, None] if len(seen) == 2 else [5, 5], pa.int64()))

    harness = harness_of(_Calls(call, ValueStateDescriptor("a", Types.LONG())))
    for _ in range(3):
        harness.process_elements([(1, 0), (2, 0)])

    assert seen == [[False, False], [True, True], [True, False]]


def test_state_of_a_batch_function_says_what_it_needs() -> None:
    kept: list[Any] = []

    def call(self: Any, batch: Any, keys: Any, ctx: Any) -> None:
        with pytest.raises(UnsupportedOperationException, match=r"read\(keys\)"):
            self.state.value()
        with pytest.raises(UnsupportedOperationException, match="no single key"):
            self.state.update(1)
        with pytest.raises(UnsupportedOperationException, match="no single key"):
            self.state.clear()
        with pytest.raises(ConfigError, match="one value per key"):
            self.state.write(keys, np.array([1, 2, 3]))
        with pytest.raises(ConfigError, match="cast it first"):
            self.state.write(keys, np.array([1.5, 2.5]))
        with pytest.raises(ConfigError, match="does not fit"):
            self.state.write(keys, np.array([2**40, 1]))
        if kept:
            with pytest.raises(IllegalStateError, match="another batch"):
                self.state.read(kept[0])
        kept.append(keys)

    harness = harness_of(_Calls(call, ValueStateDescriptor("a", Types.INT())))
    harness.process_elements([(1, 0), (2, 0)])
    harness.process_elements([(1, 0), (2, 0)])

    assert len(kept) == 2


def test_what_is_returned_must_fit_the_declared_type() -> None:
    def returning(result: Any) -> OneInputHarness:
        return harness_of(_Calls(lambda self, batch, keys, ctx: result))

    def refused(result: Any, error: Any, words: str) -> None:
        with pytest.raises(error, match=words):
            returning(result).process_elements([(1, 0)])

    refused([(1, 0)], TypeError, "RecordBatch")
    refused({"f0": [1]}, SerializationError, "declared are f0, f1")
    refused({"f0": [1], "f1": [None]}, SerializationError, "has nulls")
    refused({"f0": [1], "f1": ["x"]}, SerializationError, "does not fit")
    harness = returning({"a": [1, 2], "b": pa.array([3, 4], pa.int8())})
    harness.process_elements([(1, 0)])
    assert harness.output() == [(1, 3), (2, 4)]


def test_rows_keep_their_names_and_kinds() -> None:
    row_type = Types.ROW_NAMED(["k", "text"], [Types.LONG(), Types.STRING()])

    def call(self: Any, batch: pa.RecordBatch, keys: Any, ctx: Any) -> Any:
        assert batch.schema.names == ["k", "text"]
        return {"text": pa.compute.utf8_upper(batch["text"]), "k": batch["k"]}

    harness = harness_of(_Calls(call), input_type=row_type, key_selector=lambda row: row["k"])
    harness.process_elements([Row(k=1, text="a"), Row(k=2, text=None)])

    assert harness.output() == [Row(k=1, text="A"), Row(k=2, text=None)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_timers_of_many_keys_come_as_one_call(backend: Any) -> None:
    calls: list[Any] = []

    def register(self: Any, batch: Any, keys: Any, ctx: Any) -> None:
        ctx.register_event_time_timers(keys, keys.max(batch["f1"]))
        ctx.register_event_time_timers(keys[np.array([True, False])], 15)
        ctx.register_event_time_timers(keys, 99)
        ctx.delete_event_time_timers(keys, 99)

    def fire(self: Any, keys: Any, timestamps: Any, ctx: Any) -> Any:
        calls.append(
            (keys.distinct.to_pylist(), timestamps.tolist(), ctx.current_watermark(), ctx.time_domain())
        )
        if len(calls) == 1:
            ctx.register_event_time_timers(keys, 25)
            ctx.register_event_time_timers(keys, 1)
        return {"f0": keys.distinct.take(pa.array(keys.codes)), "f1": timestamps}

    harness = harness_of(_Calls(register, on_timers=fire), backend)
    harness.process_elements([(1, 10), (2, 20)])
    harness.process_watermark(9)
    assert not calls
    harness.process_watermark(30)
    harness.process_watermark(31)

    assert calls == [
        ([1, 2], [10, 15, 20], 30, TimeDomain.EVENT_TIME),
        ([1, 2], [25, 25], 30, TimeDomain.EVENT_TIME),
        ([1, 2], [1, 1], 31, TimeDomain.EVENT_TIME),
    ] or calls == [
        ([1, 2], [10, 15, 20], 30, TimeDomain.EVENT_TIME),
        ([2, 1], [25, 25], 30, TimeDomain.EVENT_TIME),
        ([2, 1], [1, 1], 31, TimeDomain.EVENT_TIME),
    ]
    assert harness.output_with_timestamps()[:3] == [((1, 10), 10), ((1, 15), 15), ((2, 20), 20)]


def test_processing_time_timers_fire_with_the_clock() -> None:
    calls: list[Any] = []

    def register(self: Any, batch: Any, keys: Any, ctx: Any) -> None:
        ctx.register_processing_time_timers(keys, ctx.current_processing_time() + batch["f1"].to_numpy())

    def fire(self: Any, keys: Any, timestamps: Any, ctx: Any) -> None:
        calls.append((sorted(keys.distinct.to_pylist()), timestamps.tolist(), ctx.time_domain()))

    harness = harness_of(_Calls(register, on_timers=fire))
    harness.process_elements([(1, 10), (2, 10), (3, 30)])
    harness.set_processing_time(12)

    assert calls == [([1, 2], [10, 10], TimeDomain.PROCESSING_TIME)]


def test_rows_go_to_side_outputs_and_carry_their_own_timestamps() -> None:
    tag = OutputTag("odd", Types.LONG())

    def call(self: Any, batch: Any, keys: Any, ctx: Any) -> Any:
        assert ctx.timestamps.tolist() == [7, 8, 9]
        ctx.output(tag, {"value": batch["f0"].take(pa.array([0, 2]))}, [70, 90])
        ctx.emit({"f0": [0], "f1": [0]}, np.array([1]))
        with pytest.raises(ConfigError, match="no declared type"):
            ctx.output(OutputTag("untyped"), {"value": [1]})
        return {"f0": [1], "f1": [1]}

    harness = harness_of(_Calls(call))
    harness.process_elements([(1, 0), (2, 0), (3, 0)], [7, 8, 9])

    assert harness.output_with_timestamps() == [((0, 0), 1), ((1, 1), None)]
    assert harness.side_output(tag) == [1, 3]


def test_batch_mode_fires_timers_and_drops_state_at_the_end() -> None:
    def call(self: Any, batch: Any, keys: Any, ctx: Any) -> Any:
        self.state.write(keys, keys.sum(batch["f1"], self.state.read(keys)))
        ctx.register_event_time_timers(keys, 5)

    def fire(self: Any, keys: Any, timestamps: Any, ctx: Any) -> Any:
        return {"f0": keys.distinct, "f1": self.state.read(keys)}

    harness = harness_of(
        _Calls(call, ValueStateDescriptor("sum", Types.LONG()), fire),
        configuration={"execution.runtime-mode": "BATCH"},
    )
    harness.process_elements([(1, 1), (2, 2)])
    harness.process_elements([(1, 3)])
    assert harness.output() == []
    harness.end_input()

    assert sorted(harness.output()) == [(1, 4), (2, 2)]
    assert harness._operator.backend.num_entries() == 0  # type: ignore[attr-defined]
