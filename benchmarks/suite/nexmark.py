"""Nexmark for tidemark: a generator of auction-site events and the queries that stress state.

Written from the published description of the benchmark: of every 50 events one is a new person, three are
new auctions and 46 are bids; half of the bids go to the hot auction of the moment, three quarters come from
a hot bidder; prices are spread evenly over six powers of ten. Everything follows from the number of an event
by hashing, so frames can be made anywhere in parallel. Event time advances by one millisecond per ten events.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from jobs import environment
from measure import EpochLog

from suite.worker import Case
from tidemark import (
    AggregateFunction,
    Duration,
    EventTimeSessionWindows,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
    field,
)
from tidemark.common.watermark_strategy import TimestampAssigner
from tidemark.datastream.functions import ProcessAllWindowFunction, ProcessWindowFunction

LONG = Types.LONG()
WINDOW_MS = 10_000
SLIDE_MS = 2_000
CATEGORY = 10


def longs(count: int) -> Any:
    return Types.TUPLE([LONG] * count)


# The events, as columns computed from the event's number `id`


def _random(salt: int, below: str) -> str:
    return f"pmod(xxhash64(id, {salt}), {below})"


_GROUP = "(id DIV 50)"
_TIME = "id DIV 10 AS t"
_ACTIVE_PERSON = f"({_GROUP} - {_random(1, f'least({_GROUP} + 1, 1000)')})"
_LAST_AUCTION = f"({_GROUP} * 3 + 2)"


def persons(spark: Any, events: int, slots: int) -> Any:
    """New persons: id, event time."""
    frame = spark.range(0, events, 1, slots).where("id % 50 = 0")
    return frame.selectExpr(f"1000 + {_GROUP} AS person", _TIME)


def auctions(spark: Any, events: int, slots: int) -> Any:
    """New auctions: id, seller, category, when it closes, event time."""
    frame = spark.range(0, events, 1, slots).where("id % 50 BETWEEN 1 AND 3")
    hot = f"({_GROUP} DIV 100 * 100)"
    return frame.selectExpr(
        f"1000 + {_GROUP} * 3 + id % 50 - 1 AS auction",
        f"1000 + IF({_random(2, '4')} > 0, {hot}, {_ACTIVE_PERSON}) AS seller",
        f"10 + {_random(3, '5')} AS category",
        f"id DIV 10 + 1 + {_random(4, '332')} AS expires",
        _TIME,
    )


def bids(spark: Any, events: int, slots: int) -> Any:
    """Bids: auction, bidder, price in cents, event time."""
    frame = spark.range(0, events, 1, slots).where("id % 50 >= 4")
    hot_auction = f"({_LAST_AUCTION} DIV 100 * 100)"
    some_auction = f"({_LAST_AUCTION} - {_random(5, f'least({_LAST_AUCTION} + 1, 100)')})"
    hot_bidder = f"({_GROUP} DIV 100 * 100 + 1)"
    return frame.selectExpr(
        f"1000 + IF({_random(6, '2')} > 0, {hot_auction}, {some_auction}) AS auction",
        f"1000 + IF({_random(7, '4')} > 0, {hot_bidder}, {_ACTIVE_PERSON}) AS bidder",
        f"CAST(pow(10, {_random(8, '1000000')} / 1000000 * 6) * 100 AS LONG) AS price",
        _TIME,
    )


# Functions of the queries


class TimeAt(TimestampAssigner):
    """Event time is the field at an index."""

    def __init__(self, index: int) -> None:
        self._index = index

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value[self._index]  # type: ignore[no-any-return]


class WinningBids(KeyedCoProcessFunction):
    """q4: the highest bid of an auction that was made while it was open, once it has closed."""

    def open(self, runtime_context: Any) -> None:
        self.auction = runtime_context.get_state(ValueStateDescriptor("auction", longs(3)))
        self.bids = runtime_context.get_list_state(ListStateDescriptor("bids", longs(2)))

    def process_element1(self, value: Any, ctx: Any) -> None:
        self.auction.update((value[2], value[4], value[3]))
        ctx.timer_service().register_event_time_timer(value[3])

    def process_element2(self, value: Any, ctx: Any) -> None:
        self.bids.add((value[2], value[3]))

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[tuple[int, int]]:
        category, opened, expires = self.auction.value()
        prices = [price for price, at in self.bids.get() if opened <= at <= expires]
        self.bids.clear()
        self.auction.clear()
        if prices:
            yield category, max(prices)


class CategoryAverage(KeyedProcessFunction):
    """q4: count and sum of winning prices of a category."""

    def open(self, runtime_context: Any) -> None:
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", longs(2)))

    def process_element(self, value: Any, ctx: Any) -> Iterator[tuple[int, int, int]]:
        count, total = self.sum.value() or (0, 0)
        self.sum.update((count + 1, total + value[1]))
        yield value[0], count + 1, total + value[1]


class Count(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class Highest(AggregateFunction):
    """The element with the highest price."""

    def create_accumulator(self) -> tuple[int, int, int]:
        return -1, 0, 0

    def add(self, value: Any, accumulator: Any) -> Any:
        return max(accumulator, (value[2], value[0], value[1]))

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return max(acc_a, acc_b)


class KeyAndEnd(ProcessWindowFunction[Any, Any, Any, Any]):
    """(key, end of the window, aggregate)."""

    def process(self, key: Any, context: Any, elements: Iterable[int]) -> Iterator[tuple[int, int, int]]:
        for count in elements:
            yield key, context.window().end, count

    def clear(self, context: Any) -> None:
        """No state per window."""


class HottestItems(ProcessWindowFunction[Any, Any, Any, Any]):
    """q5: the auctions with the most bids of a window."""

    def process(self, key: int, context: Any, elements: Iterable[Any]) -> Iterator[tuple[int, int, int]]:
        held = list(elements)
        most = max(count for _, _, count in held)
        for auction, end, count in held:
            if count == most:
                yield end, auction, count

    def clear(self, context: Any) -> None:
        """No state per window."""


class PassHighest(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterator[Any]:
        yield from elements

    def clear(self, context: Any) -> None:
        """No state per window."""


class HighestOfAll(ProcessAllWindowFunction[Any, Any, Any]):
    """q7: the highest bid of a window."""

    def process(self, context: Any, elements: Iterable[Any]) -> Iterator[tuple[int, int]]:
        yield context.window().end, max(elements)[0]

    def clear(self, context: Any) -> None:
        """No state per window."""


class NewSellers(ProcessWindowFunction[Any, Any, Any, Any]):
    """q8: persons who opened an auction in the window in which they came."""

    def process(self, key: int, context: Any, elements: Iterable[Any]) -> Iterator[tuple[int, int]]:
        kinds = {kind for _, kind, _ in elements}
        if len(kinds) == 2:
            yield key, context.window().end

    def clear(self, context: Any) -> None:
        """No state per window."""


class LastBid(KeyedProcessFunction):
    """q18: the newest bid of a bidder on an auction."""

    def open(self, runtime_context: Any) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last", LONG))

    def process_element(self, value: Any, ctx: Any) -> Iterator[tuple[int, int, int]]:
        last = self.last.value()
        if last is None or value[3] >= last:
            self.last.update(value[3])
            yield value[0], value[1], value[3]


class BidsOfCategory(KeyedCoProcessFunction):
    """q20: bids on auctions of one category, with the auction's data."""

    def open(self, runtime_context: Any) -> None:
        self.auction = runtime_context.get_state(ValueStateDescriptor("auction", longs(2)))
        self.early = runtime_context.get_list_state(ListStateDescriptor("early", longs(2)))

    def process_element1(self, value: Any, ctx: Any) -> Iterator[tuple[int, int, int, int]]:
        self.auction.update((value[1], value[2]))
        if value[2] == CATEGORY:
            for bidder, price in self.early.get():
                yield value[0], bidder, price, value[1]
        self.early.clear()

    def process_element2(self, value: Any, ctx: Any) -> Iterator[tuple[int, int, int, int]]:
        auction = self.auction.value()
        if auction is None:
            self.early.add((value[1], value[2]))
        elif auction[1] == CATEGORY:
            yield value[0], value[1], value[2], auction[0]


