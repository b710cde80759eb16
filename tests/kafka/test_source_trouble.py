"""What can go wrong around a Kafka source: every case has a name in the error, or costs nothing."""

from __future__ import annotations

import logging
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.kafka.broker import Broker, wait_until
from tests.kafka.test_source import bounded, count_job, exact, read, source_of, texts
from tests.recovery.local_jobs import DEADLINE, local_env
from tests.recovery.test_driver_loss import newest_checkpoint

from tidemark import Duration, KeyedProcessFunction, WatermarkStrategy
from tidemark.api.connectors.kafka.offsets import KafkaTopicPartition
from tidemark.errors import ConfigError, OffsetsOutOfRangeError
from tidemark.runtime.sources import kafka_consumer
from tidemark.runtime.sources.kafka_reader import KafkaReader
from tidemark.runtime.sources.kafka_splits import KafkaSplits

pytestmark = pytest.mark.modes("epochs", "auto")


def cause_of(failure, kind):
    """The error of that kind behind a failure of a job."""
    error = failure.value
    while error is not None and not isinstance(error, kind):
        error = error.__cause__
    assert error is not None, f"no {kind.__name__} behind {failure.value!r}"
    return error


def test_a_missing_topic_is_named(broker):
    with pytest.raises(Exception, match="no-such-topic") as failure:
        read(bounded(source_of(broker, "no-such-topic")))

    error = cause_of(failure, ConfigError)
    assert broker.bootstrap in str(error)
    with pytest.raises(Exception, match=r"no partition .*-9"):
        topic = broker.create_topic(1)
        read(bounded(source_of(broker).set_partitions({KafkaTopicPartition(topic, 9)})))


@pytest.mark.modes("auto", reason="the driver finds out before there is a mode")
def test_a_broker_that_is_down_is_named_within_the_time_limit(broker, free_port):
    builder = source_of(broker, "t").set_bootstrap_servers(f"127.0.0.1:{free_port}")
    builder.set_property("sasl.password", "hush-hush").set_property("sasl.username", "me")
    env = local_env({"kafka.connection-timeout": "2 s"})
    began = time.monotonic()

    with pytest.raises(Exception, match=f"127.0.0.1:{free_port}.*within 2 s") as failure:
        read(bounded(builder), env)

    assert time.monotonic() - began < DEADLINE
    assert "hush" not in str(failure.value)


@pytest.mark.modes("auto", reason="nothing runs")
def test_secrets_are_not_shown(broker, caplog):
    source = bounded(source_of(broker, "t").set_property("sasl.password", "hush-hush"))

    with caplog.at_level(logging.DEBUG):
        assert "hush" not in repr(source)
        assert "hush" not in repr(source.source_spec())
    assert "hush" not in caplog.text


def savepoint_after(broker, topic, count, tmp_path):
    """Counts what is there, and stops with a savepoint."""
    env = local_env()
    results = count_job(env, source_of(broker, topic).build())
    taken = [next(results) for _ in range(count)]
    path = results.get_job_client().stop_with_savepoint(False, str(tmp_path)).result(DEADLINE)
    return taken + list(results), path


def restored(broker, topic, path, **properties):
    env = local_env({"execution.savepoint.path": path})
    return count_job(env, source_of(broker, topic).set_properties(properties).build())


def test_records_deleted_behind_a_savepoint_are_missed_by_name(broker, tmp_path):
    topic = broker.create_topic(1)
    broker.produce(topic, texts(0, 70))
    _, path = savepoint_after(broker, topic, 70, tmp_path)
    broker.produce(topic, texts(70, 140))
    broker.delete_records(topic, {0: 105})

    with pytest.raises(Exception, match=f"cannot go on in {topic}-0: offset 70") as failure:
        list(restored(broker, topic, path))

    error = cause_of(failure, OffsetsOutOfRangeError)
    assert (error.topic, error.partition, error.wanted, error.earliest, error.latest) == (
        topic,
        0,
        70,
        105,
        140,
    )
    assert "auto.offset.reset" in str(error)
    results = restored(broker, topic, path, **{"auto.offset.reset": "earliest"})
    assert len([next(results) for _ in range(35)]) == 35
    results.close()


