"""`KafkaSource` against a real broker, in both modes: what is read, from where to where, and what is stored."""

from __future__ import annotations

import time

import pytest
from tests.kafka.broker import Broker, wait_until
from tests.recovery.local_jobs import DEADLINE, Count, local_env

from tidemark import OutputTag, RestartStrategies, SimpleStringSchema, Types, WatermarkStrategy
from tidemark.datastream.connectors.kafka import (
    KafkaBadRecords,
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaRecordDeserializationSchema,
    KafkaSource,
    KafkaTopicPartition,
)
from tidemark.datastream.formats.json import JsonRowDeserializationSchema

pytestmark = pytest.mark.modes("epochs", "auto")


def source_of(broker: Broker, *topics: str):
    """A builder for a source of text that stops at what is there now."""
    builder = KafkaSource.builder().set_bootstrap_servers(broker.bootstrap)
    if topics:
        builder.set_topics(*topics)
    return builder.set_value_only_deserializer(SimpleStringSchema())


def bounded(builder):
    return builder.set_bounded(KafkaOffsetsInitializer.latest()).build()


def read(source, env=None):
    env = env or local_env(parallelism=2)
    return list(env.from_source(source, WatermarkStrategy.no_watermarks(), "kafka").execute_and_collect())


def texts(first, last):
    return [str(number) for number in range(first, last)]


def test_all_partitions_of_all_topics_are_read_to_their_ends(broker):
    one, two = broker.create_topic(3), broker.create_topic(1)
    for partition in range(3):
        broker.produce(one, texts(100 * partition, 100 * partition + 100), partition=partition)
    broker.produce(two, texts(300, 320))

    found = read(bounded(source_of(broker, one, two)))

    assert sorted(map(int, found)) == list(range(320))
    first = [value for value in found if int(value) < 100]
    assert first == texts(0, 100), "the order of a partition"


def test_a_pattern_reads_topics_and_a_set_reads_partitions(broker):
    one = broker.create_topic(2, name=f"pattern-a-{time.time_ns()}")
    broker.produce(one, ["a0"], partition=0)
    broker.produce(one, ["a1"], partition=1)

    assert sorted(read(bounded(source_of(broker).set_topic_pattern(one[:-3] + "...")))) == ["a0", "a1"]
    chosen = source_of(broker).set_partitions({KafkaTopicPartition(one, 1)})
    assert read(bounded(chosen)) == ["a1"]


def starting(broker, topic, initializer, group=None):
    builder = source_of(broker, topic).set_starting_offsets(initializer)
    return bounded(builder if group is None else builder.set_group_id(group))


def test_where_reading_begins(broker):
    topic = broker.create_topic(1)
    broker.produce(topic, texts(0, 10), timestamps=[1000 + 10 * number for number in range(10)])
    at = KafkaTopicPartition(topic, 0)
    begin = KafkaOffsetsInitializer

    assert read(starting(broker, topic, begin.timestamp(1045))) == texts(5, 10)
    assert read(starting(broker, topic, begin.timestamp(99999))) == []
    assert read(starting(broker, topic, begin.offsets({at: 7}))) == texts(7, 10)
    assert read(starting(broker, topic, begin.offsets({at: 99}, KafkaOffsetResetStrategy.LATEST))) == []
    latest = source_of(broker, topic).set_starting_offsets(begin.latest())
    assert read(latest.set_bounded(begin.offsets({at: 10})).build()) == []
    assert read(source_of(broker, topic).set_bounded(begin.offsets({at: 4})).build()) == texts(0, 4)


