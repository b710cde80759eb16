"""Queries of Nexmark by column: expressions, batch functions and windows of built-in aggregations, from source to sink.

The same results as `nexmark_records.py`. Two inputs are one stream of rows of a common form, of which the second column
says what a row is. q19 is missing: who is among the first ten at each row is not a matter of arrays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from suite.nexmark import CATEGORY, LONG, SLIDE_MS, WINDOW_MS, longs, millis
from suite.nexmark_records import DAY_MS, STRING
from tidemark import (
    BatchProcessFunction,
    EventTimeSessionWindows,
    ListStateDescriptor,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    Types,
    ValueStateDescriptor,
    count,
    field,
    max_,
    min_,
)

Numbers = np.ndarray
BITS = 32
"""Two numbers are one key: the first is shifted by so many bits."""


def named(*names: str, texts: tuple[str, ...] = ()) -> Any:
    """A row of longs, and of texts behind them."""
    return Types.ROW_NAMED([*names, *texts], [LONG] * len(names) + [STRING] * len(texts))


def numbers(batch: pa.RecordBatch) -> list[Numbers]:
    """The columns, as numpy arrays that may be written to."""
    return [column.to_numpy(zero_copy_only=False) for column in batch.columns]


def row_batch(*columns: Any) -> dict[str, Any]:
    """Rows that are tuples."""
    return {f"f{at}": column for at, column in enumerate(columns)}


class Early:
    """Rows that wait for a row of their key, in list state; there are few of them."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def keep(self, keys: Any, codes: Numbers, rows: list[tuple[int, ...]]) -> None:
        """Rows of the keys with these codes."""
        if not rows:
            return
        kept: dict[int, list[tuple[int, ...]]] = defaultdict(list)
        for code, row in zip(codes.tolist(), rows, strict=True):
            kept[code].append(row)
        chosen = sorted(kept)
        some = keys[np.array(chosen)]
        held = self._lists(some)
        self._state.write(some, [[*before, *kept[code]] for before, code in zip(held, chosen, strict=True)])

    def taken(self, keys: Any, chosen: Numbers) -> tuple[Numbers, list[tuple[int, ...]]]:
        """Codes and rows of all that waits for the keys at these places, which waits no longer."""
        some = keys[chosen]
        held = self._lists(some)
        if not any(held):
            return np.empty(0, np.int64), []
        self._state.clear(some)
        codes = np.repeat(chosen, [len(rows) for rows in held])
        return codes, [row for rows in held for row in rows]

    def _lists(self, keys: Any) -> list[list[tuple[int, ...]]]:
        return [
            [tuple(row.values()) if isinstance(row, dict) else row for row in rows]
            for rows in self._state.read(keys).to_pylist()
        ]


class Join(BatchProcessFunction):
    """Rows of kind 1 with the row of kind 0 of their key: (key, a, b) and (a, b) of that one."""

    def open(self, runtime_context: Any) -> None:
        self.one = runtime_context.get_state(ValueStateDescriptor("one", longs(2)))
        self.early = Early(runtime_context.get_list_state(ListStateDescriptor("early", longs(2))))

    def process_batch(self, batch: pa.RecordBatch, keys: Any, ctx: Any) -> Any:
        key, kind, a, b = numbers(batch)
        (one_a, one_b), known = self.one.read(keys, with_mask=True)
        one_a, one_b, codes = one_a.copy(), one_b.copy(), keys.codes
        ones = np.flatnonzero(kind == 0)
        waited, rows = np.empty(0, np.int64), []
        if len(ones):
            fresh = codes[ones]
            one_a[fresh], one_b[fresh] = a[ones], b[ones]
            self.one.write(keys[fresh], (a[ones], b[ones]))
            known = known.copy()
            known[fresh] = True
            waited, rows = self.early.taken(keys, fresh)
        many = kind == 1
        late = np.flatnonzero(many & ~known[codes])
        self.early.keep(keys, codes[late], list(zip(a[late].tolist(), b[late].tolist(), strict=True)))
        joined = np.flatnonzero(many & known[codes])
        whose = codes[joined]
        if rows:
            early = np.array(rows)
            distinct = keys.distinct.to_numpy()
            key = np.concatenate([key[joined], distinct[waited]])
            a, b = (np.concatenate([x[joined], y]) for x, y in ((a, early[:, 0]), (b, early[:, 1])))
            whose = np.concatenate([whose, waited])
        else:
            key, a, b = key[joined], a[joined], b[joined]
        return row_batch(key, a, b, one_a[whose], one_b[whose])


