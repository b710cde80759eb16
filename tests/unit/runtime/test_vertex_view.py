"""Rates between two looks, and whose time is shown at which vertex."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.runtime.continuous.links import plan_of

from tidemark import SourceFunction, Types
from tidemark.runtime.progress import Progress, TaskTimes
from tidemark.runtime.vertex_view import VertexRates, VertexView
from tidemark.web.facts import Shares


def test_rates_are_those_since_the_last_look_and_begin_anew_with_an_attempt():
    rates = VertexRates()

    assert rates.records("u", 0, 2000, 0, 100, 50) == (50.0, 25.0)
    assert rates.records("u", 0, 2100, 0, 999, 999) == (50.0, 25.0), "too soon to tell"
    assert rates.records("u", 0, 4000, 0, 300, 50) == (100.0, 0.0)
    assert rates.records("u", 0, 5000, 4500, 10, 5) == (20.0, 10.0), "the counters of another attempt"


def test_a_subtask_is_busy_for_a_share_of_the_time_between_two_looks():
    rates = VertexRates()

    assert rates.busy("u", 0, 1000, 700) is None
    assert rates.busy("u", 0, 2000, 950) == 0.25
    assert rates.busy("u", 0, 3000, 10) is None, "the counters of another attempt"


class Endless(SourceFunction):
    def run(self, ctx: Any) -> None:
        pass

    def cancel(self) -> None:
        pass


def graph(env: Any) -> None:
    env.add_source(Endless(), type_info=Types.LONG()).uid("function").print().uid("printed")
    numbers = env.from_collection([1]).uid("numbers").map(lambda v: v).uid("mapped")
    counted = numbers.key_by(lambda v: v, Types.LONG()).map(lambda v: v).uid("counted")
    counted.map(lambda v: v).uid("behind").print().uid("sink")


class FakeExecution:
    def __init__(self, tasks: dict[int, TaskTimes]) -> None:
        self.plan = plan_of(graph, 2)
        self.progress = Progress()
        for task, times in tasks.items():
            self.progress.spent(task, times)

    def marks(self) -> dict[str, int]:
        return {"numbers": 70}


def slot(index: int, **operators: int) -> dict[str, Any]:
    told = {
        uid: {
            "subtask": index,
            "records_in": busy_ms,
            "records_out": 0,
            "busy_ms": busy_ms,
            "lived_ms": 1000,
            "watermark": None,
            "native": {},
        }
        for uid, busy_ms in operators.items()
    }
    return {"slot": index, "age_ms": 0, "host": "h", "operators": told}


@pytest.fixture
def view():
    execution = FakeExecution({0: TaskTimes(100, 700, 200), 1: TaskTimes(200, 100, 700)})
    return VertexView(execution, 0)  # type: ignore[arg-type]


def looked(view, busy=(0, 0)):
    facts = view.facts([slot(0, counted=busy[0], function=0), slot(1, counted=busy[1])], {}, {}, 0)
    later = [slot(0, counted=busy[0] + 500, function=0), slot(1, counted=busy[1] + 100)]
    for told in later:
        for operator in told["operators"].values():
            operator["lived_ms"] = 2000
    facts = view.facts(later, {}, {("counted", 1): (3, 4)}, 1000)
    return {vertex.uid: vertex for vertex in facts}


def test_what_a_task_reads_and_what_is_fused_to_it_share_the_times_of_its_loop(view):
    found = looked(view)

    assert [s.shares for s in found["mapped"].subtasks] == [Shares(0.1, 0.7, 0.2), Shares(0.2, 0.1, 0.7)]
    assert found["numbers"].shares == Shares(0.15, 0.4, 0.45)
    assert found["behind"].shares is None, "the loop waits for nobody there"
    assert found["mapped"].subtasks[0].times.backpressured == 700


def test_a_vertex_in_slots_is_busy_or_idle_and_a_source_function_waits_with_its_task(view):
    found = looked(view)

    assert [s.shares for s in found["counted"].subtasks] == [Shares(0.5, 0.0, 0.5), Shares(0.1, 0.0, 0.9)]
    assert [s.barrier for s in found["counted"].subtasks] == [None, (3, 4)]
    assert [s.records_in_per_second for s in found["counted"].subtasks] == [500.0, 100.0]
    assert found["function"].subtasks[0].shares == Shares(0.0, 0.7, 0.3)


def test_a_vertex_without_a_watermark_of_its_own_has_that_of_its_inputs(view):
    found = looked(view)

    assert {found[uid].watermark for uid in ("numbers", "mapped", "counted", "behind", "sink")} == {70}
    assert found["printed"].watermark is None
