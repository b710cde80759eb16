"""`make chaos-kafka`: kills of the exactly-once sink at random, until there were enough; `--seed` replays them.

Every journey is one job: drivers are killed at points of the commit or after random times, frozen until their successor
has ended, or have their broker killed, one after the other, each started again from the newest checkpoint. At its end a
`read_committed` reader must see every record once.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from tests.kafka.broker import DEADLINE_S
from tests.kafka.drivers import Driver, newest_checkpoint
from tests.kafka.journeys import COMMIT, Door
from tests.kafka.proxy import Moment, Request

MODES = ("epochs", "continuous")
PER_JOURNEY = 4


class Journey:
    """One job, and what is done to it."""

    def __init__(self, door: Door, directory: Path, choose: random.Random, down_s: float) -> None:
        self.door, self.directory, self.choose, self.down_s = door, directory, choose, down_s
        self.mode = choose.choice(MODES)
        self.topic = door.broker.create_topic(3)
        self.done: list[str] = []
        self.over = False

    def run(self) -> None:
        """Do one thing after the other to the job, and compare what readers see."""
        for _ in range(PER_JOURNEY):
            kinds = [self.die_at_point] * 7 + [self.die_after_time] * 2 + [self.freeze, self.kill_broker]
            self.choose.choice(kinds)()
            if self.over:
                self.door.compare(self.topic)
                return
        self.door.end_of(self.directory, self.topic, self.mode)

    def start(self) -> Driver:
        checkpoint = newest_checkpoint(self.directory)
        return Driver(self.directory, self.door.proxy.address, self.topic, self.mode, checkpoint)

    def ended(self, driver: Driver, what: str) -> None:
        said = driver.end()
        self.door.proxy.clear()
        assert driver.process.exitcode in (-9, 0), said
        self.over = driver.process.exitcode == 0
        if not self.over:
            self.done.append(what)

    def die_at_point(self) -> None:
        request, nth, moment = self.choose.choice(COMMIT)
        nth += self.choose.choice([0, 0, 1, 2])
        driver = self.start()
        self.door.proxy.set_rule(request, nth, moment, driver.kill)
        self.ended(driver, f"{request.name.lower()} {nth} {moment.value}")

    def die_after_time(self) -> None:
        driver = self.start()
        delay = self.choose.uniform(0, 0.3)
        timer = threading.Timer(delay, driver.kill)
        self.door.proxy.set_rule(Request.END_TXN, self.choose.choice([1, 2, 3]), Moment.BEFORE, timer.start)
        self.ended(driver, "some time")
        timer.cancel()

    def freeze(self) -> None:
        """Freeze a driver amid its commit, let another one take over, and wake it when that one is dead, too."""
        frozen, awake = self.start(), threading.Event()

        def stop() -> None:
            frozen.send(signal.SIGSTOP)
            awake.wait(DEADLINE_S)

        request = self.choose.choice([Request.END_TXN, Request.TXN_OFFSET_COMMIT, Request.PRODUCE])
        rule = self.door.proxy.set_rule(request, 2, Moment.BEFORE, stop)
        while not rule.done.wait(0.05):
            if not frozen.process.is_alive():
                self.ended(frozen, "")
                return
        successor = self.start()
        self.door.proxy.set_rule(Request.END_TXN, 3, Moment.BEFORE, successor.kill)
        said = successor.end()
        assert successor.process.exitcode in (-9, 0), said
        frozen.send(signal.SIGCONT)
        awake.set()
        self.door.proxy.clear()
        said = frozen.end()
        assert frozen.process.exitcode == 1, said
        assert "FencedError" in said, said
        self.over = successor.process.exitcode == 0
        self.done += ["frozen", "successor"] if not self.over else ["frozen"]

    def kill_broker(self) -> None:
        driver = self.start()
        point = self.choose.choice([Request.END_TXN, Request.PRODUCE, Request.INIT_PRODUCER_ID])
        moment = self.choose.choice(list(Moment))
        rule = self.door.proxy.set_rule(point, 1, moment, self.door.broker.kill)
        while not rule.done.wait(0.05):
            if not driver.process.is_alive():
                self.ended(driver, "")
                return
        time.sleep(self.down_s)
        self.door.broker.start()
        self.door.proxy.clear()
        self.done.append(f"broker at {point.name.lower()}")
        # The driver lives on; it is killed in its turn, so that the journey goes on from a checkpoint.
        self.door.proxy.set_rule(Request.END_TXN, 2, Moment.ANSWERED, driver.kill)
        self.ended(driver, "end_txn answered")


def main() -> int:
    """Run journeys until there were enough kills."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="the journey to begin with")
    parser.add_argument("--down", type=float, default=20.0, help="seconds that a broker is away")
    options = parser.parse_args()
    again = f"make chaos-kafka SEED={options.seed} KILLS={options.kills}"
    print(again, flush=True)
    kills: Counter[str] = Counter()
    journey = options.first
    with tempfile.TemporaryDirectory() as root:
        door = Door(Path(root, "broker"))
        try:
            while sum(kills.values()) < options.kills:
                choose = random.Random(f"{options.seed}-{journey}")
                one = Journey(door, Path(root, f"journey-{journey}"), choose, options.down)
                one.directory.mkdir()
                try:
                    one.run()
                except AssertionError as exc:
                    print(
                        f"journey {journey} ({one.mode}, {one.done}) FAILED: {exc}\nagain: {again} FIRST={journey}"
                    )
                    return 1
                kills.update(one.done)
                print(f"journey {journey} {one.mode}: {', '.join(one.done) or 'no kill'}: exact", flush=True)
                journey += 1
        finally:
            door.close()
    print(f"{sum(kills.values())} kills in {journey - options.first} journeys: 0 lost, 0 doubled")
    for what, count in sorted(kills.items()):
        print(f"  {count:3} {what}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
