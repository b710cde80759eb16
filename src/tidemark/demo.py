"""`make demo`: a streaming job on Spark that loses a slot in mid-stream and still counts every order once.

Orders come from a Spark Structured Streaming source. They are keyed by customer; each customer's orders are
counted and summed in keyed state inside the slots; every hundredth order of a customer is written by an
exactly-once file sink. Checkpoints are taken every second. After a while the demo kills one of its own slot
processes with SIGKILL, watches the recovery, stops with a savepoint, and proves that nothing was lost and
nothing was counted twice.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

CUSTOMERS = 1000
ROWS_PER_BATCH = 50_000
RUN_BEFORE_CRASH_S = 8.0
RUN_AFTER_RECOVERY_S = 6.0
EPOCHS = 4
"""Epochs with data to see before the crash, and after it: on a slow machine the seconds alone prove nothing."""


def main() -> int:
    """Run the demo; 0 if every count is exact."""
    warnings.filterwarnings("ignore", category=FutureWarning)
    folder = Path(tempfile.mkdtemp(prefix="tidemark-demo-"))
    try:
        return _run(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(folder: Path) -> int:
    say("Starting Spark (local[*]) and the job's slots ...")
    spark = _session()
    client = _start_job(spark, folder)
    show = _Display(client)
    show.watch_until(
        lambda facts: (
            facts["epoch"] >= EPOCHS and facts["checkpoints"] >= 3 and show.seconds > RUN_BEFORE_CRASH_S
        )
    )

    victim = client.get_progress()["slot_pids"][1]
    say(f"\n*** kill -9 {victim}: slot 1 dies with its state, in the middle of an epoch ***\n")
    os.kill(victim, signal.SIGKILL)
    show.watch_until(lambda facts: facts["attempt"] == 1 and facts["restored_from"] is not None)
    facts = client.get_progress()
    say(f"*** recovered: state and source position are those of checkpoint {facts['restored_from']} ***\n")
    resumed, epoch = show.seconds, facts["epoch"]
    show.watch_until(
        lambda facts: (
            facts["epoch"] >= epoch + EPOCHS
            and facts["checkpoints_of_attempt"] >= 2
            and show.seconds > resumed + RUN_AFTER_RECOVERY_S
        )
    )

    say("\nStopping with a savepoint ...")
    savepoint = client.stop_with_savepoint(True, str(folder / "savepoints")).result()
    client.get_job_execution_result().result()
    exact = _prove(savepoint, folder / "alerts")
    spark.stop()
    return 0 if exact else 1


def _session() -> Any:
    from tidemark.runtime.session import find_or_create_session

    session, _new = find_or_create_session({"spark.app.name": "tidemark demo"})
    return session


def _start_job(spark: Any, folder: Path) -> Any:
    from tidemark import (
        Encoder,
        FileSink,
        FsStateBackend,
        OutputFileConfig,
        RestartStrategies,
        StreamExecutionEnvironment,
        Types,
        field,
    )

    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    env.enable_checkpointing(1000)
    env.set_state_backend(FsStateBackend(f"file://{folder}/checkpoints"))
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 500))

    stream = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", ROWS_PER_BATCH)
        .option("numPartitions", 2)
        .load()
        .selectExpr(f"value % {CUSTOMERS} AS customer", "value AS order_id", "value % 90 + 10 AS amount")
    )
    orders = env.from_spark_stream(stream)
    alerts = (
        orders.key_by(field("customer"), Types.LONG())
        .process(_customer_totals(), output_type=Types.STRING())
        .uid("totals")
    )
    sink = (
        FileSink.for_row_format(str(folder / "alerts"), Encoder.simple_string_encoder())
        .with_output_file_config(OutputFileConfig.builder().with_part_suffix(".txt").build())
        .build()
    )
    alerts.sink_to(sink).uid("alerts")
    return env.execute_async("order totals")


def _customer_totals() -> Any:
    from tidemark import KeyedProcessFunction, Types, ValueStateDescriptor

    class CustomerTotals(KeyedProcessFunction):
        """Counts and sums a customer's orders; every hundredth order raises an alert."""

        def open(self, runtime_context: Any) -> None:
            self.totals = runtime_context.get_state(
                ValueStateDescriptor("totals", Types.TUPLE([Types.LONG(), Types.LONG()]))
            )

        def process_element(self, value: Any, ctx: Any) -> Any:
            count, amount = self.totals.value() or (0, 0)
            self.totals.update((count + 1, amount + value[2]))
            if (count + 1) % 100 == 0:
                yield f"customer {value[0]}: order {count + 1}"

    return CustomerTotals()