# The queries: a stream of results, and what it must be


class Site:
    """The event streams of one job, with timestamps."""

    def __init__(self, env: Any, spark: Any, events: int, slots: int) -> None:
        self._env = env
        self.frames = {
            "persons": (persons(spark, events, slots), 1),
            "auctions": (auctions(spark, events, slots), 4),
            "bids": (bids(spark, events, slots), 3),
        }

    def stream(self, name: str) -> Any:
        frame, time_at = self.frames[name]
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(TimeAt(time_at))
        return self._env.from_spark_stream(frame).assign_timestamps_and_watermarks(strategy)

    def rows(self, name: str) -> Iterator[tuple[int, ...]]:
        table = self.frames[name][0].toArrow()
        return zip(*(column.to_pylist() for column in table.columns), strict=True)


def millis(value: int) -> Any:
    return Duration.of_millis(value)


def q4(site: Site) -> Any:
    opened = site.stream("auctions").key_by(field("auction"), LONG)
    made = site.stream("bids").key_by(field("auction"), LONG)
    won = opened.connect(made).process(WinningBids(), output_type=longs(2))
    return won.key_by(lambda pair: pair[0], LONG).process(CategoryAverage(), output_type=longs(3))


def q4_check(site: Site, found: list[Any]) -> bool:
    offers: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for auction, _bidder, price, at in site.rows("bids"):
        offers[auction].append((price, at))
    want: dict[int, tuple[int, int]] = {}
    for auction, _seller, category, expires, opened in site.rows("auctions"):
        prices = [price for price, at in offers[auction] if opened <= at <= expires]
        if prices:
            count, total = want.get(category, (0, 0))
            want[category] = (count + 1, total + max(prices))
    last = {row[0]: (row[1], row[2]) for row in sorted(found)}
    return last == want


