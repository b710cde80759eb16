"""`make demo`: a streaming job on Spark that loses a slot in mid-stream and still counts every order once.

Orders come from a Spark Structured Streaming source. They are keyed by customer; each customer's orders are
counted and summed in keyed state inside the slots; every hundredth order of a customer is written by an
exactly-once file sink. Checkpoints are taken every second. After a while the demo kills one of its own slot
processes with SIGKILL, watches the recovery, stops with a savepoint, and proves that nothing was lost and
nothing was counted twice. The savepoint stays, to be looked at.
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
WAITING_S = 3.0
"""Without news until the first word about it; twice as long until the next one."""
QUIET_S = 5.0
"""Between two lines that say the same."""
EPOCHS = 4
"""Epochs with data to see before the crash, and after it: on a slow machine the seconds alone prove nothing."""


def main() -> int:
    """Run the demo; 0 if every count is exact."""
    warnings.filterwarnings("ignore", category=FutureWarning)
    folder = Path(tempfile.mkdtemp(prefix="tidemark-demo-"))
    try:
        exact, savepoint = _run(folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    for name in ("checkpoints", "alerts"):
        shutil.rmtree(folder / name, ignore_errors=True)
    _suggest(savepoint)
    return 0 if exact else 1


def _run(folder: Path) -> tuple[bool, str]:
    """Whether every count is exact, and the savepoint."""
    show = _Display()
    say(
        f"Orders of {CUSTOMERS:,} customers are counted in state, which two processes hold, the slots.\n"
        "One of them is going to be killed. In the end every order must have been counted exactly once.\n"
    )
    show.step("Starting Spark on this machine; that takes a few seconds ...")
    spark = _session()
    show.step("Spark is there. Starting the job and its two slots ...")
    show.client = client = _start_job(spark, folder, show)
    began = show.seconds
    show.watch_until(
        lambda facts: (
            facts["epoch"] >= EPOCHS
            and facts["checkpoints"] >= 3
            and show.seconds > began + RUN_BEFORE_CRASH_S
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
    return exact, savepoint


def _suggest(savepoint: str) -> None:
    """Three things to do next; the command is named as it can be typed here."""
    script = Path(sys.executable).with_name("tidemark")
    command = os.path.relpath(script) if script.is_relative_to(Path.cwd()) else str(script)
    say(
        f"""
Three things to try next:
  {command} inspect {savepoint}
      what the savepoint holds: operators, states, types, sizes (delete it with: {command} savepoint -d PATH)
  {command} new shop && cd shop && {"../" if not os.path.isabs(command) else ""}{command} run job.py
      a project of your own: job, test, configuration
  docs/learn/tutorial.md
      five steps, from counting words to a job that survives, is rescaled, evolved, queried and watched"""
    )


def _session() -> Any:
    from tidemark.runtime.session import find_or_create_session

    session, _new = find_or_create_session({"spark.app.name": "tidemark demo"})
    return session


def _start_job(spark: Any, folder: Path, show: _Display) -> Any:
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
    from tidemark.runtime.rest import announcing

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
    with announcing(lambda address: show.step(f"Watch it in a browser: {address}")):
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
    """Prints a line when there is progress, at most two a second; while nothing goes on, one every few seconds."""

    def __init__(self) -> None:
        self.client: Any = None
        self._started = time.monotonic()
        self._last = (0.0, 0)
        self._shown: tuple[Any, ...] = ()
        self._said_at = 0.0
        self._patience = WAITING_S

    @property
    def seconds(self) -> float:
        """Since the demo was started."""
        return time.monotonic() - self._started

    def step(self, text: str) -> None:
        """Say that something was reached."""
        self._said_at = self.seconds
        say(f"{self.seconds:5.1f} s  {text}")

    def watch_until(self, enough: Any, deadline_s: float = 600.0) -> None:
        """Show progress until `enough(facts)`; gives up after a deadline."""
        limit = time.monotonic() + deadline_s
        while True:
            facts = self.client.get_progress()
            if facts["epoch"] or facts["attempt"]:
                self._line(facts)
            elif self.seconds - self._said_at > self._patience:
                self._patience *= 2
                self.step("Spark compiles the first epoch and starts its Python workers ...")
            if enough(facts):
                return
            if facts["status"] in ("FAILED", "FINISHED", "CANCELED") or time.monotonic() > limit:
                raise SystemExit(
                    f"The demo did not get on: the job is {facts['status']}. {facts['failure'] or ''}"
                )
            time.sleep(0.5)

    def _line(self, facts: dict[str, Any]) -> None:
        then, before = self._last
        now = time.monotonic()
        shown = tuple(
            facts[name] for name in ("status", "attempt", "epoch", "state_entries", "last_checkpoint")
        )
        if shown == self._shown and now - then < QUIET_S:
            return
        self._shown = shown
        # Records count work, also what is done again after the crash; orders are counted once.
        orders = facts["records"] - facts["replayed"]
        rate = max(0, orders - before) / (now - then) if then else 0.0
        self._last = (now, orders)
        say(
            f"{self.seconds:5.1f} s  {facts['status']:<10} attempt {facts['attempt']}  epoch {facts['epoch']:>4}  "
            f"{orders:>10,} orders  {rate:>9,.0f}/s  {facts['state_entries']:>5} keys in state  "
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
