"""Writes records with the time of their creation, `key,microseconds`, to a topic at a fixed rate.

`python kafka_ticker.py BOOTSTRAP TOPIC RATE SECONDS KEYS` prints how many it has written.
"""

from __future__ import annotations

import sys
import time

from confluent_kafka import Producer


def main() -> None:
    bootstrap, topic, *numbers = sys.argv[1:]
    rate, seconds, keys = map(int, numbers)
    # Nothing waits for others to travel with: the age of a record is that of the job alone.
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    sent, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        for number in range(sent, int(elapsed * rate)):
            key = str(number % keys)
            producer.produce(topic, f"{key},{time.time_ns() // 1000}", key)
        sent = max(sent, int(elapsed * rate))
        producer.poll(0)
        time.sleep(0.001)
    producer.flush(60)
    print(sent, flush=True)


if __name__ == "__main__":
    main()
