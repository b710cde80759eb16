"""Iterations in rounds on bounded input, checked against a plain computation."""

from __future__ import annotations

import random
import runpy
from pathlib import Path
from typing import Any

import pytest

from tidemark import (
    Configuration,
    DeltaFunction,
    KeyedProcessFunction,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
    Types,
)
from tidemark.errors import ConfigError, UnsupportedOperationException


def batch(parallelism: int) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"execution.target": "local"})
    )
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    return env.set_parallelism(parallelism)


def collected(stream: Any) -> list[Any]:
    with stream.execute_and_collect() as results:
        return sorted(results)


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("rounds", [1, 2, 7])
def test_a_bulk_iteration_goes_round_as_often_as_it_is_told(rounds: int, parallelism: int) -> None:
    env = batch(parallelism)
    loop = env.from_collection([1, 2, 3], Types.LONG()).iterate(max_iterations=rounds)

    result = loop.close_with(loop.map(lambda n: n * 2, Types.LONG()))

    assert collected(result.map(lambda n: n, Types.LONG())) == [n * 2**rounds for n in (1, 2, 3)]


class Total(KeyedProcessFunction):
    """What all elements of a key add up to, told when the round ends."""

    def open(self, runtime_context: Any) -> None:
        self.total = 0

    def process_element(self, value: Any, ctx: Any) -> None:
        self.total += value
        ctx.timer_service().register_event_time_timer(0)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        total, self.total = self.total, 0
        yield total


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_keyed_operator_sees_all_of_a_round_and_nothing_of_another(parallelism: int) -> None:
    env = batch(parallelism)
    loop = env.from_collection(range(10), Types.LONG()).iterate(max_iterations=3)
    totals = loop.key_by(lambda n: n % 2, Types.LONG()).process(Total(), Types.LONG())
    result = loop.close_with(totals.flat_map(lambda n: [n, n + 1], Types.LONG()))

    elements = list(range(10))
    for _ in range(3):
        sums = [sum(n for n in elements if n % 2 == key) for key in {n % 2 for n in elements}]
        elements = [n + more for n in sums for more in (0, 1)]

    assert collected(result) == sorted(elements)


def test_a_criterion_without_elements_ends_the_iteration() -> None:
    env = batch(2)
    loop = env.from_collection([1, 5], Types.LONG()).iterate(max_iterations=1000)
    body = loop.map(lambda n: n * 2, Types.LONG())

    assert collected(loop.close_with(body, body.filter(lambda n: n < 40))) == [64, 320]


def test_an_iteration_ends_when_nothing_is_fed_back_and_what_leaves_it_is_kept() -> None:
    env = batch(1)
    loop = env.from_collection([3, 1, 2], Types.LONG()).iterate(max_iterations=1000)
    body = loop.map(lambda n: n - 1, Types.LONG())
    result = loop.close_with(body.filter(lambda n: n > 0))
    left = body.filter(lambda n: n == 0).map(lambda n: "left", Types.STRING())

    assert collected(left.union(result.map(str, Types.STRING()))) == ["left"] * 3


class Smallest(DeltaFunction):
    rounds = 0

    def update(self, element: Any, work: list[Any]) -> Any:
        vertex, component, neighbours = element
        best = min(candidate for _, candidate in work)
        if best >= component:
            return None, None
        return (vertex, best, neighbours), [(neighbour, best) for neighbour in neighbours]


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_connected_components_are_those_of_a_plain_search(seed: int, parallelism: int) -> None:
    rng = random.Random(seed)
    near: dict[int, list[int]] = {vertex: [] for vertex in range(25)}
    for _ in range(20):
        one, other = rng.randrange(25), rng.randrange(25)
        near[one].append(other)
        near[other].append(one)
    env = batch(parallelism)
    vertex = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LIST(Types.LONG())])
    pair = Types.TUPLE([Types.LONG(), Types.LONG()])
    vertices = env.from_collection([(v, v, others) for v, others in near.items()], vertex)
    work = env.from_collection([(v, w) for v, others in near.items() for w in others], pair)

    found = vertices.iterate_delta(work, 100, Smallest(), lambda e: e[0], lambda w: w[0], Types.LONG())

    expected = []
    for start in near:
        reached, waiting = {start}, [start]
        while waiting:
            waiting += [w for w in near[waiting.pop()] if w not in reached and not reached.add(w)]
        expected.append((start, min(reached)))
    assert [(v, component) for v, component, _ in collected(found)] == expected


def test_page_rank_is_that_of_a_plain_computation(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIDEMARK_EXECUTION_TARGET", "local")
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "page_rank.py"))
    links, damping = example["LINKS"], example["DAMPING"]

    example["main"]()

    ranks = dict.fromkeys(links, 1 / len(links))
    for _ in range(200):
        flows = {p: sum(ranks[q] / len(links[q]) for q in links if p in links[q]) for p in links}
        ranks = {page: (1 - damping) / len(links) + damping * flow for page, flow in flows.items()}
    printed = dict(line.split() for line in capfd.readouterr().out.splitlines())
    assert {page: float(text) for page, text in printed.items()} == pytest.approx(ranks, abs=0.001)


def test_an_iteration_inside_of_another_is_refused_and_one_behind_another_is_not() -> None:
    env = batch(1)
    outer = env.from_collection([1], Types.LONG()).iterate(max_iterations=2)
    inner = outer.map(lambda n: n + 1, Types.LONG()).iterate(max_iterations=3)
    twice = inner.close_with(inner.map(lambda n: n * 2, Types.LONG()))
    with pytest.raises(UnsupportedOperationException, match="inside"):
        collected(outer.close_with(twice.map(lambda n: n, Types.LONG())))

    env = batch(1)
    first = env.from_collection([1], Types.LONG()).iterate(max_iterations=2)
    added = first.close_with(first.map(lambda n: n + 1, Types.LONG()))
    second = added.iterate(max_iterations=3)
    assert collected(second.close_with(second.map(lambda n: n * 2, Types.LONG()))) == [24]


def test_iterations_in_the_wrong_mode_are_refused() -> None:
    env = batch(1)
    loop = env.from_collection([1], Types.LONG()).iterate()
    loop.close_with(loop.map(lambda n: n, Types.LONG())).print()
    with pytest.raises(UnsupportedOperationException, match="max_iterations"):
        env.execute()

    env = batch(1).set_runtime_mode(RuntimeExecutionMode.STREAMING)
    loop = env.from_collection([1], Types.LONG()).iterate(max_iterations=2)
    loop.close_with(loop.map(lambda n: n, Types.LONG())).print()
    with pytest.raises(UnsupportedOperationException, match="BATCH"):
        env.execute()
    with pytest.raises(ConfigError, match="max_iterations"):
        env.from_collection([1]).iterate(max_iterations=0)
    plain = env.from_collection([1], Types.LONG()).iterate()
    with pytest.raises(ConfigError, match="criterion"):
        plain.close_with(plain.map(lambda n: n, Types.LONG()), plain)
    with pytest.raises(TypeError, match="DeltaFunction"):
        stream = env.from_collection([1])
        stream.iterate_delta(stream, 1, lambda e, w: e, abs, abs)  # type: ignore[arg-type]
