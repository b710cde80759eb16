"""The events of Nexmark as columns, from their numbers by integer arithmetic that numpy and Java agree on.

Written from the published description of the benchmark: of every 50 events one is a new person, three are new auctions
and 46 are bids; half of the bids go to the hot auction of the moment, three quarters come from a hot bidder, half over
one of four channels; prices are spread over six powers of ten. Event time advances by one millisecond per ten events.
Kinds come from sources of their own, so that a query reads only what it needs, and fields that are texts are numbers
except in `texts`, the bids of queries that look at texts. `flink_java/src/NexmarkEvents.java` makes the same rows.

A source splits its numbers into as many ranges as there are slots; `SPLITS` ranges are read beside each other, so
event time advances in all of them alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

SPLITS = 2
CHANNELS = 10_004
"""The first four are the hot ones."""
HOT_CHANNELS = ("Apple", "Google", "Facebook", "Baidu")
EXTRAS = 1_024

_PRIME = 2_147_483_647
_FIRST = 1_000

Column = np.ndarray


def _random(event: Column, salt: int, below: int | Column) -> Column:
    mixed = (event * 48_271 + salt * 7_919) % _PRIME
    mixed = (mixed ^ mixed >> 15) * 69_621 % _PRIME
    return (mixed ^ mixed >> 13) * 48_271 % _PRIME % below


def _active_person(event: Column) -> Column:
    group = event // 50
    return group - _random(event, 1, np.minimum(group + 1, 1_000))


def persons(event: Column) -> dict[str, pa.Array | Column]:
    """New persons: id, event time, state (of six), city (of ten)."""
    return {
        "person": _FIRST + event // 50,
        "t": event // 10,
        "state": _random(event, 9, 6),
        "city": _random(event, 10, 10),
    }


def auctions(event: Column) -> dict[str, pa.Array | Column]:
    """New auctions: id, seller, category, when it closes, event time."""
    group = event // 50
    hot = group // 100 * 100
    return {
        "auction": _FIRST + group * 3 + event % 50 - 1,
        "seller": _FIRST + np.where(_random(event, 2, 4) > 0, hot, _active_person(event)),
        "category": 10 + _random(event, 3, 5),
        "expires": event // 10 + 1 + _random(event, 4, 332),
        "t": event // 10,
    }


def bids(event: Column) -> dict[str, pa.Array | Column]:
    """Bids: auction, bidder, price in cents, event time, channel."""
    group = event // 50
    last = group * 3 + 2
    some = last - _random(event, 5, np.minimum(last + 1, 100))
    scale = 10 ** _random(event, 8, 6)
    return {
        "auction": _FIRST + np.where(_random(event, 6, 2) > 0, last // 100 * 100, some),
        "bidder": _FIRST + np.where(_random(event, 7, 4) > 0, group // 100 * 100 + 1, _active_person(event)),
        "price": 100 * scale + _random(event, 11, 900 * scale),
        "t": event // 10,
        "channel": np.where(
            _random(event, 12, 2) > 0, _random(event, 13, 4), 4 + _random(event, 14, CHANNELS - 4)
        ),
    }


def channel_text(channel: int) -> str:
    """Name of a channel."""
    return HOT_CHANNELS[channel] if channel < 4 else f"channel-{channel}"


def channel_url(channel: int) -> str:
    """Where bids over a channel come from."""
    path = f"https://www.nexmark.com/d{channel % 7}/e{channel % 97}/f{channel}/item.htm?query=1"
    return path if channel < 4 else f"{path}&channel_id={channel}"


def extra_text(number: int) -> str:
    """One of the texts that bids have beside all else."""
    return "".join([chr(97 + (number * 31 + at * at * 7) % 26) for at in range(60 + number % 40)])


class Texts:
    """Bids with texts: auction, bidder, price, event time, channel, url, extra."""

    def __init__(self) -> None:
        self.channels = pa.array([channel_text(channel) for channel in range(CHANNELS)])
        self.urls = pa.array([channel_url(channel) for channel in range(CHANNELS)])
        self.extras = pa.array([extra_text(number) for number in range(EXTRAS)])

    def __call__(self, event: Column) -> dict[str, pa.Array | Column]:
        made = bids(event)
        channel = pa.array(made.pop("channel"))
        extra = pa.array(_random(event, 15, EXTRAS))
        return {
            **made,
            "channel": self.channels.take(channel),
            "url": self.urls.take(channel),
            "extra": self.extras.take(extra),
        }


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of events: how many there are in 50, and behind which others they come."""

    share: int
    behind: int
    columns: Callable[[Column], dict[str, pa.Array | Column]]

    def count(self, events: int) -> int:
        """How many of `events` events of the site are of this kind."""
        return events // 50 * self.share

    def rows(self, numbers: Column, count: int) -> pa.RecordBatch:
        """The rows of some numbers below `count`, which `SPLITS` divides."""
        each = count // SPLITS
        place = numbers % each * SPLITS + numbers // each
        event = place // self.share * 50 + self.behind + place % self.share
        return pa.record_batch(
            {
                name: column if isinstance(column, pa.Array) else pa.array(column)
                for name, column in self.columns(event).items()
            }
        )


KINDS = {
    "persons": Kind(1, 0, persons),
    "auctions": Kind(3, 1, auctions),
    "bids": Kind(46, 4, bids),
    "texts": Kind(46, 4, Texts()),
}
