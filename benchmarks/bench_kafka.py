"""Benchmark of the Kafka connectors against a broker of its own. `make bench-kafka`.

Sink: small records of 100 bytes to 4 partitions, by whole jobs in the local executor and by the sink alone, without a
job: for AT_LEAST_ONCE what a task does (an idempotent producer, flushed), for EXACTLY_ONCE what task and driver do one
after the other (stage, then commit in one transaction). Guarantees run in turns within one run; compare within a table.
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

from measure import Table, progress

from tidemark import (
    ByteArraySchema,
    Configuration,
    DeliveryGuarantee,
    KafkaRecordSerializationSchema,
    KafkaSink,
    NumberSequenceSource,
    StreamExecutionEnvironment,
    Types,
    WatermarkStrategy,
)

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "kafka.sh"
BATCH = 8192
PADDING = b"x" * 88
GUARANTEES = (DeliveryGuarantee.AT_LEAST_ONCE, DeliveryGuarantee.EXACTLY_ONCE, DeliveryGuarantee.NONE)


@contextmanager
def broker() -> Iterator[str]:
    """The address of a broker that ends with the block."""
    with tempfile.TemporaryDirectory() as name:
        settings = {**os.environ, "KAFKA_OWNER": str(os.getpid()), "KAFKA_HEAP": "512m"}
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
    """Records per second of a whole job, its start and end left in."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"execution.target": "local", "execution.mode": mode, "state.checkpoints.dir": folder}
        env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
        env.set_parallelism(2)
        env.enable_checkpointing(1000)
        numbers = env.from_source(
            NumberSequenceSource(1, records), WatermarkStrategy.no_watermarks(), "numbers", Types.LONG()
        )
        made = numbers.map(lambda n: b"%012d" % n + PADDING, Types.PRIMITIVE_ARRAY(Types.BYTE()))
        made.sink_to(sink_of(bootstrap, new_topic(bootstrap), guarantee)).uid("sink")
        started = time.perf_counter()
        env.execute()
        return records / (time.perf_counter() - started)


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
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(rounds):
            progress(f"sink, turn {turn + 1} of {rounds}")
            for guarantee in GUARANTEES:
                alone[guarantee].append(run_sink(bootstrap, guarantee, records, Path(folder)))
            for mode in ("epochs", "continuous"):
                for guarantee in GUARANTEES:
                    rate = run_job(bootstrap, guarantee, mode, records)
                    jobs.setdefault((mode, guarantee), []).append(rate)
    table.title(f"Kafka sink, {records:,} records of 100 bytes, records/s (median of {rounds} turns)")
    for guarantee in GUARANTEES:
        table.row(f"{guarantee.name}, sink alone", f"{statistics.median(alone[guarantee]):,.0f}")
    for (mode, guarantee), rates in jobs.items():
        table.row(f"{guarantee.name}, job in {mode}", f"{statistics.median(rates):,.0f}")
    idempotent, exact, _ = GUARANTEES
    ratios = [one / other for one, other in zip(alone[exact], alone[idempotent], strict=True)]
    turns = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    table.row("exactly once / idempotent, sink alone (>= 0.80)", turns, met=statistics.median(ratios) >= 0.8)


def main() -> None:
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    table = Table()
    with broker() as bootstrap:
        bench_sink(table, bootstrap, options.records, options.rounds)
    table.exit()


if __name__ == "__main__":
    main()