class Winning(BatchProcessFunction):
    """q4, q9: the best bid of an auction that was made while it was open, once it has closed.

    Rows are (auction, 0, category, opened, closes) and (auction, 1, bidder, price, at).
    """

    def open(self, runtime_context: Any) -> None:
        self.auction = runtime_context.get_state(ValueStateDescriptor("auction", longs(3)))
        self.best = runtime_context.get_state(ValueStateDescriptor("best", longs(3)))
        self.early = Early(runtime_context.get_list_state(ListStateDescriptor("early", longs(3))))

    def process_batch(self, batch: pa.RecordBatch, keys: Any, ctx: Any) -> None:
        _key, kind, a, b, c = numbers(batch)
        (_category, opened, closes), known = self.auction.read(keys, with_mask=True)
        opened, closes, known, codes = opened.copy(), closes.copy(), known.copy(), keys.codes
        ones = np.flatnonzero(kind == 0)
        early, rows = np.empty(0, np.int64), []
        if len(ones):
            fresh = codes[ones]
            opened[fresh], closes[fresh], known[fresh] = b[ones], c[ones], True
            self.auction.write(keys[fresh], (a[ones], b[ones], c[ones]))
            ctx.register_event_time_timers(keys[fresh], c[ones])
            early, rows = self.early.taken(keys, fresh)
        bids = kind == 1
        late = np.flatnonzero(bids & ~known[codes])
        self.early.keep(keys, codes[late], list(zip(*[x[late].tolist() for x in (a, b, c)], strict=True)))
        made = np.flatnonzero(bids & known[codes])
        code, bidder, price, at = codes[made], a[made], b[made], c[made]
        if rows:
            more = np.array(rows)
            code = np.concatenate([code, early])
            bidder, price, at = (
                np.concatenate([x, more[:, place]]) for place, x in enumerate((bidder, price, at))
            )
        valid = (opened[code] <= at) & (at <= closes[code])
        self._offer(keys, code[valid], -price[valid], at[valid], bidder[valid])

    def _offer(self, keys: Any, code: Numbers, *bid: Numbers) -> None:
        """Keep the smallest of (-price, at, bidder) of each key."""
        chosen = np.unique(code)
        if not len(chosen):
            return
        held, present = self.best.read(keys[chosen], with_mask=True)
        code = np.concatenate([code, chosen[present]])
        parts = [np.concatenate([new, old[present]]) for new, old in zip(bid, held, strict=True)]
        order = np.lexsort((parts[2], parts[1], parts[0], code))
        _, first = np.unique(code[order], return_index=True)
        best = order[first]
        self.best.write(keys[chosen], tuple(part[best] for part in parts))

    def on_timers(self, keys: Any, timestamps: Numbers, ctx: Any) -> Any:
        best, present = self.best.read(keys, with_mask=True)
        category = self.auction.read(keys)[0]
        some = keys[present]
        self.best.clear(some)
        price, at, bidder = (part[present] for part in best)
        return row_batch(some.distinct, bidder, -price, at, category[present])


class Totals(BatchProcessFunction):
    """Running count and sum of the second column."""

    def open(self, runtime_context: Any) -> None:
        self.held = runtime_context.get_state(ValueStateDescriptor("held", longs(2)))

    def process_batch(self, batch: pa.RecordBatch, keys: Any, ctx: Any) -> Any:
        n, total = self.held.read(keys)
        counts, sums = keys.running_count(n), keys.running_sum(batch.column(1), total)
        self.held.write(keys, (keys.last(counts), keys.last(sums)))
        return row_batch(batch.column(0), counts, sums)


class Hottest(BatchProcessFunction):
    """q5: of the counts of a window those that are the highest, once all are there."""

    def open(self, runtime_context: Any) -> None:
        self.most = runtime_context.get_state(ValueStateDescriptor("most", LONG))
        self.auctions = runtime_context.get_list_state(ListStateDescriptor("auctions", LONG))

    def process_batch(self, batch: pa.RecordBatch, keys: Any, ctx: Any) -> None:
        auction, _start, _end, n = numbers(batch)
        before = self.most.read(keys)
        most = keys.max(n, before)
        self.most.write(keys, most)
        lists = [
            held if same else []
            for held, same in zip(self.auctions.read(keys).to_pylist(), before == most, strict=True)
        ]
        for row in np.flatnonzero(n == most[keys.codes]).tolist():
            lists[keys.codes[row]].append(int(auction[row]))
        self.auctions.write(keys, lists)
        ctx.register_event_time_timers(keys, keys.distinct.to_numpy() - 1)

    def on_timers(self, keys: Any, timestamps: Numbers, ctx: Any) -> Any:
        lists, most = self.auctions.read(keys), self.most.read(keys)
        whose = pc.list_parent_indices(lists).to_numpy()
        self.auctions.clear(keys)
        self.most.clear(keys)
        return row_batch(keys.distinct.to_numpy()[whose], lists.flatten(), most[whose])