def test_committed_offsets_are_read_and_written(broker):
    topic = broker.create_topic(2)
    group = f"group-of-{topic}"
    broker.produce(topic, texts(0, 10), partition=0)
    broker.produce(topic, texts(10, 30), partition=1)
    env = local_env()
    env.enable_checkpointing(10)

    with pytest.raises(Exception, match=f"cannot begin to read {topic}-.*no committed offset"):
        read(starting(broker, topic, KafkaOffsetsInitializer.committed_offsets(), group))
    earliest = KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.EARLIEST)
    found = read(starting(broker, topic, earliest, group), env)
    assert sorted(map(int, found)) == list(range(30))
    wait_until(lambda: broker.group_offsets(group) == {(topic, 0): 10, (topic, 1): 20}, "the group knows")

    broker.produce(topic, texts(30, 35), partition=0)
    assert read(starting(broker, topic, KafkaOffsetsInitializer.committed_offsets(), group)) == texts(30, 35)


def test_only_committed_records_are_read_and_the_end_of_a_transaction_is_no_record(broker):
    from confluent_kafka import Producer

    topic = broker.create_topic(1)
    for number, commits in enumerate((True, False, True)):
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"{topic}-tx"})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce(topic, f"tx-{number}")
        producer.flush(60)
        (producer.commit_transaction if commits else producer.abort_transaction)(60)

    assert read(bounded(source_of(broker, topic))) == ["tx-0", "tx-2"]
    dirty = source_of(broker, topic).set_property("isolation.level", "read_uncommitted")
    assert read(bounded(dirty)) == ["tx-0", "tx-1", "tx-2"]


def test_whole_records_have_keys_headers_timestamps_and_tombstones(broker):
    topic = broker.create_topic(1)
    broker.produce(topic, ["v", None], keys=["k", "k"], timestamps=[5, 6], headers=[("h", b"1"), ("n", None)])
    schema = KafkaRecordDeserializationSchema.records(value=SimpleStringSchema(), key=SimpleStringSchema())

    found = read(bounded(source_of(broker, topic).set_deserializer(schema)))

    assert [(each.key, each.value, each.timestamp, each.offset) for each in found] == [
        ("k", "v", 5, 0),
        ("k", None, 6, 1),
    ]
    assert found[0].headers == (("h", b"1"), ("n", None))
    assert (found[0].topic, found[0].partition) == (topic, 0)


ROW = Types.ROW_NAMED(["id"], [Types.INT()])
JSON = JsonRowDeserializationSchema.builder().type_info(ROW).build()
MIXED = ['{"id": 1}', "no json", '{"id": 2}', None, '{"id": 3}']


def test_a_bad_record_fails_the_job_and_is_named(broker):
    topic = broker.create_topic(1)
    broker.produce(topic, MIXED)

    with pytest.raises(Exception, match=f"record at offset 1 of {topic}-0 cannot be read") as failure:
        read(bounded(source_of(broker, topic).set_value_only_deserializer(JSON)))
    assert "KafkaBadRecords.skip()" in str(failure.value)


def test_bad_records_are_skipped_and_counted(broker):
    topic = broker.create_topic(1)
    broker.produce(topic, MIXED)
    source = bounded(
        source_of(broker, topic).set_value_only_deserializer(JSON).set_bad_records(KafkaBadRecords.skip())
    )
    results = (
        local_env().from_source(source, WatermarkStrategy.no_watermarks(), "kafka").execute_and_collect()
    )

    assert [row[0] for row in results] == [1, 2, 3]
    metrics = results.get_job_client().get_accumulators().result(DEADLINE)
    assert metrics["kafka.numRecordsInErrors"] == 2


def test_bad_records_go_to_a_side_output(broker):
    topic = broker.create_topic(1)
    broker.produce(topic, MIXED, timestamps=[7] * 5, keys=["key"] * 5)
    tag = OutputTag("bad", KafkaBadRecords.TYPE)
    source = bounded(
        source_of(broker, topic)
        .set_value_only_deserializer(JSON)
        .set_bad_records(KafkaBadRecords.side_output(tag))
    )
    stream = local_env().from_source(source, WatermarkStrategy.no_watermarks(), "kafka")
    good = stream.map(lambda row: ("good", row[0], ""))
    bad = stream.get_side_output(tag).map(lambda row: ("bad", row.offset, row.reason))

    found = sorted(good.union(bad).execute_and_collect())

    assert [each[:2] for each in found] == [("bad", 1), ("bad", 3), ("good", 1), ("good", 2), ("good", 3)]
    assert "tombstone" in found[1][2]


