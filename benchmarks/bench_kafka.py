"""Benchmark of the Kafka connectors against a broker of its own. `make bench-kafka`.

Sink: small records of 100 bytes to 4 partitions, by jobs on Spark with a checkpoint each second, and by the sink alone,
without a job: for AT_LEAST_ONCE what a task does (an idempotent producer, flushed), for EXACTLY_ONCE what task and
driver do one after the other (stage, then commit in one transaction). Guarantees run in turns; compare within a table.

Count: 2 M small records in 4 partitions counted by 10,000 keys (`suite.kafka_work`), by tidemark on Spark in both modes
and by other systems, each in a process and an environment of its own. Latency: the age of a record behind Kafka, a
keyed count and Kafka, at a fixed rate, at least once.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jobs import environment
from measure import Table, progress, tuned_session
from suite import kafka_work
from suite.peers import PeerMissingError, jars_of, run_case
from suite.worker import Case, timed

from tidemark import (
    ByteArraySchema,
    DeliveryGuarantee,
    KafkaRecordSerializationSchema,
    KafkaSink,
    NumberSequenceSource,
    Types,
    WatermarkStrategy,
)

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "kafka.sh"
BATCH = 8192
PADDING = b"x" * 88
PARTS = ("sink", "count", "latency")
SYSTEMS = ("tidemark", "quix", "flink-thread", "flink-process", "spark-sql")
KEYS = 10_000
PATIENCE_S = 300.0
FLINK_JARS = ("org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2",)
"""Made for Flink 2.2; there is none for 2.3 yet."""
SPARK_JARS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)
"""Made for Spark 4.2 and 4.0; there are none for 4.3 yet."""
GUARANTEES = (DeliveryGuarantee.AT_LEAST_ONCE, DeliveryGuarantee.EXACTLY_ONCE, DeliveryGuarantee.NONE)


@contextmanager
def broker() -> Iterator[str]:
    """The address of a broker that ends with the block."""
    with tempfile.TemporaryDirectory() as name:
        # Compiled as brokers in use are: half-compiled it takes most of a core at a thousand records a second.
        settings = {**os.environ, "KAFKA_OWNER": str(os.getpid()), "KAFKA_HEAP": "512m"}
        settings.setdefault("KAFKA_JVM", "-XX:+TieredCompilation")
        started = subprocess.run(
            [SCRIPT, "start", f"{name}/kafka"], env=settings, check=True, capture_output=True, text=True
        )
        try:
            yield started.stdout.strip()
        finally:
            subprocess.run([SCRIPT, "kill", f"{name}/kafka"], env=settings, check=True)


def new_topic(bootstrap: str, partitions: int = 4) -> str:
    """A topic of its own for every run."""
    from confluent_kafka.admin import AdminClient, NewTopic

    topic = f"bench-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        made.result()
    while topic not in admin.list_topics(timeout=30).topics:
        time.sleep(0.05)
    return topic


def sink_of(bootstrap: str, topic: str, guarantee: DeliveryGuarantee) -> KafkaSink:
    """Bytes as they are."""
    schema = KafkaRecordSerializationSchema.builder().set_topic(topic)
    built = schema.set_value_serialization_schema(ByteArraySchema()).build()
    sink = KafkaSink.builder().set_bootstrap_servers(bootstrap).set_record_serializer(built)
    return sink.set_delivery_guarantee(guarantee).set_transactional_id_prefix(topic).build()


def run_job(bootstrap: str, guarantee: DeliveryGuarantee, mode: str, records: int) -> float:
    """Seconds that a job on Spark takes, its start and end included."""
    with tempfile.TemporaryDirectory() as folder:
        env = environment("heap", 2, Path(folder), 1000, **{"execution.mode": mode})
        numbers = env.from_source(
            NumberSequenceSource(1, records), WatermarkStrategy.no_watermarks(), "numbers", Types.LONG()
        )
        made = numbers.map(lambda n: b"%012d" % n + PADDING, Types.PRIMITIVE_ARRAY(Types.BYTE()))
        made.sink_to(sink_of(bootstrap, new_topic(bootstrap), guarantee)).uid("sink")
        return timed(env.execute)[0]


def job_rate(bootstrap: str, guarantee: DeliveryGuarantee, mode: str, records: int) -> float:
    """Records per second of a job, less what a job over a few records takes."""
    start = run_job(bootstrap, guarantee, mode, kafka_work.FEW)
    return (records - kafka_work.FEW) / (run_job(bootstrap, guarantee, mode, records) - start)


def run_sink(bootstrap: str, guarantee: DeliveryGuarantee, records: int, folder: Path) -> float:
    """Records per second of the sink alone."""
    from tidemark.api.graph import NodeKind
    from tidemark.plan.vertex import Placement, Vertex
    from tidemark.protocol.reports import TaskReport
    from tidemark.runtime.records import Records
    from tidemark.runtime.sinks.kafka_driver import KafkaExactlyOnceSink
    from tidemark.runtime.sinks.kafka_task import KafkaStagingTaskSink, KafkaTaskSink

    spec = sink_of(bootstrap, new_topic(bootstrap), guarantee).sink_spec()
    vertex = Vertex(1, NodeKind.SINK, "sink", "sink", spec, (), (None,), 1, 128, Placement.TASK, None, {})
    batches = [
        Records([b"%012d" % number + PADDING for number in range(at, min(at + BATCH, records))])
        for at in range(0, records, BATCH)
    ]
    report = TaskReport(1, 0)
    job = uuid.uuid4().hex
    driver = KafkaExactlyOnceSink(vertex, str(folder), job, 30_000)
    task: Any
    if guarantee is DeliveryGuarantee.EXACTLY_ONCE:
        driver.claim(job, None)
        driver.restore(None, b"")
        assert driver.staging is not None
        task = KafkaStagingTaskSink(vertex, driver.staging, "bench")
    else:
        task = KafkaTaskSink(vertex)
        # Connected, as a producer of a running job is.
        task.write(Records([b"first"]))
        task.close(report)
    started = time.perf_counter()
    for batch in batches:
        task.write(batch)
    task.close(report)
    if guarantee is DeliveryGuarantee.EXACTLY_ONCE:
        driver.take([], report.staged[1], 1)
        driver.prepare(1)
        driver.commit(1)
    taken = time.perf_counter() - started
    driver.close()
    return records / taken


def bench_sink(table: Table, bootstrap: str, records: int, rounds: int) -> None:
    """The sink, alone and in jobs."""
    alone: dict[DeliveryGuarantee, list[float]] = {guarantee: [] for guarantee in GUARANTEES}
    jobs: dict[tuple[str, DeliveryGuarantee], list[float]] = {}
    tuned_session("bench-kafka", cores=4)
    for mode in ("epochs", "continuous"):
        for guarantee in GUARANTEES:
            run_job(bootstrap, guarantee, mode, kafka_work.FEW)
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(rounds):
            progress(f"sink, turn {turn + 1} of {rounds}")
            for guarantee in GUARANTEES:
                alone[guarantee].append(run_sink(bootstrap, guarantee, records, Path(folder)))
            for mode in ("epochs", "continuous"):
                for guarantee in GUARANTEES:
                    rate = job_rate(bootstrap, guarantee, mode, 4 * records)
                    jobs.setdefault((mode, guarantee), []).append(rate)
    title = f"Kafka sink, {records:,} records of 100 bytes (jobs: {4 * records:,}), records/s"
    table.title(f"{title} (median of {rounds} turns)")
    for guarantee in GUARANTEES:
        table.row(f"{guarantee.name}, sink alone", f"{statistics.median(alone[guarantee]):,.0f}")
    for (mode, guarantee), rates in jobs.items():
        table.row(f"{guarantee.name}, job in {mode}", f"{statistics.median(rates):,.0f}")
    idempotent, exact, _ = GUARANTEES
    pairs = {"sink alone": (alone[exact], alone[idempotent])}
    pairs |= {
        f"job in {mode}": (jobs[mode, exact], jobs[mode, idempotent]) for mode in ("epochs", "continuous")
    }
    for what, (one, other) in pairs.items():
        ratios = [left / right for left, right in zip(one, other, strict=True)]
        turns = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        middle = statistics.median(ratios)
        table.row(f"exactly once / idempotent, {what} (>= 0.80)", f"{middle:.2f}", turns, met=middle >= 0.8)


def cases_of(options: argparse.Namespace, shared: dict[str, Any]) -> dict[str, Case]:
    """Who counts, by what the table calls it. Quix Streams gets a topic of its own that it can do in time."""
    work = {"slots": 2, "records": options.count_records, "keys": KEYS, "state": "kafka"}
    found = {}
    for system in options.systems:
        if system == "tidemark":
            for mode in ("epochs", "continuous"):
                found[f"tidemark, {mode}"] = Case(
                    system, **work, options={**shared, "mode": mode, "cores": 4}
                )
        elif system == "quix":
            fewer = {**work, "records": options.quix_records}
            found[system] = Case(system, **fewer, options={**shared, "topic": shared["fewer"]})
        else:
            try:
                jars = jars_of(*(SPARK_JARS if system == "spark-sql" else FLINK_JARS))
            except PeerMissingError as exc:
                progress(f"{system}: {exc}")
                continue
            found[system] = Case(system, **work, options={**shared, "jars": list(map(str, jars))})
    return found


def bench_count(table: Table, bootstrap: str, options: argparse.Namespace) -> None:
    """Whole jobs that count a topic, in turns."""
    few, many, fewer = (new_topic(bootstrap) for _ in range(3))
    kafka_work.fill(bootstrap, few, kafka_work.FEW, KEYS)
    kafka_work.fill(bootstrap, many, options.count_records, KEYS)
    if "quix" in options.systems:
        kafka_work.fill(bootstrap, fewer, options.quix_records, KEYS)
    shared = {"bootstrap": bootstrap, "few": few, "topic": many, "fewer": fewer}
    rates: dict[str, list[float]] = {}
    for turn in range(options.count_rounds):
        for name, case in cases_of(options, shared).items():
            progress(f"count, turn {turn + 1} of {options.count_rounds}: {name}")
            result = run_case(case, PATIENCE_S)
            if "error" in result or not result["correct"]:
                problem = result.get("error", "WRONG COUNTS")
                progress(f"{name}: {problem}\n{result.get('stderr', '')}")
            else:
                progress(f"{name}: {result['rate']:,.0f}/s, {result['startup_s']:.1f} s to start and end")
                rates.setdefault(name, []).append(result["rate"])
    table.title(f"Kafka -> count, {options.count_records:,} records, {KEYS:,} keys, records/s")
    for name, found in rates.items():
        turns = ", ".join(f"{rate:,.0f}" for rate in found)
        table.row(name, f"{statistics.median(found):,.0f}", turns)


def bench_latency(table: Table, bootstrap: str, options: argparse.Namespace) -> None:
    """The way from topic to topic in continuous execution."""
    table.title(
        f"Kafka -> keyed count -> Kafka at {options.rate:,}/s, AT_LEAST_ONCE: age of a record, p50 / p99"
    )
    read, written = new_topic(bootstrap), new_topic(bootstrap)
    chosen = {"bootstrap": bootstrap, "read": read, "written": written, "mode": "continuous", "cores": 4}
    paced = {"rate": options.rate, "seconds": options.seconds}
    case = Case("tidemark", "kafka-latency", keys=1_000, checkpoint_ms=1_000, options={**chosen, **paced})
    result = run_case(case, PATIENCE_S)
    if "error" in result:
        table.row("continuous", "-", str(result["error"]), met=False)
        progress(result.get("stderr", ""))
        return
    note = "a checkpoint each second" if result["correct"] else "RECORDS ARE MISSING"
    figure = f"{result['p50_ms']:.1f} / {result['p99_ms']:.1f} ms"
    table.row("continuous (p50 < 10 ms)", figure, note, met=result["p50_ms"] < 10 and result["correct"])
    hop = f"{result['bare_p50_ms']:.1f} / {result['bare_p99_ms']:.1f} ms"
    table.row("one way through the broker", hop, "read at once, without a job")


def main() -> None:
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=SYSTEMS, help="of the count part")
    parser.add_argument("--records", type=int, default=500_000, help="of the sink part")
    parser.add_argument("--rounds", type=int, default=3, help="of the sink part")
    parser.add_argument("--count-records", type=int, default=2_000_000)
    parser.add_argument("--count-rounds", type=int, default=1)
    parser.add_argument("--quix-records", type=int, default=200_000)
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--seconds", type=int, default=20)
    options = parser.parse_args()
    table = Table()
    with broker() as bootstrap:
        if "sink" in options.only:
            bench_sink(table, bootstrap, options.records, options.rounds)
        if "latency" in options.only:
            bench_latency(table, bootstrap, options)
        if "count" in options.only:
            bench_count(table, bootstrap, options)
    table.exit()


if __name__ == "__main__":
    main()
