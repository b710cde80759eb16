"""Windows aggregated by column give what they give record by record, whatever the records, windows and batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.campaign import examples

from tidemark import (
    Aggregation,
    EmbeddedRocksDBStateBackend,
    EventTimeSessionWindows,
    HashMapStateBackend,
    OutputTag,
    Row,
    SlidingEventTimeWindows,
    Time,
    TumblingEventTimeWindows,
    Types,
    avg,
    count,
    max_,
    min_,
    sum_,
)
from tidemark.api.specs import WindowSpec
from tidemark.api.windows.column_aggregate import ColumnAggregate, WindowRow
from tidemark.errors import SerializationError
from tidemark.operators import column_window
from tidemark.operators.column_session_window import column_window_operator
from tidemark.operators.column_window import ColumnWindowOperator
from tidemark.operators.window import WindowOperator
from tidemark.testing import OneInputHarness

RECORD = Types.ROW_NAMED(["k", "i", "d"], [Types.LONG(), Types.INT(), Types.DOUBLE()])
LATE = OutputTag("late", RECORD)
_DOUBLES = st.sampled_from([0.0, -0.0, float("nan"), float("inf"), 0.1, 1e17, -1e17, 3.5])
_KINDS = st.sampled_from([sum_, count, min_, max_, avg])
_AGGREGATIONS = st.lists(
    st.builds(lambda kind, column: kind(column), _KINDS, st.sampled_from(["i", "d"])), min_size=1, max_size=4
)


def steps_of(doubles: Any, max_size: int = 8) -> Any:
    """Random steps; `doubles` are the values of column `d`."""
    rows = st.builds(
        lambda k, i, d: Row(k=k, i=i, d=d),
        st.integers(0, 3),
        st.none() | st.integers(-100, 100),
        st.none() | doubles,
    )
    return st.lists(
        st.tuples(st.just("rows"), st.lists(st.tuples(rows, st.integers(0, 60)), min_size=1, max_size=12))
        | st.tuples(st.just("watermark"), st.integers(-5, 70))
        | st.tuples(st.just("restart"), st.none()),
        min_size=1,
        max_size=max_size,
    )


_STEPS = steps_of(_DOUBLES | st.floats(width=32, allow_nan=False))
_WINDOWS = st.one_of(
    st.builds(lambda size: TumblingEventTimeWindows.of(Time.milliseconds(size)), st.integers(1, 25)),
    st.builds(
        lambda size, slide: SlidingEventTimeWindows.of(Time.milliseconds(size), Time.milliseconds(slide)),
        st.integers(1, 25),
        st.integers(1, 25),
    ),
)
_SESSIONS = st.builds(
    lambda gap: EventTimeSessionWindows.with_gap(Time.milliseconds(gap)), st.sampled_from([1, 3, 8, 20])
)
_EXACT = st.sampled_from([0.0, -0.0, float("nan"), float("inf"), 0.25, 1e6, -1e6, 3.5])
"""Sums of these do not depend on the order, which merging sessions do not define."""


@dataclass
class Program:
    """What a random program is made of."""

    assigner: Any
    lateness: int
    aggregations: dict[str, Aggregation]
    tag: OutputTag | None = LATE

    def operator(self, form: Any) -> WindowOperator:
        function = ColumnAggregate(self.aggregations, RECORD)
        names = ["k", "window_start", "window_end", *function.names]
        row = Types.ROW_NAMED(names, [Types.LONG()] * 3 + function.result_types)
        spec = WindowSpec(
            self.assigner,
            allowed_lateness=self.lateness,
            late_tag=self.tag,
            aggregate=function,
            accumulator_type=function.accumulator_type,
            window_function=WindowRow(row),
            function_kind="apply",
            element_type=RECORD,
        )
        operator: WindowOperator = form(spec, Types.LONG())
        return operator

    def harness(self, form: Any, backend: Any) -> Any:
        operator = self.operator(form)
        harness = OneInputHarness(operator, lambda row: row["k"], Types.LONG(), state_backend=backend())
        assert operator.columnar == (form is not WindowOperator)
        return harness


def seen(program: Program, steps: Any, forms: list[Any], backend: Any) -> list[list[str]]:
    """What comes out of every step, to the bit; each restart goes on with the next form."""
    at, watermark = 0, -(2**63)
    harness = program.harness(forms[0], backend)
    outputs = []
    for kind, given_ in [*steps, ("end", None)]:
        if kind == "rows":
            harness.process_elements([row for row, _ in given_], [stamp for _, stamp in given_])
        elif kind == "watermark":
            watermark = max(watermark, given_)
            harness.process_watermark(given_)
        elif kind == "restart":
            savepoint = harness.savepoint()
            savepoint.to_bytes()
            harness.close()
            at += 1
            harness = program.harness(forms[at % len(forms)], backend)
            harness._operator.restore_watermark(watermark)
            harness.initialize_state(savepoint)
        else:
            harness.end_input()
        late = [f"late {row!r}" for row in harness.side_output(LATE)]
        outputs.append(sorted([repr(each) for each in harness.output_with_timestamps()]) + sorted(late))
    harness.close()
    return outputs


@given(_WINDOWS, st.sampled_from([0, 7, 30]), _AGGREGATIONS, _STEPS, st.sampled_from([0, 7, 256]))
@settings(max_examples=40)
def test_columns_and_records_agree(assigner: Any, lateness: int, chosen: Any, steps: Any, small: int) -> None:
    columns_and_records_agree(assigner, lateness, chosen, steps, small)


@given(
    _SESSIONS,
    st.sampled_from([0, 7, 30]),
    _AGGREGATIONS,
    steps_of(_EXACT, max_size=12),
    st.sampled_from([0, 7, 256]),
)
@settings(max_examples=examples(80))
def test_sessions_by_column_and_by_record_agree(
    assigner: Any, lateness: int, chosen: Any, steps: Any, small: int
) -> None:
    columns_and_records_agree(assigner, lateness, chosen, steps, small)


def columns_and_records_agree(assigner: Any, lateness: int, chosen: Any, steps: Any, small: int) -> None:
    program = Program(assigner, lateness, {f"r{at}": each for at, each in enumerate(chosen)})
    by_record = seen(program, steps, [WindowOperator], HashMapStateBackend)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_window, "_SMALL", small)
        patch.setattr(column_window, "_HELD", 2 * small)
        # The last two go through savepoints from one form to the other and back.
        for forms in (
            [column_window_operator],
            [column_window_operator, WindowOperator],
            [WindowOperator, column_window_operator],
        ):
            assert seen(program, steps, forms, HashMapStateBackend) == by_record


@given(_WINDOWS | _SESSIONS, st.sampled_from([0, 7]), steps_of(_EXACT))
@settings(max_examples=10)
def test_columns_on_rocksdb_agree(assigner: Any, lateness: int, steps: Any) -> None:
    program = Program(assigner, lateness, {"a": sum_("i"), "b": avg("d"), "c": max_("d"), "d": count()})
    by_record = seen(program, steps, [WindowOperator], HashMapStateBackend)
    forms = [column_window_operator, WindowOperator]

    assert seen(program, steps, forms, EmbeddedRocksDBStateBackend) == by_record


def test_a_sum_that_outgrows_its_type_fails_as_it_does_by_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_window, "_SMALL", 0)
    pair = Types.TUPLE([Types.LONG(), Types.LONG()])
    function = ColumnAggregate({"total": sum_(1)}, pair)
    row = Types.ROW_NAMED(["k", "window_start", "window_end", "total"], [Types.LONG()] * 4)
    for form in (WindowOperator, ColumnWindowOperator):
        spec = WindowSpec(
            TumblingEventTimeWindows.of(Time.milliseconds(10)),
            aggregate=function,
            accumulator_type=function.accumulator_type,
            window_function=WindowRow(row),
            function_kind="apply",
            element_type=pair,
        )
        harness = OneInputHarness(form(spec, Types.LONG()), lambda row: row[0], Types.LONG())
        harness.process_elements([(1, 2**62), (2, -(2**62)), (2, -(2**62))], [0, 0, 0])
        with pytest.raises(SerializationError, match="no LONG"):
            harness.process_elements([(1, 2**62), (1, -1)], [1, 1])