def test_a_topic_made_anew_is_not_taken_for_the_old_one(broker, tmp_path):
    topic = broker.create_topic(1)
    broker.produce(topic, texts(0, 70))
    _, path = savepoint_after(broker, topic, 70, tmp_path)
    broker.delete_topic(topic)
    broker.create_topic(1, name=topic)
    broker.produce(topic, texts(0, 100))

    with pytest.raises(Exception, match="deleted and made anew"):
        list(restored(broker, topic, path))

    results = restored(broker, topic, path, **{"auto.offset.reset": "earliest"})
    assert len([next(results) for _ in range(100)]) == 100, "from the start of the new one"
    results.close()


def test_a_topic_made_anew_while_it_is_read_is_noticed_at_the_next_barrier(broker):
    topic = broker.create_topic(1)
    broker.produce(topic, texts(0, 70))
    env = local_env()
    env.enable_checkpointing(20)
    results = count_job(env, source_of(broker, topic).build())
    assert len([next(results) for _ in range(70)]) == 70
    broker.delete_topic(topic)
    broker.create_topic(1, name=topic)
    broker.produce(topic, texts(0, 100))

    with pytest.raises(Exception, match="deleted and made anew while it was read") as failure:
        list(results)

    error = cause_of(failure, OffsetsOutOfRangeError)
    assert (error.topic, error.partition, error.earliest) == (topic, 0, 0)
    # A reader takes the new one for the old one as soon as it has the offset.
    assert error.wanted in range(70, 101)
    assert error.latest in range(101)
    assert "auto.offset.reset" in str(error)


@pytest.mark.modes("auto", reason="a reader by itself")
def test_the_end_of_a_topic_made_anew_is_not_taken_for_that_of_the_old_one(broker):
    topic = broker.create_topic(1)
    broker.produce(topic, texts(0, 20))
    splits = KafkaSplits(bounded(source_of(broker, topic)), 30_000)
    [split] = splits.enumerate()
    splits.close()
    broker.delete_topic(topic)
    broker.create_topic(1, name=topic)
    broker.produce(topic, texts(0, 30))

    reader = splits.open(split, 5)
    with pytest.raises(OffsetsOutOfRangeError, match=r"offset 20 .* offsets 0 to 30 .*made anew"):
        wait_until(lambda: reader.read(10, 500) is None, "the error")
    reader.close()


@pytest.mark.modes("auto", reason="a reader by itself")
def test_a_partition_that_was_paused_in_a_backlog_is_read_again_from_elsewhere(broker):
    topic = broker.create_topic(1)
    broker.produce(topic, texts(0, 3 * kafka_consumer._ENOUGH))
    source, at = source_of(broker, topic).build(), KafkaTopicPartition(topic, 0)
    first = KafkaReader(source, 30_000, at, 0)
    consumer, feed = first._consumer, first._feed
    wait_until(lambda: consumer._poll(0.1) or feed.waiting >= kafka_consumer._ENOUGH, "a feed that is full")
    first.close()

    second = KafkaReader(source, 30_000, at, 5)
    assert second._consumer is consumer, "that had the partition before"
    found = []
    wait_until(lambda: found.extend(second.read(10, 500)) or found, "records")
    second.close()
    kafka_consumer.POOL.close_idle(source.token)
    assert found[0] == "5"


@pytest.mark.modes("auto", reason="a reader by itself")
def test_a_reader_that_is_overtaken_by_retention_says_so(broker):
    topic = broker.create_topic(1)
    broker.produce(topic, texts(0, 20))
    broker.delete_records(topic, {0: 15})
    at = KafkaTopicPartition(topic, 0)

    reader = KafkaReader(bounded(source_of(broker, topic)), 30_000, at, 5, 20)
    with pytest.raises(OffsetsOutOfRangeError, match=r"offset 5 .* offsets 15 to 20"):
        wait_until(lambda: reader.read(10, 500), "the error")
    reader.close()
    source = bounded(source_of(broker, topic).set_property("auto.offset.reset", "earliest"))
    reader = KafkaReader(source, 30_000, at, 5, 20)
    found = []
    while (records := reader.read(10, 500)) is not None:
        found += records
    reader.close()
    assert found == texts(15, 20)


def test_going_back_to_an_older_savepoint_reads_the_same_again(broker, tmp_path):
    topic = broker.create_topic(2)
    broker.produce(topic, texts(0, 40), partition=0)
    first, path = savepoint_after(broker, topic, 40, tmp_path)
    broker.produce(topic, texts(40, 140), partition=1)

    for _ in range(2):
        results = restored(broker, topic, path)
        taken = first + [next(results) for _ in range(100)]
        results.close()
        assert sorted(taken) == exact(140)