class _Display:
    """Prints one line of progress per half second."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._started = time.monotonic()
        self._last = (0.0, 0)

    @property
    def seconds(self) -> float:
        """Since the job was submitted."""
        return time.monotonic() - self._started

    def watch_until(self, enough: Any, deadline_s: float = 180.0) -> None:
        """Show progress until `enough(facts)`; gives up after a deadline."""
        limit = time.monotonic() + deadline_s
        while True:
            facts = self._client.get_progress()
            if facts["epoch"] or facts["attempt"] or int(self.seconds * 2) % 10 == 0:
                self._line(facts)
            if enough(facts):
                return
            if facts["status"] in ("FAILED", "FINISHED", "CANCELED") or time.monotonic() > limit:
                raise SystemExit(
                    f"The demo did not get on: the job is {facts['status']}. {facts['failure'] or ''}"
                )
            time.sleep(0.5)

    def _line(self, facts: dict[str, Any]) -> None:
        then, records = self._last
        now = time.monotonic()
        rate = max(0, facts["records"] - records) / (now - then) if then else 0.0
        self._last = (now, facts["records"])
        say(
            f"{self.seconds:5.1f} s  {facts['status']:<10} attempt {facts['attempt']}  epoch {facts['epoch']:>4}  "
            f"{facts['records']:>10,} records  {rate:>9,.0f}/s  {facts['state_entries']:>5} keys in state  "
            f"checkpoint {facts['last_checkpoint'] or '-'}"
        )


def _prove(savepoint: str, alerts: Path) -> bool:
    """Compare the state in the savepoint and the committed files with what they have to be."""
    import pyarrow.parquet as pq

    say(f"\nReading the savepoint with pyarrow, without Flink, Spark or user code:\n  {savepoint}")
    tables = [pq.read_table(path) for path in sorted(Path(savepoint).rglob("*.parquet"))]
    counts: dict[int, int] = {}
    for table in tables:
        for key, value in zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True):
            counts[key] = value["f0"]
    total = sum(counts.values())
    expected = total // CUSTOMERS
    exact_state = (
        len(counts) == CUSTOMERS and total % ROWS_PER_BATCH == 0 and set(counts.values()) == {expected}
    )
    say(
        f"  {len(counts)} customers, {total:,} orders; every customer has {sorted(set(counts.values()))} orders"
    )

    lines = Counter(
        line
        for path in alerts.rglob("*.txt")
        for line in path.read_text().splitlines()
        if not path.name.startswith(".")
    )
    wanted = {
        f"customer {customer}: order {number}"
        for customer in range(CUSTOMERS)
        for number in range(100, expected + 1, 100)
    }
    exact_files = set(lines) == wanted and all(count == 1 for count in lines.values())
    say(f"  {sum(lines.values()):,} alerts in committed files, {len(wanted):,} expected, "
        f"{sum(count - 1 for count in lines.values())} twice, {len(wanted - set(lines))} missing")  # fmt: skip
    exact = exact_state and exact_files
    say(
        "\nEXACTLY ONCE: every count is exact, through the crash."
        if exact
        else "\nWRONG: see the counts above."
    )
    return exact


def say(text: str) -> None:
    """Print at once, also into a pipe."""
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
