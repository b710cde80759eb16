"""The function Spark runs in every task: whom it obeys, and when it ends by itself. No JVM."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest

from tidemark import Configuration, StreamExecutionEnvironment
from tidemark.plan.job_plan import build_plan
from tidemark.plan.vertex import dump_functions
from tidemark.protocol.tasks import (
    AddSplits,
    EndTask,
    NoMoreSplits,
    TaskDirective,
    TaskEvent,
    TaskLost,
    TaskProgress,
    TaskStarted,
)
from tidemark.runtime.continuous.spark_task import TaskMessage, endless_function
from tidemark.runtime.continuous.task_links import TaskLinks
from tidemark.runtime.sources.enumeration import AssignedSplit
from tidemark.runtime.sources.splits import IndexSplit
from tidemark.runtime.spark_task import TaskClosure

TOKEN = b"t" * 32
SOURCE = 1
"""Number of the first vertex of a graph."""
LONG_S = 300.0
"""A lease nothing here waits for."""


def closure_of(function: Callable[[int], int]) -> TaskClosure:
    """A job without slots: a collection that is printed."""
    env = StreamExecutionEnvironment.get_execution_environment(Configuration())
    env.from_collection([1, 2, 3]).map(function).print()
    graph, settings, _ = env._prepared("job")
    plan = build_plan(graph, settings, "job")
    return TaskClosure(plan.with_vertices({}), dump_functions(list(plan.vertices.values())), TOKEN)


@pytest.fixture
def closure() -> TaskClosure:
    return closure_of(lambda value: value)


@pytest.fixture
def links(tmp_path: Path) -> Any:
    """A driver that says nothing by itself for as long as the test lasts."""
    driver = TaskLinks(TOKEN, f"unix:{tmp_path}/tasks.sock", heartbeat_s=LONG_S, timeout_s=LONG_S)
    driver.begin(1)
    yield driver
    driver.close()


def start(closure: TaskClosure, links: TaskLinks, lease_s: float) -> threading.Thread:
    message = TaskMessage(TaskDirective(1, 1), [], links.address, lease_s)
    function = endless_function(closure, message)
    row = pa.RecordBatch.from_arrays([pa.array([0])], names=["id"])
    thread = threading.Thread(target=lambda: list(function(iter([row]))), daemon=True)
    thread.start()
    return thread


def heard(
    links: TaskLinks, kind: type, wanted: Callable[[Any], bool] = lambda _event: True
) -> list[TaskEvent]:
    deadline = time.monotonic() + 120
    events: list[TaskEvent] = []
    while not any(isinstance(event, kind) and wanted(event) for event in events):
        assert not any(isinstance(event, TaskLost) for event in events), events
        assert time.monotonic() < deadline, f"no {kind.__name__} among {events}"
        events += links.events()
        time.sleep(0.005)
    return events


def test_a_task_lasts_until_the_driver_ends_it(closure: TaskClosure, links: TaskLinks) -> None:
    thread = start(closure, links, LONG_S)
    heard(links, TaskStarted)
    assert thread.is_alive()

    links.tell(0, EndTask())

    thread.join(120)
    assert not thread.is_alive()


def test_a_task_that_hears_nothing_for_the_lease_ends_by_itself(
    closure: TaskClosure, links: TaskLinks
) -> None:
    thread = start(closure, links, 0.3)
    heard(links, TaskStarted)

    thread.join(120)

    assert not thread.is_alive(), "the link is whole, but nobody speaks on it"


def test_a_task_that_works_longer_than_the_lease_has_heard_the_driver_meanwhile_and_was_heard(
    tmp_path: Path,
) -> None:
    lease_s = 3.0  # of which a busy machine may well take one before the driver's heart beats

    def slow(value: int) -> int:
        time.sleep(lease_s + 1)
        return value

    driver = TaskLinks(TOKEN, f"unix:{tmp_path}/tasks.sock", heartbeat_s=0.05, timeout_s=lease_s)
    driver.begin(1)
    try:
        thread = start(closure_of(slow), driver, lease_s)
        heard(driver, TaskStarted)
        driver.tell(0, AddSplits(SOURCE, [AssignedSplit("0", IndexSplit(0, 1), 0)]))
        driver.tell(0, NoMoreSplits(SOURCE))

        told = heard(driver, TaskProgress, lambda event: event.finished)

        assert not [event for event in told if isinstance(event, TaskLost)]
        assert thread.is_alive()
    finally:
        driver.close()
    thread.join(120)


def test_a_task_without_its_driver_ends_at_once(closure: TaskClosure, links: TaskLinks) -> None:
    thread = start(closure, links, LONG_S)
    heard(links, TaskStarted)

    links.close()

    thread.join(120)
    assert not thread.is_alive()


def test_a_task_that_spark_starts_again_does_not_even_connect(
    closure: TaskClosure, links: TaskLinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Again:
        """Spark's word on a task that was tried before."""

        @staticmethod
        def get() -> Any:
            return Again()

        def attemptNumber(self) -> int:
            return 1

    monkeypatch.setattr(pyspark, "TaskContext", Again)

    thread = start(closure, links, LONG_S)

    thread.join(120)
    assert not thread.is_alive()
    assert links.connected() == 0
    assert links.events() == []
