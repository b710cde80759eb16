"""Rolling aggregates by column give what they give record by record, whatever the records and the batches."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidemark import BatchReduceFunction, EmbeddedRocksDBStateBackend, HashMapStateBackend, Row, Types
from tidemark.api.stateful_functions import MaxFunction, MinFunction, SumFunction
from tidemark.backends.heap import HeapKeyedStateBackend
from tidemark.backends.rocksdb import RocksDBKeyedStateBackend
from tidemark.errors import SerializationError
from tidemark.operators import column_reduce
from tidemark.operators.column_reduce import ColumnReduceOperator, reduces_by_column
from tidemark.operators.reduce import ReduceOperator
from tidemark.testing import OneInputHarness

RECORD = Types.ROW_NAMED(
    ["k", "i", "l", "d", "f", "s"],
    [Types.LONG(), Types.INT(), Types.LONG(), Types.DOUBLE(), Types.FLOAT(), Types.STRING()],
)
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
_DOUBLES = st.sampled_from([0.0, -0.0, float("nan"), float("inf"), 0.1, 1e17, -1e17, 3.5]) | st.floats(
    width=64
)
_ROWS = st.builds(
    lambda k, i, n, d, f, s: Row(k=k, i=i, l=n, d=d, f=f, s=s),
    st.integers(0, 3),
    st.integers(-100, 100),
    st.integers(-(2**58), 2**58),
    _DOUBLES,
    st.floats(width=32, min_value=-1000, max_value=1000),
    st.none() | st.text(max_size=3),
)
_BATCHES = st.lists(st.lists(_ROWS, min_size=1, max_size=20), min_size=1, max_size=4)


def harness_of(
    operator: type[ReduceOperator], function: Any, backend: Any = HashMapStateBackend, kind: Any = RECORD
) -> Any:
    return OneInputHarness(
        operator(function, Types.LONG(), kind),
        key_selector=lambda row: row[0],
        key_type=Types.LONG(),
        state_backend=backend(),
    )


def seen(harness: Any, batches: list[list[Any]]) -> list[str]:
    """What comes out, to the bit; the record form normalises when records leave, which a harness does not."""
    for batch in batches:
        harness.process_elements(batch, list(range(len(batch))))
    return [
        repr(
            [pa.scalar(float(each), pa.float32()).as_py() if at == 4 else each for at, each in enumerate(row)]
        )
        + str(stamp)
        for row, stamp in harness.output_with_timestamps()
    ]


@pytest.fixture(autouse=True, params=[0, 8, 256], ids=["columns", "both", "small"])
def _small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """From how many records on a batch is large."""
    monkeypatch.setattr(column_reduce, "_SMALL", request.param)


@given(
    _BATCHES, st.sampled_from([SumFunction, MinFunction, MaxFunction]), st.sampled_from(["i", "l", "d", "f"])
)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_columns_and_records_agree(batches: list[list[Row]], function: Any, name: str) -> None:
    by_record = seen(harness_of(ReduceOperator, function(name)), batches)

    assert seen(harness_of(ColumnReduceOperator, function(name)), batches) == by_record


@pytest.mark.parametrize("backend", [HashMapStateBackend, EmbeddedRocksDBStateBackend])
def test_keys_of_a_small_batch_are_read_together(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = harness_of(ColumnReduceOperator, SumFunction(1), backend, PAIR)
    harness.process_elements([(key, key) for key in range(0, 100, 2)])
    savepoint = harness.savepoint()
    harness.close()
    harness = harness_of(ColumnReduceOperator, SumFunction(1), backend, PAIR)
    harness.initialize_state(savepoint)
    asked = []
    for keyed in (HeapKeyedStateBackend, RocksDBKeyedStateBackend):
        monkeypatch.setattr(keyed, "query", lambda _self, _name, token: asked.append(token) or (False, None))

    harness.process_elements([(key, 1) for key in range(100)] * 2)

    expected = [(key, count + (key if key % 2 == 0 else 0)) for count in (1, 2) for key in range(100)]
    assert harness.output() == expected
    assert asked == []


@pytest.mark.parametrize("backend", [HashMapStateBackend, EmbeddedRocksDBStateBackend])
def test_a_savepoint_of_either_form_starts_the_other(backend: Any) -> None:
    rows = [[(key, key + batch) for key in (1, 2, 1, 3)] for batch in range(3)]
    outputs = []
    for forms in (
        [ReduceOperator] * 3,
        [ReduceOperator, ColumnReduceOperator, ReduceOperator],
        [ColumnReduceOperator, ReduceOperator, ColumnReduceOperator],
    ):
        savepoint, output = None, []
        for form, batch in zip(forms, rows, strict=True):
            harness = harness_of(form, SumFunction(1), backend, PAIR)
            if savepoint is not None:
                harness.initialize_state(savepoint)
            harness.process_elements(batch)
            output += harness.output()
            savepoint = harness.savepoint()
            savepoint.to_bytes()
            harness.close()
        outputs.append(output)

    assert outputs[0] == outputs[1] == outputs[2]
    assert outputs[0][-1] == (3, 12)


def test_a_sum_that_outgrows_its_type_fails_as_it_does_by_record() -> None:
    for form in (ReduceOperator, ColumnReduceOperator):
        harness = harness_of(form, SumFunction(1), kind=PAIR)
        harness.process_elements([(1, 2**62), (2, -(2**62)), (2, -(2**62))])
        assert harness.output()[-1] == (2, -(2**63))
        with pytest.raises(SerializationError):
            harness.process_elements([(1, 1), (1, 2**62)])


class Longest(BatchReduceFunction):
    """The largest number, in both forms."""

    def reduce(self, value1: Any, value2: Any) -> Any:
        return value1 if value1[1] >= value2[1] else (value1[0], value2[1])

    def reduce_batch(self, batch: Any, keys: Any, held: Any, present: Any) -> Any:
        floor = pc.if_else(pa.array(present), held["f1"], keys.first(batch["f1"]))
        return {"f0": batch["f0"], "f1": keys.running_max(batch["f1"], floor)}


def test_a_declared_form_for_batches_is_used() -> None:
    batches = [[(1, 5), (2, 1), (1, 3)], [(1, 7), (2, 0), (2, 9)]]
    by_record, by_batch = [
        harness_of(form, Longest(), kind=PAIR) for form in (ReduceOperator, ColumnReduceOperator)
    ]
    for batch in batches:
        by_record.process_elements(batch)
        by_batch.process_elements(batch)

    assert by_batch.output() == by_record.output() == [(1, 5), (2, 1), (1, 5), (1, 7), (2, 1), (2, 9)]


def test_only_numbers_of_declared_types_are_reduced_by_column() -> None:
    assert reduces_by_column(SumFunction("d"), RECORD)
    assert reduces_by_column(MaxFunction(-1), PAIR)
    assert reduces_by_column(SumFunction(0), Types.DOUBLE())
    assert not reduces_by_column(SumFunction("s"), RECORD)
    assert not reduces_by_column(SumFunction(0), None)
    assert not reduces_by_column(SumFunction(0), Types.PICKLED_BYTE_ARRAY())
    assert not reduces_by_column(lambda a, b: a, PAIR)
