from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from tidemark import (
    EmbeddedRocksDBStateBackend,
    EventTimeSessionWindows,
    HashMapStateBackend,
    ProcessingTimeSessionWindows,
    Row,
    Time,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    Types,
    count,
    sum_,
)
from tidemark.api.specs import WindowSpec
from tidemark.api.windows.column_aggregate import ColumnAggregate, WindowRow
from tidemark.backends.columns.window_index import WindowIndex
from tidemark.operators.column_session_window import column_window_operator
from tidemark.operators.column_window import windows_by_column
from tidemark.state.key_tokens import KeyTokens, key_serializer_for
from tidemark.testing import OneInputHarness

PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])


def harness_of(
    assigner: Any, key_type: Any = None, key: Any = None, backend: Any = HashMapStateBackend
) -> Any:
    key_type = key_type or Types.LONG()
    function = ColumnAggregate({"n": count(), "total": sum_(1)}, PAIR)
    names = ["key", "window_start", "window_end", "n", "total"]
    spec = WindowSpec(
        assigner,
        aggregate=function,
        accumulator_type=function.accumulator_type,
        window_function=WindowRow(Types.ROW_NAMED(names, [key_type, *[Types.LONG()] * 4])),
        function_kind="apply",
        element_type=PAIR,
    )
    assert windows_by_column(spec)
    return OneInputHarness(
        column_window_operator(spec, key_type),
        key or (lambda pair: pair[0]),
        key_type,
        state_backend=backend(),
    )


