"""Sources that tasks read by themselves, on Spark: counted exactly through the loss of a slot and of the driver."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
from tests.integration.test_spark_sources import LATE, Lateness, count_stream_through_failures, python_sources

from tidemark import Split, SplitReader, SplitSource, Types, WatermarkStrategy

pytestmark = pytest.mark.spark

PAIR = Types.ROW([Types.STRING(), Types.LONG()])
RATE = 40
NO_WATERMARKS = WatermarkStrategy.no_watermarks()


class RateReader(SplitReader[tuple[str, int]]):
    """The numbers that have come up in a split since it began."""

    def __init__(self, split: Split, position: Any | None) -> None:
        self.id, self.began = split.id, split.data["began"]
        self.next = 0 if position is None else position["next"]

    def read(self, max_records: int, timeout_ms: int) -> Sequence[tuple[str, int]]:
        first, there = self.next, int((time.time() - self.began) * RATE)
        self.next = max(first, min(there, first + max_records))
        return [(self.id, n) for n in range(first, self.next)]

    def position(self) -> Any:
        return {"next": self.next}


class Rate(SplitSource[tuple[str, int]]):
    """Numbers that come up with time, in splits that come up with time."""

    bounded = False
    discovery_interval_ms = 100

    def __init__(self, began: float) -> None:
        self.began = began

    def enumerate(self) -> list[Split]:
        return [Split(f"rate-{n}", {"began": self.began}) for n in range(3)]

    def discover(self) -> list[Split]:
        later = int(min(6, (time.time() - self.began) / 2))
        return [
            *self.enumerate(),
            *(Split(f"later-{n}", {"began": self.began + 2 * n}) for n in range(later)),
        ]

    def open(self, split: Split, position: Any | None) -> RateReader:
        return RateReader(split, position)

    def get_produced_type(self) -> Any:
        return PAIR


def test_splits_are_counted_exactly_at_another_parallelism(make_env, tmp_path):
    source = Rate(time.time())
    count_stream_through_failures(
        make_env, lambda env: env.from_source(source, NO_WATERMARKS, "rate"), tmp_path, parallelisms=(2, 3)
    )


@pytest.mark.parametrize("kind", [0, 1], ids=["simple", "partitioned"])
def test_python_data_sources_are_read_directly_and_counted_exactly(spark, make_env, tmp_path, kind):
    source = python_sources()[kind]({"began": str(time.time())})
    count_stream_through_failures(
        make_env, lambda env: env.from_python_data_source(source, NO_WATERMARKS), tmp_path
    )


class TimedReader(SplitReader[int]):
    """Timestamps in order; of the slow split now and then only."""

    def __init__(self, split: Split, position: Any | None) -> None:
        self.stamps = split.data
        self.next = position or 0
        self.given: list[int] = []

    def read(self, max_records: int, timeout_ms: int) -> Sequence[int] | None:
        if self.next == len(self.stamps):
            return None
        self.given = self.stamps[self.next : self.next + 1] if not self.given else []
        self.next += len(self.given)
        return self.given

    def timestamps(self) -> Sequence[int]:
        return self.given

    def position(self) -> Any:
        return self.next


class Timed(SplitSource[int]):
    bounded = True

    def enumerate(self) -> list[Split]:
        return [Split("fast", list(range(10_000, 10_012))), Split("slow", list(range(12)))]

    def open(self, split: Split, position: Any | None) -> TimedReader:
        return TimedReader(split, position)


def test_a_slow_split_has_no_late_record(make_env):
    env = make_env(2)
    stamped = env.from_source(Timed(), WatermarkStrategy.for_monotonous_timestamps(), "timed")
    pairs = stamped.map(lambda n: (str(n), n), Types.TUPLE([Types.STRING(), Types.LONG()]))
    judged = pairs.key_by(lambda pair: 0, Types.LONG()).process(Lateness(), Types.STRING())
    late = judged.get_side_output(LATE).map(lambda text: f"late {text}", Types.STRING())

    lines = list(judged.union(late).execute_and_collect())

    assert len(lines) == 24
    assert not [line for line in lines if line.startswith("late")]
    assert any(0 <= int(line.split()[2]) < 10_000 for line in lines), "time moves with the slow split"


def test_text_from_a_socket_runs_through_a_job(make_env):
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with listening.accept()[0] as connection:
                connection.sendall(b"1\n2\n3\n")

        thread = threading.Thread(target=serve)
        thread.start()
        lines = make_env(2).socket_text_stream("127.0.0.1", listening.getsockname()[1])
        doubled = list(lines.map(lambda line: int(line) * 2, Types.LONG()).execute_and_collect())
        thread.join()

    assert doubled == [2, 4, 6]
