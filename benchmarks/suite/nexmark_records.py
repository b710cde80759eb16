"""Queries of Nexmark with functions of single records: those of `nexmark.py`, and others that need no outside system.

Queries take a `Site` (`nexmark_site.py`) and give a stream of tuples, the same that `nexmark_sql.py` gives.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from suite import nexmark
from suite.nexmark import LONG, longs
from tidemark import (
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    Types,
    ValueStateDescriptor,
    field,
)

STRING = Types.STRING()
DAY_MS = 86_400_000
TOP = 10
_CHANNEL_ID = re.compile("(?:&|^)channel_id=([^&]*)")
_HOT = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}


def rank_of(price: int) -> int:
    """Which of three ranks of prices."""
    return 0 if price < 10_000 else 1 if price < 1_000_000 else 2


class LocalItems(KeyedCoProcessFunction):
    """q3: auctions of one category by persons of some states."""

    def open(self, runtime_context: Any) -> None:
        self.person = runtime_context.get_state(ValueStateDescriptor("person", longs(2)))
        self.early = runtime_context.get_list_state(ListStateDescriptor("early", LONG))

    def process_element1(self, value: Any, ctx: Any) -> Iterator[tuple[int, int, int, int]]:
        self.person.update((value[3], value[2]))
        if value[2] < 3:
            for auction in self.early.get():
                yield value[0], value[3], value[2], auction
        self.early.clear()

    def process_element2(self, value: Any, ctx: Any) -> Iterator[tuple[int, int, int, int]]:
        person = self.person.value()
        if person is None:
            self.early.add(value[0])
        elif person[1] < 3:
            yield value[1], *person, value[0]


class BestBid(KeyedCoProcessFunction):
    """q9: the highest bid of an auction that was made while it was open, once it has closed."""

    def open(self, runtime_context: Any) -> None:
        self.auction = runtime_context.get_state(ValueStateDescriptor("auction", longs(2)))
        self.best = runtime_context.get_state(ValueStateDescriptor("best", longs(3)))
        self.early = runtime_context.get_list_state(ListStateDescriptor("early", longs(3)))

    def process_element1(self, value: Any, ctx: Any) -> None:
        self.auction.update((value[4], value[3]))
        ctx.timer_service().register_event_time_timer(value[3])
        offers = [bid for bid in self.early.get() if value[4] <= bid[1] <= value[3]]
        self.early.clear()
        if offers:
            self.best.update(min(offers))

    def process_element2(self, value: Any, ctx: Any) -> None:
        auction = self.auction.value()
        bid = (-value[2], value[3], value[1])
        if auction is None:
            self.early.add(bid)
        elif auction[0] <= value[3] <= auction[1]:
            best = self.best.value()
            if best is None or bid < best:
                self.best.update(bid)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[tuple[int, int, int, int]]:
        best = self.best.value()
        if best is not None:
            self.best.clear()
            yield ctx.get_current_key(), best[2], -best[0], best[1]


class BidStatistics(KeyedProcessFunction):
    """q15, q16: bids, bidders and auctions, each in all and by rank of the price."""

    def open(self, runtime_context: Any) -> None:
        self.counts = runtime_context.get_state(ValueStateDescriptor("counts", longs(12)))
        self.seen = [
            runtime_context.get_map_state(MapStateDescriptor(name, LONG, LONG))
            for name in ("bidders", "auctions")
        ]

    def process_element(self, value: Any, ctx: Any) -> Iterator[tuple[int, ...]]:
        counts = list(self.counts.value() or [0] * 12)
        rank = rank_of(value[2])
        counts[0] += 1
        counts[1 + rank] += 1
        for base, seen, item in ((4, self.seen[0], value[1]), (8, self.seen[1], value[0])):
            ranks = seen.get(item) or 0
            if not ranks >> rank & 1:
                seen.put(item, ranks | 1 << rank)
                counts[base] += not ranks
                counts[base + 1 + rank] += 1
        self.counts.update(tuple(counts))
        yield ctx.get_current_key()[0], *counts


class AuctionStatistics(KeyedProcessFunction):
    """q17: bids of an auction in all and by rank, smallest, highest and all prices."""

    def open(self, runtime_context: Any) -> None:
        self.held = runtime_context.get_state(ValueStateDescriptor("held", longs(7)))

    def process_element(self, value: Any, ctx: Any) -> Iterator[tuple[int, ...]]:
        price = value[2]
        n, low, middle, high, least, most, total = self.held.value() or (0, 0, 0, 0, price, price, 0)
        rank = rank_of(price)
        held = (
            n + 1,
            low + (rank == 0),
            middle + (rank == 1),
            high + (rank == 2),
            min(least, price),
            max(most, price),
            total + price,
        )
        self.held.update(held)
        yield value[0], *held


class TopBids(KeyedProcessFunction):
    """q19: bids that are among the ten highest of their auction when they are made."""

    def open(self, runtime_context: Any) -> None:
        self.top = runtime_context.get_list_state(ListStateDescriptor("top", LONG))

    def process_element(self, value: Any, ctx: Any) -> Iterator[tuple[int, int]]:
        top = list(self.top.get())
        if len(top) < TOP or value[2] > top[0]:
            top = sorted([*top, value[2]])[-TOP:]
            self.top.update(top)
            yield value[0], value[2]


def _channel_id(bid: Any) -> Iterator[tuple[Any, ...]]:
    number = _HOT.get(bid[4].lower())
    if number is None:
        found = _CHANNEL_ID.search(bid[5])
        if found is None:
            return
        number = found[1]
    yield bid[0], bid[1], bid[2], bid[4], number


def _directories(bid: Any) -> tuple[Any, ...]:
    parts = bid[5].split("/")
    return bid[0], bid[1], bid[2], bid[4], parts[3], parts[4], parts[5]


def _time_type(at: int) -> str:
    hour = at // 3_600_000
    return "dayTime" if 8 <= hour <= 18 else "nightTime" if hour <= 6 or hour >= 20 else "otherTime"


def _calculated(bid: Any) -> tuple[Any, ...]:
    return (
        bid[0],
        bid[1],
        bid[2] * 908 // 1000,
        _time_type(bid[3]),
        bid[3],
        bid[6],
        bid[6].count("c"),
    )


def q0(site: Any) -> Any:
    return site.stream("bids").map(lambda bid: (bid[0], bid[1], bid[2], bid[3], bid[4]), longs(5))


def q1(site: Any) -> Any:
    return site.stream("bids").map(
        lambda bid: (bid[0], bid[1], bid[2] * 908 // 1000, bid[3], bid[4]), longs(5)
    )


def q2(site: Any) -> Any:
    chosen = site.stream("bids").filter(lambda bid: bid[0] % 123 == 0)
    return chosen.map(lambda bid: (bid[0], bid[2]), longs(2))


def q3(site: Any) -> Any:
    came = site.stream("persons").key_by(field("person"), LONG)
    opened = site.stream("auctions").filter(lambda row: row[2] == 10).key_by(field("seller"), LONG)
    return came.connect(opened).process(LocalItems(), output_type=longs(4))


def q9(site: Any) -> Any:
    opened = site.stream("auctions").key_by(field("auction"), LONG)
    made = site.stream("bids").key_by(field("auction"), LONG)
    return opened.connect(made).process(BestBid(), output_type=longs(4))


def q14(site: Any) -> Any:
    kinds = Types.TUPLE([LONG, LONG, LONG, STRING, LONG, STRING, LONG])
    chosen = site.stream("texts").filter(lambda bid: 1_000_000 < bid[2] * 908 // 1000 < 50_000_000)
    return chosen.map(_calculated, kinds)


def q15(site: Any) -> Any:
    by_day = site.stream("bids").key_by(lambda bid: (bid[3] // DAY_MS, 0), longs(2))
    return by_day.process(BidStatistics(), output_type=longs(13))


def q16(site: Any) -> Any:
    by_channel = site.stream("bids").key_by(lambda bid: (bid[4], bid[3] // DAY_MS), longs(2))
    return by_channel.process(BidStatistics(), output_type=longs(13))


def q17(site: Any) -> Any:
    by_auction = site.stream("bids").key_by(lambda bid: (bid[0], bid[3] // DAY_MS), longs(2))
    return by_auction.process(AuctionStatistics(), output_type=longs(8))


def q19(site: Any) -> Any:
    return site.stream("bids").key_by(field("auction"), LONG).process(TopBids(), output_type=longs(2))


def q21(site: Any) -> Any:
    kinds = Types.TUPLE([LONG, LONG, LONG, STRING, STRING])
    return site.stream("texts").flat_map(_channel_id, kinds)


def q22(site: Any) -> Any:
    return site.stream("texts").map(_directories, Types.TUPLE([LONG] * 3 + [STRING] * 4))


QUERIES: dict[str, Callable[[Any], Any]] = {
    **{name: query for name, (query, _check) in nexmark.QUERIES.items()},
    **{query.__name__: query for query in (q0, q1, q2, q3, q9, q14, q15, q16, q17, q19, q21, q22)},
}