class FirstSeen(BatchProcessFunction):
    """q15, q16: marks rows that are the first of their key (bit 0), and the first of a rank of it (bits 1 to 3).

    Columns but the key go through; `rank` is the last of them, marks come in front of it.
    """

    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", LONG))

    def process_batch(self, batch: pa.RecordBatch, keys: Any, ctx: Any) -> Any:
        rank = batch.column(batch.num_columns - 1).to_numpy()
        seen = self.seen.read(keys)
        codes = keys.codes
        self.seen.write(keys, keys.last(keys.running(np.bitwise_or, 1 << rank, seen)))
        marks = ((keys.cumcount() == 0) & (seen[codes] == 0)).astype(np.int64)
        _, first = np.unique(codes * 3 + rank, return_index=True)
        new = first[(seen[codes[first]] >> rank[first] & 1) == 0]
        marks[new] |= 2 << rank[new]
        columns = [*batch.columns[1:-1], pa.array(marks), batch.column(batch.num_columns - 1)]
        return row_batch(*columns)


class Statistics(BatchProcessFunction):
    """q15, q16: rows (group, marks of bidders, marks of auctions, rank), added up twelve ways."""

    def open(self, runtime_context: Any) -> None:
        self.counts = runtime_context.get_state(ValueStateDescriptor("counts", longs(12)))

    def process_batch(self, batch: pa.RecordBatch, keys: Any, ctx: Any) -> Any:
        group, bidders, auctions, rank = numbers(batch)
        held = self.counts.read(keys)
        all_rows = 1 | 2 << rank
        sums = [
            keys.running_sum(marks >> bit & 1, held[at * 4 + bit])
            for at, marks in enumerate((all_rows, bidders, auctions))
            for bit in range(4)
        ]
        self.counts.write(keys, tuple(keys.last(each) for each in sums))
        return row_batch(group, *sums)


class AuctionStatistics(BatchProcessFunction):
    """q17: bids of an auction in all and by rank, smallest, highest and all prices."""

    def open(self, runtime_context: Any) -> None:
        self.held = runtime_context.get_state(ValueStateDescriptor("held", longs(7)))

    def process_batch(self, batch: pa.RecordBatch, keys: Any, ctx: Any) -> Any:
        price = batch["price"].to_numpy()
        (n, low, middle, high, least, most, total), known = self.held.read(keys, with_mask=True)
        rank = ranks(price)
        running = [
            keys.running_count(n),
            *[keys.running_sum(rank == at, start) for at, start in enumerate((low, middle, high))],
            keys.running_min(price, np.where(known, least, np.iinfo(np.int64).max)),
            keys.running_max(price, most),
            keys.running_sum(price, total),
        ]
        self.held.write(keys, tuple(keys.last(each) for each in running))
        return row_batch(batch["auction"], *running)


class LastBid(BatchProcessFunction):
    """q18: rows (pair, at) that are the newest of their pair when they come, as (auction, bidder, at)."""

    def open(self, runtime_context: Any) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last", LONG))

    def process_batch(self, batch: pa.RecordBatch, keys: Any, ctx: Any) -> Any:
        pair, at = numbers(batch)
        newest = keys.running_max(at, self.last.read(keys, default=-1))
        self.last.write(keys, keys.last(newest))
        chosen = at == newest
        pair = pair[chosen]
        return row_batch(pair >> BITS, pair & (1 << BITS) - 1, at[chosen])


# Expressions and callables without state


def ranks(price: Numbers) -> Numbers:
    return (price >= 10_000).astype(np.int64) + (price >= 1_000_000)


def _parts(group: Callable[[pa.RecordBatch], Numbers]) -> Callable[[pa.RecordBatch], dict[str, Any]]:
    """Rows (group and bidder, group and auction, group, rank), of which the first two are keys."""

    def of(batch: pa.RecordBatch) -> dict[str, Any]:
        whose = group(batch)
        return row_batch(
            whose << BITS | batch["bidder"].to_numpy(),
            whose << BITS | batch["auction"].to_numpy(),
            whose,
            ranks(batch["price"].to_numpy()),
        )

    return of


