"""Asynchronous calls in jobs: order, capacity, timeouts, retries, and elements under way in snapshots."""

from __future__ import annotations

import asyncio
import functools
import random
import threading
from typing import Any, ClassVar

import pytest
from tests.campaign import seeds

from tidemark import (
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryStrategy,
    Configuration,
    SourceFunction,
    StreamExecutionEnvironment,
    Time,
    TumblingEventTimeWindows,
    Types,
    WatermarkStrategy,
)
from tidemark.datastream import async_retry_predicates
from tidemark.errors import ConfigError, ExecutionError
from tidemark.runtime.execution import CRASH_POINTS
from tidemark.testing import CHECKPOINT, CRASH, CRASH_AT, END, RESCALE, SAVEPOINT, run_script

WAITS = pytest.mark.parametrize(
    "wait", [AsyncDataStream.ordered_wait, AsyncDataStream.unordered_wait], ids=["ordered", "unordered"]
)


def collected(build: Any, elements: Any, parallelism: int = 1) -> list[Any]:
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"execution.target": "local"})
    )
    env.set_parallelism(parallelism)
    with build(env.from_collection(elements, Types.LONG())).execute_and_collect() as results:
        return list(results)


class Reversed(AsyncFunction[int, int]):
    """Later elements are ready before earlier ones; counts how many are under way at a time."""

    most: ClassVar[int] = 0

    def open(self, runtime_context: Any) -> None:
        self.running = 0
        self.gate = asyncio.Event()

    async def async_invoke(self, value: int) -> list[int]:
        self.running += 1
        Reversed.most = max(Reversed.most, self.running)
        try:
            if value % 2 == 0:
                await self.gate.wait()
            else:
                self.gate.set()
            return [value, -value]
        finally:
            self.running -= 1


def test_ordered_results_come_in_the_order_of_their_elements() -> None:
    def build(stream: Any) -> Any:
        return AsyncDataStream.ordered_wait(stream, Reversed(), Time.seconds(600), 2, Types.LONG())

    assert collected(build, [0, 1, 2, 3]) == [0, 0, 1, -1, 2, -2, 3, -3]


class HeldBack(Reversed):
    """0 and 2 are ready when 21 has come, which has a place only after everything in front of it was emitted."""

    async def async_invoke(self, value: int) -> list[int]:
        self.running += 1
        Reversed.most = max(Reversed.most, self.running)
        try:
            if value in (0, 2):
                await self.gate.wait()
            elif value == 21:
                self.gate.set()
            return [value, -value]
        finally:
            self.running -= 1


def test_unordered_results_come_as_they_are_ready_and_capacity_is_kept() -> None:
    Reversed.most = 0

    def build(stream: Any) -> Any:
        return AsyncDataStream.unordered_wait(stream, HeldBack(), Time.seconds(600), 3, Types.LONG())

    results = collected(build, [0, 2, 1, *range(3, 40)])

    assert sorted(results) == sorted([*range(40), *(-n for n in range(40))])
    assert results.index(1) < results.index(2)
    assert Reversed.most == 3


class Stuck(AsyncFunction[int, int]):
    """Nothing is ever ready in the first attempt; in later ones everything is."""

    calls: ClassVar[list[int]] = []

    def open(self, runtime_context: Any) -> None:
        self.first = runtime_context.get_attempt_number() == 0

    async def async_invoke(self, value: int) -> list[int]:
        Stuck.calls.append(value)
        if self.first:
            await asyncio.Event().wait()
        return [value]


@WAITS
@pytest.mark.parametrize("kind", [Types.LONG(), None])
def test_elements_under_way_are_part_of_the_snapshot(wait: Any, kind: Any) -> None:
    Stuck.calls = []

    def build(stream: Any) -> Any:
        return wait(stream.map(lambda n: n, kind), Stuck(), 0, 100, Types.LONG())

    results = run_script(build, [1, 2, CHECKPOINT, CRASH, 3, END])

    assert sorted(results) == [1, 2, 3]
    assert Stuck.calls.count(1) == Stuck.calls.count(2) == 2


class UntilNine(AsyncFunction[int, int]):
    """Nothing is ready before a 9 has come."""

    came: ClassVar[bool] = False

    async def async_invoke(self, value: int) -> list[int]:
        UntilNine.came |= value == 9
        while not UntilNine.came:
            await asyncio.sleep(0.001)
        return [value]


@WAITS
def test_elements_under_way_move_to_other_subtasks(wait: Any) -> None:
    UntilNine.came = False

    def build(stream: Any) -> Any:
        return wait(stream.rebalance(), UntilNine(), 0, 100, Types.LONG())

    assert sorted(run_script(build, [*range(9), CHECKPOINT, RESCALE(3), 9, END])) == list(range(10))


class Wavering(AsyncFunction[int, int]):
    """Takes a random number of turns of the loop."""

    async def async_invoke(self, value: int) -> list[int]:
        for _ in range(random.randint(0, 30)):
            await asyncio.sleep(0)
        return [value]


