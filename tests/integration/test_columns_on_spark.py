"""Batch functions on Spark: columns from a DataFrame through filter, exchange and slots to the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tidemark import BatchProcessFunction, EmbeddedRocksDBStateBackend, Types, ValueStateDescriptor, field

pytestmark = pytest.mark.spark

TOTAL = Types.ROW_NAMED(["user", "total"], [Types.LONG(), Types.LONG()])


class Totals(BatchProcessFunction):
    """The running total of each user, and at the end of time the last one, negative."""

    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_batch(self, batch: pa.RecordBatch, keys: Any, ctx: Any) -> Any:
        running = keys.running_sum(batch["amount"], self.total.read(keys))
        self.total.write(keys, keys.last(running))
        ctx.register_event_time_timers(keys, 10)
        return {"user": batch["user"], "total": running}

    def on_timers(self, keys: Any, timestamps: Any, ctx: Any) -> Any:
        return {"user": keys.distinct, "total": -self.total.read(keys)}


@pytest.mark.parametrize("mode", ["epochs", "auto"])
def test_columns_travel_from_a_data_frame_to_the_result(
    spark: Any, make_env: Callable[..., Any], mode: str
) -> None:
    frame = spark.range(20_000).selectExpr("id % 37 as user", "id as amount")
    env = make_env()
    env.set_state_backend(EmbeddedRocksDBStateBackend())
    kept = env.from_spark_stream(frame).filter_batch(pc.field("amount") >= 1_000)
    by_user = kept.key_by(field("user"), Types.LONG())
    last: dict[int, int] = {}
    with by_user.process_batch(Totals(), TOTAL).execute_and_collect() as rows:
        ends = {row["user"]: -row["total"] for row in rows if row["total"] < 0}
    with by_user.sum("amount").execute_and_collect() as rows:
        for row in rows:
            last[row["user"]] = max(row["amount"], last.get(row["user"], 0))

    expected = {user: sum(range(user, 20_000, 37)) - sum(range(user, 1_000, 37)) for user in range(37)}
    assert ends == last == expected