def _channel_ids(batch: pa.RecordBatch) -> dict[str, Any]:
    lower = pc.utf8_lower(batch["channel"])
    hot = pc.index_in(lower, pa.array(["apple", "google", "facebook", "baidu"]))
    found = pc.extract_regex(batch["url"], "(?:&|^)channel_id=(?P<id>[^&]*)")
    number = pc.coalesce(hot.cast(pa.string()), pc.struct_field(found, "id"))
    kept = pc.is_valid(number)
    columns = [batch["auction"], batch["bidder"], batch["price"], batch["channel"], number]
    return row_batch(*[pc.filter(column, kept) for column in columns])


def _directories(batch: pa.RecordBatch) -> dict[str, Any]:
    parts = pc.split_pattern(batch["url"], "/")
    columns = [batch[name] for name in ("auction", "bidder", "price", "channel")]
    return row_batch(*columns, *[pc.list_element(parts, at) for at in (3, 4, 5)])


def _calculated(batch: pa.RecordBatch) -> dict[str, Any]:
    hour = batch["t"].to_numpy() // 3_600_000
    day, night = (hour >= 8) & (hour <= 18), (hour <= 6) | (hour >= 20)
    kind = np.where(day, 0, np.where(night, 1, 2))
    return row_batch(
        batch["auction"],
        batch["bidder"],
        batch["price"].to_numpy() * 908 // 1000,
        pa.array(["dayTime", "nightTime", "otherTime"]).take(pa.array(kind)),
        batch["t"],
        batch["extra"],
        pc.count_substring(batch["extra"], "c").cast(pa.int64()),
    )


def chosen(stream: Any, *names: str) -> Any:
    """Some fields, as tuples."""
    return stream.map_batch(
        {f"f{at}": pc.field(name) for at, name in enumerate(names)}, output_type=longs(len(names))
    )


def constant(value: int) -> Any:
    return pc.scalar(pa.scalar(value, pa.int64()))


# The queries


def q0(site: Any) -> Any:
    return chosen(site.stream("bids"), "auction", "bidder", "price", "t", "channel")


def q1(site: Any) -> Any:
    fields = ["auction", "bidder", "price", "t", "channel"]
    columns = {f"f{at}": pc.field(name) for at, name in enumerate(fields)}
    columns["f2"] = pc.divide(pc.field("price") * 908, 1000)
    return site.stream("bids").map_batch(columns, output_type=longs(5))


def q2(site: Any) -> Any:
    some = site.stream("bids").filter_batch(lambda batch: batch["auction"].to_numpy() % 123 == 0)
    return chosen(some, "auction", "price")


def q3(site: Any) -> Any:
    form = named("key", "kind", "a", "b")
    came = site.stream("persons").map_batch(
        {"key": pc.field("person"), "kind": constant(0), "a": pc.field("city"), "b": pc.field("state")}, form
    )
    opened = site.stream("auctions").filter_batch(pc.field("category") == CATEGORY)
    opened = opened.map_batch(
        {"key": pc.field("seller"), "kind": constant(1), "a": pc.field("auction"), "b": constant(0)}, form
    )
    joined = came.union(opened).key_by(field("key"), LONG).process_batch(Join(), longs(5))
    return chosen(joined.filter_batch(pc.field("f4") < 3), "f0", "f3", "f4", "f1")


def winning(site: Any) -> Any:
    form = named("auction", "kind", "a", "b", "c")
    opened = site.stream("auctions").map_batch(
        {
            "auction": pc.field("auction"),
            "kind": constant(0),
            "a": pc.field("category"),
            "b": pc.field("t"),
            "c": pc.field("expires"),
        },
        form,
    )
    made = site.stream("bids").map_batch(
        {
            "auction": pc.field("auction"),
            "kind": constant(1),
            "a": pc.field("bidder"),
            "b": pc.field("price"),
            "c": pc.field("t"),
        },
        form,
    )
    return opened.union(made).key_by(field("auction"), LONG).process_batch(Winning(), longs(5))


def q4(site: Any) -> Any:
    won = chosen(winning(site), "f4", "f2")
    return won.key_by(field(0), LONG).process_batch(Totals(), longs(3))


def q5(site: Any) -> Any:
    counts = (
        site.stream("bids")
        .key_by(field("auction"), LONG)
        .window(SlidingEventTimeWindows.of(millis(WINDOW_MS), millis(SLIDE_MS)))
        .aggregate(n=count())
    )
    return counts.key_by(field("window_end"), LONG).process_batch(Hottest(), longs(3))