@pytest.mark.parametrize("keys", [[1, 5, -3, 2**62], ["a", "b", "é"], [(1, "x"), (2, "y")]])
def test_rows_of_windows_of_keys(keys: list[Any]) -> None:
    kind = {int: Types.LONG(), str: Types.STRING(), tuple: Types.TUPLE([Types.LONG(), Types.STRING()])}
    tokens = KeyTokens(key_serializer_for(kind[type(keys[0])]))
    index, known, rng = WindowIndex(tokens), {}, np.random.default_rng(1)
    for step in range(30):
        chosen = rng.integers(0, len(keys), 200).tolist()
        starts = np.sort(rng.integers(0, 40, 200)) if step % 2 else rng.integers(0, 40, 200)
        ends = starts + (10 if step % 3 else rng.integers(1, 3, 200))
        column = tokens.to_arrow(tokens.of([keys[each] for each in chosen]))
        rows, codes, firsts = index.rows(column, (starts, ends))
        addresses = list(
            zip(tokens.from_arrow(column), zip(starts.tolist(), ends.tolist(), strict=True), strict=True)
        )
        assert [addresses[at] for at in firsts[codes].tolist()] == addresses
        for address, row in zip(addresses, rows[codes].tolist(), strict=True):
            assert known.setdefault(address, row) == row == index.row_of(address)
        assert len(set(known.values())) == index.count == len(known)
        if step % 7 == 6:
            kept = rng.permutation(index.count)[: index.count // 2]
            old = {row: address for address, row in known.items()}
            index.keep(kept)
            known = {old[row]: at for at, row in enumerate(kept.tolist())}
            assert index.addresses(index.keys[: index.count]) == list(known)
    token = tokens.of([keys[0]])[0]
    assert {index.addresses(index.keys[[row]])[0][0] for row in index.rows_of_key(token)} == {token}


@pytest.mark.parametrize("backend", [HashMapStateBackend, EmbeddedRocksDBStateBackend])
def test_a_key_is_forgotten_with_its_windows(backend: Any) -> None:
    pair_key = Types.TUPLE([Types.LONG(), Types.STRING()])
    harness = harness_of(
        TumblingEventTimeWindows.of(Time.milliseconds(10)), pair_key, lambda pair: (pair[0], "k"), backend
    )
    harness.process_elements([(1, 5), (2, 6), (1, 7), (1, 8)], [1, 1, 2, 11])
    operator = harness._operator

    erased = operator.erase_key(key_serializer_for(pair_key).key_bytes((1, "k")))
    assert erased == {"window-contents": 2, "_timers/event": 2}
    harness.process_element((1, 100), 3)
    harness.end_input()
    assert sorted([tuple(row) for row in harness.output()]) == [
        ((1, "k"), 0, 10, 1, 100),
        ((2, "k"), 0, 10, 1, 6),
    ]
    harness.close()


def test_windows_of_another_size_keep_their_bounds() -> None:
    harness = harness_of(TumblingEventTimeWindows.of(Time.milliseconds(10)))
    harness.process_elements([(1, 5), (1, 6)], [1, 12])
    savepoint = harness.savepoint()
    harness.close()
    harness = harness_of(TumblingEventTimeWindows.of(Time.milliseconds(20)))
    harness.initialize_state(savepoint)
    harness.process_element((1, 7), 13)
    harness.end_input()

    assert sorted([tuple(row) for row in harness.output()]) == [
        (1, 0, 10, 1, 5),
        (1, 0, 20, 1, 7),
        (1, 10, 20, 1, 6),
    ]
    harness.close()


def test_windows_of_the_clock_end_by_the_clock() -> None:
    harness = harness_of(TumblingProcessingTimeWindows.of(Time.milliseconds(10)))
    harness.set_processing_time(3)
    harness.process_elements([(1, 5), (2, 6), (1, 7)])
    savepoint = harness.savepoint()
    harness.close()
    harness = harness_of(TumblingProcessingTimeWindows.of(Time.milliseconds(10)))
    harness.initialize_state(savepoint)
    harness.set_processing_time(8)
    assert harness.output() == []
    assert harness._operator.next_processing_timer() == 9
    harness.process_element((2, 1))
    harness.set_processing_time(9)

    assert sorted(harness.output(), key=tuple) == [
        Row(key=1, window_start=0, window_end=10, n=2, total=12),
        Row(key=2, window_start=0, window_end=10, n=2, total=7),
    ]
    assert harness.num_keyed_state_entries() == 0
    harness.close()


def test_sessions_of_the_clock_end_by_the_clock() -> None:
    harness = harness_of(ProcessingTimeSessionWindows.with_gap(Time.milliseconds(10)))
    harness.set_processing_time(3)
    harness.process_elements([(1, 5), (2, 6), (1, 7)])
    savepoint = harness.savepoint()
    harness.close()
    harness = harness_of(ProcessingTimeSessionWindows.with_gap(Time.milliseconds(10)))
    harness.initialize_state(savepoint)
    harness.set_processing_time(8)
    harness.process_element((2, 1))
    assert harness._operator.next_processing_timer() == 12
    harness.set_processing_time(12)
    assert [tuple(row) for row in harness.output()] == [(1, 3, 13, 2, 12)]
    assert harness._operator.next_processing_timer() == 17
    harness.set_processing_time(17)

    assert [tuple(row) for row in harness.output()] == [(2, 3, 18, 2, 7)]
    assert harness.num_keyed_state_entries() == 0
    assert harness._operator.next_processing_timer() is None
    harness.close()


@pytest.mark.parametrize("backend", [HashMapStateBackend, EmbeddedRocksDBStateBackend])
def test_a_key_is_forgotten_with_its_sessions(backend: Any) -> None:
    pair_key = Types.TUPLE([Types.LONG(), Types.STRING()])
    harness = harness_of(
        EventTimeSessionWindows.with_gap(Time.milliseconds(10)),
        pair_key,
        lambda pair: (pair[0], "k"),
        backend,
    )
    harness.process_elements([(1, 5), (2, 6), (1, 7), (1, 8)], [1, 1, 2, 30])

    erased = harness._operator.erase_key(key_serializer_for(pair_key).key_bytes((1, "k")))
    assert erased == {"window-contents": 2, "merging-window-set": 1, "_timers/event": 2}
    harness.process_element((1, 100), 3)
    harness.end_input()
    assert sorted([tuple(row) for row in harness.output()]) == [
        ((1, "k"), 3, 13, 1, 100),
        ((2, "k"), 1, 11, 1, 6),
    ]
    harness.close()


def test_many_sessions_come_and_go_while_cuts_are_pending() -> None:
    harness = harness_of(EventTimeSessionWindows.with_gap(Time.milliseconds(10)))
    rng, held, found = np.random.default_rng(3), [], []
    pending = []
    for step in range(12):
        stamps = rng.integers(step * 40, step * 40 + 60, 900)
        keys = rng.integers(0, 4000, 900) + step * 2000
        harness.process_elements([(int(key), 1) for key in keys], [int(stamp) for stamp in stamps])
        held += list(zip(keys.tolist(), stamps.tolist(), strict=True))
        cut = harness._operator.cut(step, 0)
        timers = sum(batch.num_rows for batch in cut.timers[0].batches())
        harness.process_watermark(step * 40 - 1)
        pending.append((cut, timers))
        found += harness.output()
    # Cuts show what was there at the barrier.
    for cut, timers in pending:
        assert sum(batch.num_rows for batch in cut.timers[0].batches()) == timers
        cut.release()
    harness.end_input()
    found = sorted([tuple(row)[:4] for row in [*found, *harness.output()]])
    harness.close()

    expected: list[list[int]] = []
    for key, stamp in sorted(held):
        if expected and expected[-1][0] == key and stamp <= expected[-1][2]:
            expected[-1][2:] = [stamp + 10, expected[-1][3] + 1]
        else:
            expected.append([key, stamp, stamp + 10, 1])
    assert found == [tuple(each) for each in expected]
    assert len(found) > 8000


def test_a_record_costs_the_same_however_many_are_held_back() -> None:
    harness = harness_of(TumblingEventTimeWindows.of(Time.seconds(10)))

    def calls_of_some() -> int:
        calls = 0

        def count_calls(_frame: Any, event: str, _arg: Any) -> None:
            nonlocal calls
            calls += event == "call"

        sys.setprofile(count_calls)
        try:
            for at in range(100):
                harness.process_element((at, 1), 1000 + at)
        finally:
            sys.setprofile(None)
        return calls

    harness.process_element((0, 1), 1000)
    first = calls_of_some()
    for at in range(1_000):
        harness.process_element((at, 1), 1000 + at)

    assert calls_of_some() < 1.1 * first