def test_a_killed_broker_comes_back_and_nothing_is_lost_or_doubled(restarted_broker):
    broker: Broker = restarted_broker
    topic = broker.create_topic(2)
    env = local_env(parallelism=2)
    env.enable_checkpointing(50)
    results = count_job(env, source_of(broker, topic).set_group_id(f"g-{topic}").build())
    broker.produce(topic, texts(0, 100), partition=0)
    taken = [next(results) for _ in range(60)]

    broker.kill()
    broker.start()
    broker.produce(topic, texts(100, 300), partition=1)
    taken += [next(results) for _ in range(240)]

    assert sorted(taken) == exact(300)
    assert results.get_job_client().get_progress()["attempt"] == 0, "readers wait for the broker"
    results.close()


class Marks(KeyedProcessFunction):
    """Each record with its timestamp and the watermark it meets."""

    def process_element(self, value, ctx):
        yield ctx.timestamp(), ctx.timer_service().current_watermark()


def timed(broker, topic, strategy):
    env = local_env({"pipeline.auto-watermark-interval": "10 ms"}, parallelism=2)
    stream = env.from_source(source_of(broker, topic).build(), strategy, "timed")
    return stream.key_by(lambda _: 0).process(Marks()).execute_and_collect()


def test_a_slow_partition_is_never_late_and_a_quiet_one_holds_time_back(broker):
    topic = broker.create_topic(3)
    results = timed(broker, topic, WatermarkStrategy.for_monotonous_timestamps())
    slow, fast = list(range(1000, 1020)), list(range(90_000, 90_200))

    broker.produce(topic, ["fast"] * len(fast), partition=0, timestamps=fast)
    pairs = [next(results) for _ in fast]
    for stamp in slow:
        broker.produce(topic, ["slow"], partition=1, timestamps=[stamp])
        pairs.append(next(results))
    broker.produce(topic, ["quiet"], partition=2, timestamps=[5])
    pairs.append(next(results))
    results.close()

    assert Counter(stamp for stamp, _ in pairs) == Counter([*slow, *fast, 5])
    assert not [pair for pair in pairs if pair[0] <= pair[1]], "nothing in order is late"
    assert pairs[-1] == (5, -(2**63)), "time waits for the partition that has said nothing"


def test_a_quiet_partition_is_left_out_when_it_is_idle(broker):
    topic = broker.create_topic(2)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_idleness(Duration.of_millis(200))
    results = timed(broker, topic, strategy)
    stamp, mark = 1000, -(2**63)
    give_up = time.monotonic() + DEADLINE

    while mark < 1000:
        assert time.monotonic() < give_up, "time did not move"
        stamp += 1
        broker.produce(topic, ["busy"], partition=0, timestamps=[stamp])
        _, mark = next(results)
    results.close()


PROGRAM = str(Path(__file__).with_name("killed_driver.py"))
ROOT = str(Path(__file__).parents[2])


@pytest.mark.slow
def test_a_killed_driver_goes_on_from_its_checkpoint_while_partitions_are_added(broker, tmp_path):
    rng = random.Random(17)
    topic = broker.create_topic(2)
    total, chunk, partitions = 0, 1000, 2

    def visible():
        out = tmp_path / "out"
        paths = [path for path in out.iterdir() if not path.name.startswith(".")] if out.exists() else []
        return [line for path in paths for line in path.read_text().splitlines()]

    for kill in range(5):
        broker.produce(topic, texts(total, total + chunk), partition=rng.randrange(partitions))
        total += chunk
        checkpoint = newest_checkpoint(tmp_path)
        command = [sys.executable, PROGRAM, str(tmp_path), broker.bootstrap, topic]
        environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": ROOT}
        with subprocess.Popen([*command, *([checkpoint] if checkpoint else [])], env=environment) as driver:
            wait_until(lambda old=checkpoint: newest_checkpoint(tmp_path) != old, "a checkpoint")
            broker.produce(topic, texts(total, total + chunk), partition=rng.randrange(partitions))
            total += chunk
            if kill == 2:
                partitions = 3
                broker.add_partitions(topic, partitions)
            if kill == 4:
                wait_until(lambda most=total: len(visible()) >= most, "all lines are there")
            else:
                time.sleep(rng.random() * 0.3)
            assert driver.poll() is None, "it runs"
            driver.kill()

    expected = Counter(f"{key} {n}" for key in range(50) for n in range(1, total // 50 + 1))
    assert Counter(visible()) == expected
    group = broker.group_offsets(f"group-of-{topic}")
    assert sum(group.values()) <= total
