"""The web server of a job on Spark: figures of slots in other processes, and of tasks that wait for them."""

from __future__ import annotations

import json
import time
import urllib.request
from typing import Any

import pytest
from tests.integration.test_jobs_on_spark import DEADLINE, Discard, wait_for

from tidemark import (
    KeyedProcessFunction,
    NumberSequenceSource,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from tidemark.errors import JobExecutionException
from tidemark.runtime.rest import announcing

pytestmark = pytest.mark.spark


class SlowCount(KeyedProcessFunction):
    """Takes its time with every record."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Any:
        time.sleep(0.0001)
        self.count.update((self.count.value() or 0) + 1)
        yield value


def test_a_slow_operator_holds_its_source_back_and_the_page_shows_it(spark, make_env):
    env = make_env(2, execution__mode="continuous", rest__enabled="true", rest__port="0")
    env.enable_checkpointing(200)
    time_of = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value)
    numbers = env.from_source(NumberSequenceSource(0, 10_000_000), time_of, "numbers").uid("numbers")
    slow = (
        numbers.key_by(lambda value: value % 10, Types.LONG()).process(SlowCount(), Types.LONG()).uid("slow")
    )
    slow.add_sink(Discard())
    addresses: list[str] = []
    with announcing(addresses.append):
        client = env.execute_async("pressed")

    def get(path: str) -> Any:
        with urllib.request.urlopen(f"{addresses[0]}/v1{path}", timeout=DEADLINE) as answer:
            text = answer.read().decode()
        return json.loads(text) if answer.headers["content-type"] == "application/json" else text

    def vertex(uid: str) -> Any:
        return next(one for one in get(f"/jobs/{job}")["vertices"] if one["uid"] == uid)

    job = str(client.get_job_id())
    try:
        wait_for(lambda: (vertex("numbers")["metrics"]["backpressured"] or 0) > 0.5)
        wait_for(lambda: (vertex("slow")["metrics"]["busy"] or 0) > 0.5)
        wait_for(lambda: vertex("slow")["metrics"]["watermark"] is not None)
        pressure = get(f"/jobs/{job}/vertices/{vertex('numbers')['id']}/backpressure")
        assert pressure["backpressureLevel"] == "high"
        assert [one["subtask"] for one in pressure["subtasks"]] == [0, 1]
        wait_for(lambda: get(f"/jobs/{job}")["latency-ms"])

        wait_for(lambda: get(f"/jobs/{job}/checkpoints")["counts"]["completed"])
        newest = get(f"/jobs/{job}/checkpoints")["latest"]["completed"]["id"]
        details = get(f"/jobs/{job}/checkpoints/details/{newest}/subtasks/{vertex('slow')['id']}")
        # A barrier waits until what its task has read before is through.
        assert max(one["start_delay"] for one in details["subtasks"]) > 0

        slots = get("/taskmanagers")["taskmanagers"]
        assert len({slot["pid"] for slot in slots}) == len(slots) == 2
        log = get(f"/taskmanagers/{slots[1]['id']}/logs/slot-1.log")
        assert f"job={job} attempt=0 slot=1: " in log
    finally:
        client.cancel()
        with pytest.raises(JobExecutionException):
            client.get_job_execution_result().result(DEADLINE)
