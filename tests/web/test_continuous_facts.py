"""What the server tells of barriers in a continuous job: how long they wait, and who waits for them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.web.conftest import Site, Start, until

from tidemark import (
    Configuration,
    JobClient,
    KeyedProcessFunction,
    Split,
    SplitReader,
    SplitSource,
    StreamExecutionEnvironment,
    Types,
    WatermarkStrategy,
)


class Endless(SplitSource[int]):
    """Two splits that always have more."""

    bounded = False

    def enumerate(self) -> list[Split]:
        return [Split("even", 0), Split("odd", 1)]

    def open(self, split: Split, position: Any | None) -> EndlessReader:
        return EndlessReader(split.data if position is None else position)

    def get_produced_type(self) -> Any:
        return Types.LONG()


class EndlessReader(SplitReader[int]):
    def __init__(self, following: int) -> None:
        self.next = following

    def read(self, max_records: int, timeout_ms: int) -> Sequence[int]:
        self.next += 2
        return [self.next - 2]

    def timestamps(self) -> list[int]:
        return [self.next - 2]

    def position(self) -> int:
        return self.next


class Slow(KeyedProcessFunction):
    """Takes most of the time of the job."""

    def process_element(self, value: int, ctx: Any) -> Any:
        time.sleep(0.002)
        yield value


def start(directory: Path, settings: dict[str, str]) -> JobClient:
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict(
            {
                "execution.target": "local",
                "execution.mode": "continuous",
                "execution.checkpointing.interval": "20 ms",
                "execution.checkpointing.max-concurrent-checkpoints": "3",
                "state.checkpoints.dir": str(directory / "checkpoints"),
                "pipeline.auto-watermark-interval": "10 ms",
                "metrics.latency.interval": "10 ms",
                "rest.port": "0",
                **settings,
            }
        )
    )
    env.set_parallelism(2)
    numbers = env.from_source(Endless(), WatermarkStrategy.for_monotonous_timestamps(), "numbers").uid(
        "numbers"
    )
    plain = numbers.map(lambda n: n, Types.LONG()).uid("plain")
    plain.key_by(lambda n: n % 4, Types.LONG()).process(Slow(), Types.LONG()).uid("slow").print()
    return env.execute_async("continuous")


def subtask_metric(site: Site, vertex: str, name: str) -> float:
    [shown] = site.of_job(f"/vertices/{vertex}/subtasks/metrics", params={"get": name})
    return float(shown["sum"])


def test_alignment_and_frames_held_back_are_counted(run: Start) -> None:
    site = run(start)
    slow = site.vertex("slow")["id"]

    def aligned() -> Any:
        done = site.of_job("/checkpoints")["history"]
        return next((c for c in done if c["status"] == "COMPLETED" and c["alignment_duration"] > 0), None)

    checkpoint = until(aligned)
    shown = site.of_job(f"/checkpoints/details/{checkpoint['id']}/subtasks/{slow}")
    assert max(part["alignment"]["duration"] for part in shown["subtasks"]) > 0
    assert shown["summary"]["alignment"]["duration"]["max"] > 0
    assert until(lambda: subtask_metric(site, slow, "heldBackFrames")) >= 1