@pytest.mark.parametrize("seed", seeds(12))
@WAITS
def test_random_crashes_lose_and_repeat_nothing(wait: Any, seed: int) -> None:
    rng = random.Random(seed)
    events: list[Any] = []
    count = 0
    for _ in range(rng.randint(5, 25)):
        kind = rng.choice("eeeeccksr")
        if kind == "e":
            events.append(count)
            count += 1
        elif kind == "k":
            events.append(CRASH_AT(rng.choice(CRASH_POINTS)))
        else:
            events.append({"c": CHECKPOINT, "s": SAVEPOINT, "r": RESCALE(rng.randint(1, 3))}[kind])

    def build(stream: Any) -> Any:
        return wait(stream, Wavering(), 0, 3, Types.LONG())

    assert sorted(run_script(build, [*events, END], parallelism=2)) == list(range(count))


def test_a_watermark_waits_for_the_elements_in_front_of_it() -> None:
    def build(stream: Any) -> Any:
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Itself())
        timed = stream.assign_timestamps_and_watermarks(strategy)
        waited = AsyncDataStream.unordered_wait(timed, Later(), 0, 100, Types.LONG())
        windows = waited.window_all(TumblingEventTimeWindows.of(Time.milliseconds(10)))
        return windows.reduce(lambda a, b: a + b)

    results = run_script(build, [*range(0, 40, 2), END])

    assert results == [sum(range(n, n + 10, 2)) for n in range(0, 40, 10)]


class Itself:
    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return value


class Silent(AsyncFunction[int, str]):
    async def async_invoke(self, value: int) -> list[str]:
        if value:
            await asyncio.Event().wait()
        return ["in time"]

    def timeout(self, value: int) -> list[str]:
        return [f"{value} took too long"]


@WAITS
def test_a_call_that_takes_too_long_is_given_up(wait: Any) -> None:
    def build(stream: Any) -> Any:
        return wait(stream, Silent(), Time.milliseconds(300), 10, Types.STRING())

    assert sorted(collected(build, [0, 7])) == ["7 took too long", "in time"]


class Flaky(AsyncFunction[int, int]):
    """Fails, and then has no result, before it has one."""

    calls: ClassVar[list[int]] = []

    async def async_invoke(self, value: int) -> list[int]:
        Flaky.calls.append(value)
        match Flaky.calls.count(value):
            case 1:
                raise ConnectionError("refused")
            case 2:
                return []
        return [value]


def test_calls_are_tried_again_as_the_strategy_says() -> None:
    Flaky.calls = []
    strategy = AsyncRetryStrategy.exponential_backoff(
        5,
        1,
        4,
        2.0,
        async_retry_predicates.empty_result_predicate,
        functools.partial(
            async_retry_predicates.exception_type_predicate, expected_error_type=ConnectionError
        ),
    )

    def build(stream: Any) -> Any:
        return AsyncDataStream.ordered_wait_with_retry(
            stream, Flaky(), Time.seconds(600), strategy, 10, Types.LONG()
        )

    assert collected(build, [1, 2, 3]) == [1, 2, 3]
    assert sorted(Flaky.calls) == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert [strategy.get_backoff_time_millis(n) for n in (1, 2, 3, 4)] == [1, 2, 4, 4]


@WAITS
def test_a_failed_call_fails_the_job_and_names_the_operator(wait: Any) -> None:
    Flaky.calls = []

    with pytest.raises(ExecutionError, match="Async Wait") as caught:
        collected(lambda stream: wait(stream, Flaky(), 0, 10, Types.LONG()), [1])

    assert isinstance(caught.value.__cause__, ConnectionError)
    once = AsyncRetryStrategy.fixed_delay(1, 1, None, async_retry_predicates.has_exception_predicate)
    assert once.can_retry(1)
    assert not once.can_retry(2)


class Paced(SourceFunction):
    """Sends its second element only after the first one's result was seen."""

    seen: ClassVar[threading.Event] = threading.Event()

    def run(self, ctx: Any) -> None:
        ctx.collect(1)
        assert Paced.seen.wait(600)
        ctx.collect(2)

    def cancel(self) -> None:
        Paced.seen.set()


class Later(AsyncFunction[int, int]):
    async def async_invoke(self, value: int) -> list[int]:
        await asyncio.sleep(0.05)
        return [value]


@WAITS
def test_results_come_out_while_no_records_come(wait: Any) -> None:
    Paced.seen.clear()
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"execution.target": "local"})
    )
    results = wait(env.add_source(Paced(), type_info=Types.LONG()), Later(), 0, 10, Types.LONG())

    with results.execute_and_collect() as found:
        assert next(found) == 1
        Paced.seen.set()
        assert list(found) == [2]


def test_what_cannot_work_is_refused_at_once() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([1])

    class NotAsync(AsyncFunction[int, int]):
        def async_invoke(self, value: int) -> list[int]:  # type: ignore[override]
            return [value]

    with pytest.raises(TypeError, match="async def"):
        AsyncDataStream.ordered_wait(stream, NotAsync(), 0)
    with pytest.raises(TypeError, match="AsyncFunction"):
        AsyncDataStream.ordered_wait(stream, Later, 0)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="capacity"):
        AsyncDataStream.unordered_wait(stream, Later(), 0, 0)
    with pytest.raises(ConfigError, match="tried again"):
        strategy = AsyncRetryStrategy.fixed_delay(1, 1, None, None)
        AsyncDataStream.unordered_wait_with_retry(stream, Later(), Time.seconds(0), strategy)
    with pytest.raises(ConfigError, match="max_attempts"):
        AsyncRetryStrategy.fixed_delay(0, 1, None, None)
    assert not AsyncRetryStrategy.no_restart().can_retry(1)