def test_a_partition_that_is_added_is_read_from_its_start(broker):
    topic = broker.create_topic(1)
    broker.produce(topic, texts(0, 10))
    source = source_of(broker, topic).set_property("partition.discovery.interval.ms", "100").build()
    results = (
        local_env().from_source(source, WatermarkStrategy.no_watermarks(), "kafka").execute_and_collect()
    )
    found = [next(results) for _ in range(10)]

    broker.add_partitions(topic, 2)
    broker.produce(topic, texts(10, 20), partition=1)
    found += [next(results) for _ in range(10)]
    results.close()

    assert sorted(map(int, found)) == list(range(20))


def count_job(env, source):
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "kafka").uid("numbers")
    counted = stream.key_by(lambda value: int(value) % 7, Types.INT()).process(
        Count(), Types.TUPLE([Types.INT(), Types.LONG()])
    )
    return counted.uid("count").execute_and_collect()


def exact(total):
    return sorted((key, n) for key in range(7) for n in range(1, len(range(key, total, 7)) + 1))


def test_positions_survive_savepoints_and_show_readably(broker, tmp_path):
    from tidemark.checkpoint.inspection import describe

    topic = broker.create_topic(3)
    for number in range(3):
        broker.produce(topic, [str(each) for each in range(number, 300, 3)], partition=number)

    def start(parallelism, stopping=False, path=None):
        env = local_env({} if path is None else {"execution.savepoint.path": path}, parallelism)
        env.enable_checkpointing(10)
        builder = source_of(broker, topic)
        if stopping:
            builder.set_unbounded(KafkaOffsetsInitializer.latest())
        return count_job(env, builder.build())

    first = start(3)
    taken = [next(first) for _ in range(50)]
    path = first.get_job_client().stop_with_savepoint(False, str(tmp_path)).result(DEADLINE)
    taken += list(first)
    stored = describe(path)["sources"]["numbers"]["splits"]
    assert set(stored) == {f"{topic}-{number}" for number in range(3)}
    assert sum(each["position"] or 0 for each in stored.values()) == len(taken)

    for number in range(3):
        broker.produce(topic, [str(each) for each in range(300 + number, 600, 3)], partition=number)
    second = start(2, path=path)
    taken += [next(second) for _ in range(600 - len(taken))]
    second.close()

    assert sorted(taken) == exact(600)


def test_counts_are_exact_over_failures(broker):
    topic = broker.create_topic(4)
    for number in range(4):
        broker.produce(topic, [str(each) for each in range(number, 4000, 4)], partition=number)
    env = local_env(parallelism=2)
    env.enable_checkpointing(10)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(10, 1))
    stream = env.from_source(bounded(source_of(broker, topic)), WatermarkStrategy.no_watermarks(), "kafka")
    fails = Once([500, 1500, 3999])

    counted = stream.map(fails, Types.STRING()).key_by(lambda value: int(value) % 7, Types.INT())
    pairs = list(counted.process(Count(), Types.TUPLE([Types.INT(), Types.LONG()])).execute_and_collect())

    assert fails.done() == {500, 1500, 3999}
    assert sorted(pairs) == exact(4000)


_FAILED: dict[str, set[int]] = {}


class Once:
    """Raises once for each of some values."""

    def __init__(self, values):
        self.name, self.values = f"once-{time.time_ns()}", set(values)
        _FAILED[self.name] = set()

    def __call__(self, value):
        if int(value) in self.values - _FAILED[self.name]:
            _FAILED[self.name].add(int(value))
            raise RuntimeError(f"at {value}")
        return value

    def done(self):
        return _FAILED[self.name]
