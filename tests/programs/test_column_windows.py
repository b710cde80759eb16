"""Whole programs of windows aggregated by column: both execution modes, crashes, rescaling, other triggers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from tidemark import (
    Configuration,
    CountTrigger,
    EmbeddedRocksDBStateBackend,
    EventTimeSessionWindows,
    HashMapStateBackend,
    Row,
    RuntimeExecutionMode,
    SlidingEventTimeWindows,
    StreamExecutionEnvironment,
    Time,
    TumblingEventTimeWindows,
    Types,
    WatermarkStrategy,
    avg,
    count,
    field,
    max_,
    min_,
    sum_,
)
from tidemark.testing import AT, CHECKPOINT, CRASH, END, RESCALE, SAVEPOINT, WATERMARK, run_script

SALE = Types.ROW_NAMED(["shop", "cents", "at"], [Types.STRING(), Types.LONG(), Types.LONG()])
SALES = [Row(shop=f"s{at * 7 % 11}", cents=at % 13 or None, at=at * 3) for at in range(400)]


def by_hand(windows: Callable[[int], list[int]], size: int) -> list[tuple[Any, ...]]:
    held: dict[Any, list[Any]] = defaultdict(list)
    for row in SALES:
        for start in windows(row["at"]):
            held[row["shop"], start].append(row["cents"])
    found: list[tuple[Any, ...]] = []
    for (shop, start), cents in held.items():
        known = [each for each in cents if each is not None]
        results: tuple[Any, ...] = (None, None, None, None)
        if known:
            results = (sum(known), min(known), max(known), sum(known) / len(known))
        found.append((shop, start, start + size, len(cents), len(known), *results))
    return sorted(found, key=repr)


@pytest.mark.parametrize("mode", [RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH])
def test_windows_of_every_kind(mode: Any) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"execution.target": "local"})
    )
    env.set_parallelism(2)
    env.set_runtime_mode(mode)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(field("at"))
    stream = env.from_collection(SALES, SALE).assign_timestamps_and_watermarks(strategy)
    hundred, thirty = Time.milliseconds(100), Time.milliseconds(30)
    shops = stream.key_by(field("shop"), Types.STRING())
    windows = {
        "tumbling": shops.window(TumblingEventTimeWindows.of(hundred)),
        "sliding": stream.key_by(lambda row: row["shop"], Types.STRING()).window(
            SlidingEventTimeWindows.of(hundred, thirty)
        ),
        "sessions": shops.window(EventTimeSessionWindows.with_gap(Time.milliseconds(60))),
        "all": stream.window_all(TumblingEventTimeWindows.of(hundred)),
        # What waits for something else than the end of the window goes record by record.
        "early": shops.window(TumblingEventTimeWindows.of(hundred)).trigger(CountTrigger.of(3)),
    }
    named = [
        each.aggregate(
            n=count(),
            known=count("cents"),
            total=sum_("cents"),
            least=min_("cents"),
            most=max_(1),
            mean=avg("cents"),
        ).map(lambda row, name=name: (name, *row))
        for name, each in windows.items()
    ]
    with named[0].union(*named[1:]).execute_and_collect() as rows:
        found = defaultdict(list)
        for name, *row in rows:
            found[name].append(tuple(row))

    assert sorted(found["tumbling"], key=repr) == by_hand(lambda at: [at - at % 100], 100)
    assert sorted(found["sliding"], key=repr) == by_hand(
        lambda at: [start for start in range(at - at % 30, at - 100, -30) if start + 100 > at], 100
    )
    assert sorted([(row[0], row[3]) for row in found["sessions"]]) == sorted(
        [(f"s{shop}", sum(row["shop"] == f"s{shop}" for row in SALES)) for shop in range(11)]
    )
    assert sum(row[2] for row in found["all"]) == len(SALES)
    assert {row[3] for row in found["early"]} == {3}


@pytest.mark.parametrize("backend", [HashMapStateBackend, EmbeddedRocksDBStateBackend])
@pytest.mark.parametrize(
    ("assigner", "windows"),
    [
        (TumblingEventTimeWindows.of(Time.milliseconds(10)), [(0, 10), (0, 10), (10, 20)]),
        (EventTimeSessionWindows.with_gap(Time.milliseconds(5)), [(1, 8), (1, 9), (11, 18)]),
    ],
    ids=["tumbling", "sessions"],
)
def test_windows_survive_crashes_and_another_parallelism(assigner: Any, windows: Any, backend: Any) -> None:
    def build(stream: Any) -> Any:
        return (
            stream.map(lambda value: value, Types.TUPLE([Types.LONG(), Types.LONG()]))
            .key_by(field(0), Types.LONG())
            .window(assigner)
            .allowed_lateness(5)
            .aggregate(n=count(), total=sum_(1))
            .map(tuple)
        )

    def sales(at: int) -> list[Any]:
        return [AT(at, (key, at)) for key in range(6)]

    script = [
        *sales(1), CHECKPOINT, *sales(2), CRASH, *sales(3), WATERMARK(9), CHECKPOINT, *sales(4), *sales(11), SAVEPOINT,
        WATERMARK(14), CHECKPOINT, CRASH, *sales(12), CHECKPOINT, RESCALE(3), *sales(5), *sales(13), END,
    ]  # fmt: skip
    found = run_script(
        build,
        script,
        parallelism=2,
        state_backend=backend(),
        configuration=Configuration.from_dict({"state.backend.incremental": "true"}),
    )

    results = [
        (*bounds, *figures) for bounds, figures in zip(windows, [(3, 6), (4, 10), (3, 36)], strict=True)
    ]
    assert sorted(found) == sorted([(key, *result) for key in range(6) for result in results])