def q7(site: Any) -> Any:
    tumbling = TumblingEventTimeWindows.of(millis(WINDOW_MS))
    parts = site.stream("bids").map_batch(
        lambda batch: {"part": batch["bidder"].to_numpy() % 16, "price": batch["price"]},
        named("part", "price"),
    )
    highest = parts.key_by(field("part"), LONG).window(tumbling).aggregate(most=max_("price"))
    return chosen(highest.window_all(tumbling).aggregate(most=max_("most")), "window_end", "most")


def q8(site: Any) -> Any:
    form = named("person", "kind")
    came = site.stream("persons").map_batch({"person": pc.field("person"), "kind": constant(0)}, form)
    opened = site.stream("auctions").map_batch({"person": pc.field("seller"), "kind": constant(1)}, form)
    kinds = (
        came.union(opened)
        .key_by(field("person"), LONG)
        .window(TumblingEventTimeWindows.of(millis(WINDOW_MS)))
        .aggregate(low=min_("kind"), high=max_("kind"))
    )
    return chosen(kinds.filter_batch(pc.field("low") < pc.field("high")), "person", "window_end")


def q9(site: Any) -> Any:
    return chosen(winning(site), "f0", "f1", "f2", "f3")


def q11(site: Any) -> Any:
    sessions = (
        site.stream("bids")
        .key_by(field("bidder"), LONG)
        .window(EventTimeSessionWindows.with_gap(millis(WINDOW_MS)))
        .aggregate(n=count())
    )
    return chosen(sessions, "bidder", "window_end", "n")


def q12(site: Any) -> Any:
    windows = (
        site.stream("bids")
        .key_by(field("bidder"), LONG)
        .window(TumblingProcessingTimeWindows.of(millis(1_000)))
        .aggregate(n=count())
    )
    return chosen(windows, "bidder", "window_end", "n")


def q14(site: Any) -> Any:
    dollars = pc.divide(pc.field("price") * 908, 1000)
    some = site.stream("texts").filter_batch((dollars > 1_000_000) & (dollars < 50_000_000))
    kinds = Types.TUPLE([LONG, LONG, LONG, STRING, LONG, STRING, LONG])
    return some.map_batch(_calculated, kinds)


def statistics(site: Any, group: Callable[[pa.RecordBatch], Numbers]) -> Any:
    parts = site.stream("bids").map_batch(_parts(group), longs(4))
    bidders = parts.key_by(field(0), LONG).process_batch(FirstSeen(), longs(4))
    marked = bidders.key_by(field(0), LONG).process_batch(FirstSeen(), longs(4))
    return marked.key_by(field(0), LONG).process_batch(Statistics(), longs(13))


def q15(site: Any) -> Any:
    return statistics(site, lambda batch: batch["t"].to_numpy() // DAY_MS)


def q16(site: Any) -> Any:
    """The events are of one day: channel and day are one as long as that is so."""
    return statistics(site, lambda batch: batch["channel"].to_numpy())


def q17(site: Any) -> Any:
    return site.stream("bids").key_by(field("auction"), LONG).process_batch(AuctionStatistics(), longs(8))


def q18(site: Any) -> Any:
    pairs = site.stream("bids").map_batch(
        lambda batch: row_batch(batch["auction"].to_numpy() << BITS | batch["bidder"].to_numpy(), batch["t"]),
        longs(2),
    )
    return pairs.key_by(field(0), LONG).process_batch(LastBid(), longs(3))


def q20(site: Any) -> Any:
    form = named("key", "kind", "a", "b")
    opened = site.stream("auctions").map_batch(
        {"key": pc.field("auction"), "kind": constant(0), "a": pc.field("seller"), "b": pc.field("category")},
        form,
    )
    made = site.stream("bids").map_batch(
        {"key": pc.field("auction"), "kind": constant(1), "a": pc.field("bidder"), "b": pc.field("price")},
        form,
    )
    joined = opened.union(made).key_by(field("key"), LONG).process_batch(Join(), longs(5))
    return chosen(joined.filter_batch(pc.field("f4") == CATEGORY), "f0", "f1", "f2", "f3")


def q21(site: Any) -> Any:
    return site.stream("texts").map_batch(_channel_ids, Types.TUPLE([LONG] * 3 + [STRING] * 2))


def q22(site: Any) -> Any:
    return site.stream("texts").map_batch(_directories, Types.TUPLE([LONG] * 3 + [STRING] * 4))


QUERIES: dict[str, Callable[[Any], Any]] = {
    query.__name__: query
    for query in (
        *(q0, q1, q2, q3, q4, q5, q7, q8, q9, q11, q12),
        *(q14, q15, q16, q17, q18, q20, q21, q22),
    )
}
