"""A job that is killed at one point after the other, each time started again from the newest checkpoint, to its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.kafka.broker import Broker
from tests.kafka.drivers import Driver, newest_checkpoint
from tests.kafka.proxy import Moment, Proxy, Request
from tests.kafka.sink_program import EXACT

Point = tuple[Request, int, Moment]

COMMIT: tuple[Point, ...] = (
    (Request.INIT_PRODUCER_ID, 1, Moment.BEFORE),
    (Request.INIT_PRODUCER_ID, 1, Moment.ANSWERED),
    (Request.OFFSET_FETCH, 2, Moment.BEFORE),
    (Request.OFFSET_FETCH, 2, Moment.ANSWERED),
    (Request.ADD_PARTITIONS_TO_TXN, 1, Moment.BEFORE),
    (Request.ADD_PARTITIONS_TO_TXN, 1, Moment.ANSWERED),
    (Request.PRODUCE, 1, Moment.BEFORE),
    (Request.PRODUCE, 1, Moment.ANSWERED),
    (Request.PRODUCE, 4, Moment.BEFORE),
    (Request.ADD_OFFSETS_TO_TXN, 2, Moment.ANSWERED),
    (Request.TXN_OFFSET_COMMIT, 2, Moment.BEFORE),
    (Request.TXN_OFFSET_COMMIT, 2, Moment.ANSWERED),
    (Request.END_TXN, 2, Moment.BEFORE),
    (Request.END_TXN, 2, Moment.ANSWERED),
    (Request.END_TXN, 2, Moment.AFTER),
)
"""Where a driver can die over a commit: init, marker check, begin, produce, offsets, commit, acknowledgement.

The first transaction announces the job and commits what its snapshot covers, the second is of a checkpoint."""


class Door:
    """A broker behind a proxy."""

    def __init__(self, directory: Path) -> None:
        self.proxy = Proxy()
        self.broker = Broker(directory, f"advertised.listeners=PLAINTEXT://{self.proxy.address}")
        host, _, port = self.broker.bootstrap.partition(":")
        self.proxy.target = (host, int(port))

    def close(self) -> None:
        self.broker.kill()
        self.proxy.close()

    def die_at(self, driver: Driver, point: Point) -> bool:
        """Kill a driver at a point; False if it has come to its end before."""
        self.proxy.set_rule(*point, driver.kill)
        said = driver.end()
        self.proxy.clear()
        assert driver.process.exitcode in (-9, 0), said
        return driver.process.exitcode == -9

    def end_of(self, directory: Path, topic: str, mode: str) -> None:
        """Let the job come to its end from where it is, and compare what readers see."""
        said = Driver(directory, self.proxy.address, topic, mode, newest_checkpoint(directory)).end()
        assert "finished" in said, said
        self.compare(topic)

    def compare(self, topic: str) -> None:
        """Nothing lost, nothing doubled."""
        self.broker.await_transactions(topic)
        seen = Counter(self.broker.committed_values(topic))
        lost, doubled = EXACT - seen, seen - EXACT
        figures = sum(lost.values()), sum(doubled.values())
        assert figures == (0, 0), (
            f"(lost, doubled) in {topic}: {figures}, lost {sorted(lost)[:5]}, doubled {sorted(doubled)[:5]}"
        )

    def journey(self, directory: Path, mode: str, points: Iterable[Point]) -> int:
        """Kill one driver after the other; how many were."""
        topic = self.broker.create_topic(3)
        kills = 0
        for point in points:
            driver = Driver(directory, self.proxy.address, topic, mode, newest_checkpoint(directory))
            if not self.die_at(driver, point):
                self.compare(topic)
                return kills
            kills += 1
        self.end_of(directory, topic, mode)
        return kills
