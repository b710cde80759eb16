"""The work over Kafka: a topic of small records that are counted by key. Every system's worker uses it.

A record's value and key are the text of a number below `keys`, in scattered order; all records of a key are in one
partition. A key's count is passed on at every hundredth record of it. Rates: the time of a job over the whole topic
less that of the same job over a few records, which also warms up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from suite.work import Rows
from suite.worker import Case, timed

PARTITIONS = 4
EVERY = 100
FEW = 1_000
MINIMUM_S = 1.0
"""Differences of two jobs' times below this say nothing."""


def fill(bootstrap: str, topic: str, records: int, keys: int) -> None:
    """Write the records into a topic of four partitions."""
    from confluent_kafka import Producer

    settings = {"linger.ms": 20, "queue.buffering.max.messages": 1_000_000}
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    rows = Rows(records, keys)
    for number in range(records):
        key = rows.key(number)
        text = str(key).encode()
        while True:
            try:
                producer.produce(topic, text, text, key % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    left = producer.flush(120)
    assert not left, f"{left} records did not reach {topic}"


def is_correct(records: int, keys: int, found: Any) -> bool:
    """Whether the pairs of key and count that came out are exactly those that must."""
    counts = Rows(records, keys).counts()
    wanted = Counter(
        (key, count) for key in range(keys) for count in range(EVERY, int(counts[key]) + 1, EVERY)
    )
    return Counter((int(key), int(count)) for key, count in found) == wanted


def figures(case: Case, run: Callable[[str], Any]) -> dict[str, Any]:
    """The rate of `run`, which reads a topic from its start to its end and gives what came out."""
    few, many = case.options["few"], case.options["topic"]
    run(few)
    start, _ = timed(lambda: run(few))
    seconds, found = timed(lambda: run(many))
    if seconds - start < MINIMUM_S:
        raise RuntimeError(
            f"{case.records} records took {seconds:.1f} s, {FEW} took {start:.1f} s: ask for more"
        )
    return {
        "rate": (case.records - FEW) / (seconds - start),
        "startup_s": start,
        "correct": is_correct(case.records, case.keys, found),
    }