def q5(site: Site) -> Any:
    counts = (
        site.stream("bids")
        .key_by(field("auction"), LONG)
        .window(SlidingEventTimeWindows.of(millis(WINDOW_MS), millis(SLIDE_MS)))
        .aggregate(Count(), KeyAndEnd(), accumulator_type=LONG, output_type=longs(3))
    )
    return (
        counts.key_by(lambda row: row[1], LONG)
        .window(TumblingEventTimeWindows.of(millis(SLIDE_MS)))
        .process(HottestItems(), output_type=longs(3))
    )


def q5_check(site: Site, found: list[Any]) -> bool:
    counts: dict[int, Counter[int]] = defaultdict(Counter)
    for auction, _bidder, _price, at in site.rows("bids"):
        first = at // SLIDE_MS * SLIDE_MS + SLIDE_MS
        for end in range(first, first + WINDOW_MS, SLIDE_MS):
            counts[end][auction] += 1
    want = Counter(
        (end, auction, count)
        for end, held in counts.items()
        for auction, count in held.items()
        if count == max(held.values())
    )
    return Counter(found) == want


def q7(site: Site) -> Any:
    highest = (
        site.stream("bids")
        .key_by(lambda bid: bid[1] % 16, LONG)
        .window(TumblingEventTimeWindows.of(millis(WINDOW_MS)))
        .aggregate(Highest(), PassHighest(), accumulator_type=longs(3), output_type=longs(3))
    )
    return highest.window_all(TumblingEventTimeWindows.of(millis(WINDOW_MS))).process(
        HighestOfAll(), output_type=longs(2)
    )


def q7_check(site: Site, found: list[Any]) -> bool:
    want: dict[int, int] = defaultdict(int)
    for _auction, _bidder, price, at in site.rows("bids"):
        end = at // WINDOW_MS * WINDOW_MS + WINDOW_MS
        want[end] = max(want[end], price)
    return dict(found) == want and len(found) == len(want)


def q8(site: Site) -> Any:
    came = site.stream("persons").map(lambda row: (row[0], 0, row[1]), output_type=longs(3))
    opened = site.stream("auctions").map(lambda row: (row[1], 1, row[4]), output_type=longs(3))
    return (
        came.union(opened)
        .key_by(lambda row: row[0], LONG)
        .window(TumblingEventTimeWindows.of(millis(WINDOW_MS)))
        .process(NewSellers(), output_type=longs(2))
    )


def q8_check(site: Site, found: list[Any]) -> bool:
    def window(at: int) -> int:
        return at // WINDOW_MS * WINDOW_MS + WINDOW_MS

    came = {(person, window(at)) for person, at in site.rows("persons")}
    opened = {(row[1], window(row[4])) for row in site.rows("auctions")}
    return Counter(found) == Counter(came & opened)


def q11(site: Site) -> Any:
    return (
        site.stream("bids")
        .key_by(field("bidder"), LONG)
        .window(EventTimeSessionWindows.with_gap(millis(WINDOW_MS)))
        .aggregate(Count(), KeyAndEnd(), accumulator_type=LONG, output_type=longs(3))
    )


