"""Sources that give columns: exact over crashes amid a batch, the same values as by record, time, in both modes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.recovery.local_jobs import board, local_env, new_board

from tidemark import (
    BatchProcessFunction,
    FileSource,
    NumberSequenceSource,
    ParquetColumnarRowInputFormat,
    RestartStrategies,
    Split,
    SplitReader,
    SplitSource,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
    field,
)
from tidemark.common.time import Time
from tidemark.errors import JobExecutionException

TOTAL = 300_000
KEYS = 11
NUMBER = Types.ROW_NAMED(["n"], [Types.LONG()])
KEYED = Types.ROW_NAMED(["key", "n"], [Types.LONG(), Types.LONG()])
COUNTED = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])
NO_WATERMARKS = WatermarkStrategy.no_watermarks()


class _Slice(SplitReader):
    """Numbers of a split as columns, up to 40,000 at a time."""

    def __init__(self, split, position):
        first, self.last = split.data
        self.next = first if position is None else position

    def read(self, max_records, timeout_ms):
        if self.next >= self.last:
            return None
        self.given = np.arange(self.next, min(self.last, self.next + min(max_records, 40_000)))
        self.next += len(self.given)
        return pa.record_batch([pa.array(self.given)], names=["n"])

    def position(self):
        return self.next


class _Stamped(_Slice):
    """The number is its time."""

    def timestamps(self):
        return pa.array(self.given)


class Own(SplitSource):
    bounded = True

    def __init__(self, total, reader=_Slice, type_info=NUMBER):
        self.total, self.reader, self.type_info = total, reader, type_info

    def enumerate(self):
        third = -(-self.total // 3)
        return [Split(str(at), [at, min(self.total, at + third)]) for at in range(0, self.total, third)]

    def open(self, split, position):
        return self.reader(split, position)

    def get_produced_type(self):
        return self.type_info


def sequence(tmp_path):
    return NumberSequenceSource(0, TOTAL - 1)


def own(tmp_path):
    return Own(TOTAL)


def parquet(tmp_path):
    for at in range(3):
        numbers = np.arange(at * TOTAL // 3, (at + 1) * TOTAL // 3)
        pq.write_table(pa.table({"n": numbers}), tmp_path / f"{at}.parquet", row_group_size=40_000)
    return FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(NUMBER), str(tmp_path)).build()


class Keyed:
    """The numbers with their keys; fails at some of them, once each."""

    def __init__(self, board_name, fails_at=()):
        self.board_name, self.fails_at = board_name, fails_at

    def __call__(self, batch):
        seen, numbers = board(self.board_name), batch.column(0).to_numpy()
        for number in self.fails_at:
            if number in numbers and number not in seen.values:
                seen.set(number)
                raise ConnectionError(f"flaky at {number}")
        seen.note(len(numbers))
        return {"key": numbers % KEYS, "n": numbers}


class Counts(BatchProcessFunction):
    """Rows of each key in the batch and so far; fails amid the job, once."""

    def __init__(self, board_name, fails_at=None):
        self.board_name, self.fails_at = board_name, fails_at

    def open(self, runtime_context):
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_batch(self, batch, keys, ctx):
        seen = board(self.board_name)
        so_far = self.total.read(keys) + keys.count()
        self.total.write(keys, so_far)
        if self.fails_at in batch["n"].to_numpy() and "slot" not in seen.values:
            seen.set("slot")
            raise ConnectionError("the slot's function is flaky")
        return {"f0": keys.distinct, "f1": keys.count(), "f2": so_far}


@pytest.mark.parametrize("make", [sequence, own, parquet])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_columns_are_counted_exactly_over_crashes(tmp_path, make, parallelism):
    seen = new_board()
    env = local_env(parallelism=parallelism)
    env.enable_checkpointing(10)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(10, 1))
    numbers = env.from_source(make(tmp_path), NO_WATERMARKS, "numbers")
    keyed = numbers.map_batch(Keyed(seen.name, (70, 149_999, 290_001)), output_type=KEYED)
    counts = keyed.key_by(field("key"), Types.LONG()).process_batch(
        Counts(seen.name, 200_000), output_type=COUNTED
    )

    found = list(counts.execute_and_collect())

    assert {70, 149_999, 290_001, "slot"} <= set(seen.values), "all of it has failed once"
    each = {key: len(range(key, TOTAL, KEYS)) for key in range(KEYS)}
    given = Counter()
    for key, count, _so_far in found:
        given[key] += count
    assert given == each
    assert {key: max(so_far for at, _count, so_far in found if at == key) for key in each} == each
    assert max(seen.events) > 8192, "columns come in larger batches"


@pytest.mark.parametrize("make", [sequence, own, parquet])
def test_functions_of_single_records_get_the_same_values(tmp_path, make):
    def given(into):
        env = local_env(parallelism=2)
        numbers = env.from_source(make(tmp_path), NO_WATERMARKS, "numbers")
        return sorted(into(numbers).execute_and_collect())

    def number(value):
        return value if isinstance(value, int) else value["n"]

    by_record = given(lambda numbers: numbers.map(number, Types.LONG()).filter(lambda n: n % 1000 == 0))
    by_column = given(
        lambda numbers: numbers.filter_batch(
            lambda batch: pa.array(batch.column(0).to_numpy() % 1000 == 0)
        ).map(number, Types.LONG())
    )

    assert by_record == by_column == list(range(0, TOTAL, 1000))


@pytest.mark.parametrize(
    "strategy",
    [
        WatermarkStrategy.for_monotonous_timestamps(),
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(field("n")),
    ],
    ids=["of the reader", "of a field"],
)
@pytest.mark.parametrize("by_column", [False, True])
def test_timestamps_of_columns_drive_windows(strategy, by_column):
    seen, total = new_board(), 30_000
    env = local_env(parallelism=2)
    numbers = env.from_source(Own(total, _Stamped), strategy, "numbers")
    if by_column:
        keyed = numbers.map_batch(Keyed(seen.name), output_type=KEYED)
    else:
        keyed = numbers.map(
            lambda row: (row["n"] % KEYS, row["n"]), Types.TUPLE([Types.LONG(), Types.LONG()])
        )
    windows = (
        keyed.key_by(field(0), Types.LONG())
        .window(TumblingEventTimeWindows.of(Time.milliseconds(10_000)))
        .reduce(lambda a, b: (a[0], a[1] + b[1]))
    )

    found = sorted(tuple(row) for row in windows.execute_and_collect())

    assert found == sorted(
        (key, sum(n for n in range(start, start + 10_000) if n % KEYS == key))
        for start in range(0, total, 10_000)
        for key in range(KEYS)
    )


class _TooFewStamps(_Stamped):
    def timestamps(self):
        return super().timestamps()[1:]


class _OtherColumns(_Slice):
    def read(self, max_records, timeout_ms):
        given = super().read(max_records, timeout_ms)
        return None if given is None else given.append_column("more", given.column(0))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (Own(10, type_info=None), "must have a declared type"),
        (Own(12, _TooFewStamps), "gave 3 for 4 records"),
        (Own(10, _OtherColumns), "declared are n"),
    ],
)
def test_columns_that_do_not_fit_name_the_source(source, message):
    env = local_env()
    env.set_restart_strategy(RestartStrategies.no_restart())
    numbers = env.from_source(source, NO_WATERMARKS, "numbers")

    with pytest.raises(JobExecutionException) as failed:
        list(numbers.map(str, Types.STRING()).execute_and_collect())

    assert "Operator 'numbers'" in str(failed.value)
    assert message in str(failed.value)
