"""Which records and open sessions are one session: groups of intervals that overlap or touch, all keys at once.

Pure arithmetic over numpy columns; what is kept of sessions is in `open_sessions`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tidemark.state.grouping import row_order

__all__ = ["SessionGroups", "grouped", "in_turns"]

Numbers = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class SessionGroups:
    """The sessions that records belong to.

    Attributes:
        codes: Whose each group is: a position among the distinct keys.
        starts: Of the groups.
        ends: Of the groups.
        of_row: The group of each record.
        of_held: The group of each open session; -1 where it meets no record.
    """

    codes: Numbers
    starts: Numbers
    ends: Numbers
    of_row: Numbers
    of_held: Numbers


def grouped(
    codes: Numbers, stamps: Numbers, gap: int, held_codes: Numbers, held_starts: Numbers, held_ends: Numbers
) -> SessionGroups:
    """Put records, each a session from its time to the end of the gap, and open sessions into groups.

    Args:
        codes: Of the keys of the records.
        stamps: Times of the records.
        gap: In milliseconds.
        held_codes: Of the keys of the open sessions.
        held_starts: Of the open sessions, of which no two of a key overlap or touch.
        held_ends: Of the open sessions.
    """
    runs, run_codes, starts, ends = _runs(codes, stamps, gap)
    if not len(held_codes):
        return SessionGroups(run_codes, starts, ends, runs, np.zeros(0, np.int64))
    all_codes = np.concatenate([held_codes, run_codes])
    all_starts, all_ends = np.concatenate([held_starts, starts]), np.concatenate([held_ends, ends])
    order = np.lexsort((all_starts, all_codes))
    sorted_codes, sorted_starts = all_codes[order], all_starts[order]
    reach = _furthest(sorted_codes, all_ends[order])
    heads = _heads(sorted_codes, sorted_starts, reach)
    found = np.empty(len(order), np.int64)
    found[order] = np.cumsum(heads) - 1
    first = np.flatnonzero(heads)
    last = np.append(first[1:], len(order)) - 1
    # Groups without a record are as they were.
    met = np.zeros(len(first), np.bool_)
    met[found[len(held_codes) :]] = True
    number = np.where(met, np.cumsum(met) - 1, -1)
    found = number[found]
    return SessionGroups(
        sorted_codes[first][met],
        sorted_starts[first][met],
        reach[last][met],
        found[len(held_codes) :][runs],
        found[: len(held_codes)],
    )


def _runs(codes: Numbers, stamps: Numbers, gap: int) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Groups of records alone: that of each record; code, start and end of each group."""
    groups = int(codes.max()) + 1 if len(codes) else 0
    if (stamps[1:] >= stamps[:-1]).all():
        order = row_order(codes, groups)
    else:
        by_time = np.argsort(stamps, kind="stable")
        order = by_time[row_order(codes[by_time], groups)]
    sorted_codes, sorted_stamps = codes[order], stamps[order]
    heads = _heads(sorted_codes, sorted_stamps, sorted_stamps + gap)
    runs = np.empty(len(order), np.int64)
    runs[order] = np.cumsum(heads) - 1
    first = np.flatnonzero(heads)
    last = np.append(first[1:], len(order)) - 1
    return runs, sorted_codes[first], sorted_stamps[first], sorted_stamps[last] + gap


def _heads(codes: Numbers, starts: Numbers, reach: Numbers) -> Numbers:
    """Where groups begin, among intervals sorted by key and start of which each key has come so far."""
    heads = np.ones(len(codes), np.bool_)
    heads[1:] = (codes[1:] != codes[:-1]) | (starts[1:] > reach[:-1])
    return heads


def _furthest(codes: Numbers, ends: Numbers) -> Numbers:
    """The furthest end of the key up to each interval; codes are sorted."""
    distinct, ranks = np.unique(ends, return_inverse=True)
    # A rank is below the number of ends, so that those of one key stay below those of the next.
    width = len(distinct)
    furthest = np.maximum.accumulate(codes.astype(np.int64) * width + ranks) - codes.astype(np.int64) * width
    found: Numbers = distinct[furthest]
    return found


def in_turns(groups: Numbers, alone: Numbers) -> list[Numbers]:
    """Rows by turns: in each turn a group has one row of those to be `alone`, or a run of others.

    Args:
        groups: Of the rows.
        alone: Which rows are a turn by themselves.

    Returns:
        Rows of each turn, in their own order within a group.
    """
    order = np.argsort(groups, kind="stable")
    sorted_groups, single = groups[order], alone[order]
    heads = np.ones(len(order), np.bool_)
    heads[1:] = sorted_groups[1:] != sorted_groups[:-1]
    breaks = heads.copy()
    breaks[1:] |= single[1:] | single[:-1]
    turns = np.cumsum(breaks)
    first = turns[np.flatnonzero(heads)]
    turns = turns - np.repeat(first, np.diff(np.append(np.flatnonzero(heads), len(order))))
    by_turn = np.argsort(turns, kind="stable")
    borders = np.flatnonzero(np.diff(turns[by_turn])) + 1
    return np.split(order[by_turn], borders)