def q11_check(site: Site, found: list[Any]) -> bool:
    times: dict[int, list[int]] = defaultdict(list)
    for _auction, bidder, _price, at in site.rows("bids"):
        times[bidder].append(at)
    want: Counter[Any] = Counter()
    for bidder, held in times.items():
        held.sort()
        count = 0
        for at, following in zip(held, [*held[1:], None], strict=True):
            count += 1
            if following is None or following > at + WINDOW_MS:
                want[bidder, at + WINDOW_MS, count] += 1
                count = 0
    return Counter(found) == want


def q12(site: Site) -> Any:
    return (
        site.stream("bids")
        .key_by(field("bidder"), LONG)
        .window(TumblingProcessingTimeWindows.of(millis(1_000)))
        .aggregate(Count(), KeyAndEnd(), accumulator_type=LONG, output_type=longs(3))
    )


def q12_check(site: Site, found: list[Any]) -> bool:
    """Windows still open when the input ends are never emitted; nothing may be counted twice."""
    made = Counter(row[1] for row in site.rows("bids"))
    counted: Counter[int] = Counter()
    for bidder, _end, count in found:
        counted[bidder] += count
    once = len({(bidder, end) for bidder, end, _count in found}) == len(found)
    return once and all(0 < count <= made[bidder] for bidder, count in counted.items())


def q18(site: Site) -> Any:
    keyed = site.stream("bids").key_by(lambda bid: (bid[0], bid[1]), longs(2))
    return keyed.process(LastBid(), output_type=longs(3))


def q18_check(site: Site, found: list[Any]) -> bool:
    def newest(rows: Iterable[tuple[int, int, int]]) -> dict[tuple[int, int], int]:
        last: dict[tuple[int, int], int] = {}
        for auction, bidder, at in rows:
            last[auction, bidder] = max(at, last.get((auction, bidder), at))
        return last

    return newest(found) == newest((row[0], row[1], row[3]) for row in site.rows("bids"))


def q20(site: Site) -> Any:
    opened = site.stream("auctions").key_by(field("auction"), LONG)
    made = site.stream("bids").key_by(field("auction"), LONG)
    return opened.connect(made).process(BidsOfCategory(), output_type=longs(4))


def q20_check(site: Site, found: list[Any]) -> bool:
    sellers = {row[0]: row[1] for row in site.rows("auctions") if row[2] == CATEGORY}
    want = Counter(
        (auction, bidder, price, sellers[auction])
        for auction, bidder, price, _at in site.rows("bids")
        if auction in sellers
    )
    return Counter(found) == want


QUERIES: dict[str, tuple[Callable[[Site], Any], Callable[[Site, list[Any]], bool]]] = {
    "q4": (q4, q4_check),
    "q5": (q5, q5_check),
    "q7": (q7, q7_check),
    "q8": (q8, q8_check),
    "q11": (q11, q11_check),
    "q12": (q12, q12_check),
    "q18": (q18, q18_check),
    "q20": (q20, q20_check),
}


def measure(case: Case, spark: Any, log: EpochLog, folder: Path) -> dict[str, Any]:
    """One query over `records` events: a tenth of them to warm up, then all of them."""
    query, check = QUERIES[case.state.split("-")[1]]
    result: dict[str, Any] = {}
    for events in (max(case.records // 10, 5_000), case.records):
        env = environment(case.backend, case.slots)
        site = Site(env, spark, events, case.slots)
        found: list[Any] = []

        def take(frame: Any, _epoch: int, found: list[Any] = found) -> None:
            found.extend(zip(*(column.to_pylist() for column in frame.toArrow().columns), strict=True))

        query(site).foreach_batch(take)
        job = str(env.execute(case.state).get_job_id())
        # All epochs: what fires when the input has ended is part of a query's work.
        seconds = sum(epoch.seconds for epoch in log.of(job))
        result = {
            # As the benchmark counts: all events of the site, also kinds that a query leaves out right away.
            "rate": events / seconds,
            "rate_per_core": events / seconds / case.slots,
            "read": sum(epoch.records for epoch in log.of(job)),
            "steady_s": seconds,
            "startup_s": log.attempts_of(job)[0].seconds,
            "results": len(found),
            "correct": check(site, found),
        }
        if not result["correct"]:
            break
    return result
