"""The workloads: which rows go in, and which results must come out. Needs numpy only; every system's worker uses it.

Rows are numbered; everything in a row follows from its number by integer arithmetic that SQL, numpy and
plain Python agree on. The value of a row depends on its key only, so what a running total is after n rows
of a key does not depend on their order, and every result can be checked whatever a system's parallelism.

Key distributions:
- `uniform`: every key is hit equally often, in scattered order.
- `zipf`: a key of rank r is hit about 1/r as often as the first: all powers of two of ranks are equally
  likely, and so are the ranks between two powers of two.
- `random`: every key is hit about equally often, and rows that follow each other have nothing in common.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

_SCATTER = 48_271
_PRIME = 1_000_003
_LEVEL = 7_919
_WITHIN = 104_729
_MERSENNE = 2_147_483_647
_MIX = 69_621

WINDOW_MS = 1_000
ROWS_PER_MS = 100
MAP_KEYS = 7
LIST_LENGTH = 10
RULES = 10


def _remainder(numbers: np.ndarray, divisor: int) -> np.ndarray:
    """`numbers % divisor`, in a third of numpy's time: by a multiplication, as compilers divide by a constant."""
    return numbers - numbers // divisor * divisor


@dataclass(frozen=True, slots=True)
class Rows:
    """`records` rows over `keys` keys."""

    records: int
    keys: int
    kind: str = "uniform"
    built_for: int = 0
    """Records that the rule of emission was made for, if other than `records`: a stream may run on."""

    @property
    def levels(self) -> int:
        return max(1, (self.keys - 1).bit_length())

    @property
    def every(self) -> int:
        """A key's total is emitted at every so many rows of it."""
        return min(100, max(1, (self.built_for or self.records) // self.keys))

    @property
    def sample(self) -> int:
        """Only keys that are multiples of this emit: about one row in a hundred gives a result, whatever the size."""
        return max(1, 100 // self.every)

    def key(self, number: int) -> int:
        """Key of row `number`."""
        if self.kind == "uniform":
            return number * _SCATTER % self.keys
        if self.kind == "random":
            mixed = number * _SCATTER % _MERSENNE
            return (mixed ^ mixed >> 15) * _MIX % _MERSENNE % self.keys
        width = 1 << number * _LEVEL % _PRIME % self.levels
        return (width - 1 + number * _WITHIN % _PRIME % width) % self.keys

    def key_column(self, numbers: np.ndarray) -> np.ndarray:
        """Keys of many rows."""
        if self.kind == "uniform":
            return _remainder(numbers * _SCATTER, self.keys)
        if self.kind == "random":
            mixed = _remainder(numbers * _SCATTER, _MERSENNE)
            return _remainder(_remainder((mixed ^ mixed >> 15) * _MIX, _MERSENNE), self.keys)
        width = np.left_shift(1, numbers * _LEVEL % _PRIME % self.levels)
        return (width - 1 + numbers * _WITHIN % _PRIME % width) % self.keys

    def key_sql(self, number: str = "id") -> str:
        """SQL expression of the key."""
        if self.kind == "uniform":
            return f"({number} * {_SCATTER} % {self.keys})"
        if self.kind == "random":
            mixed = f"({number} * {_SCATTER} % {_MERSENNE})"
            return f"(({mixed} ^ shiftright({mixed}, 15)) * {_MIX} % {_MERSENNE} % {self.keys})"
        width = f"shiftleft(1L, CAST({number} * {_LEVEL} % {_PRIME} % {self.levels} AS INT))"
        return f"(({width} - 1 + {number} * {_WITHIN} % {_PRIME} % {width}) % {self.keys})"

    def columns(self, number: str = "id") -> list[str]:
        """SQL columns of a row: key k, value v, sub-key s of maps, event time t in milliseconds."""
        key = self.key_sql(number)
        return [
            f"{key} AS k",
            f"{key} + 1 AS v",
            f"{number} % {MAP_KEYS} AS s",
            f"{number} DIV {ROWS_PER_MS} AS t",
        ]

    def row(self, number: int) -> tuple[int, int, int, int]:
        """The same columns of one row."""
        key = self.key(number)
        return key, key + 1, number % MAP_KEYS, number // ROWS_PER_MS

    # What must come out

    def counts(self) -> np.ndarray:
        """Rows of each key."""
        return np.bincount(self._keys(), minlength=self.keys)

    def totals(self) -> Counter[Any]:
        """Running sum: (key, total) at every `every`-th row of a sampled key."""
        return Counter(
            (key, (key + 1) * count)
            for key, rows in self._sampled(self.counts())
            for count in range(self.every, rows + 1, self.every)
        )

    def running_totals(self) -> tuple[int, int, int]:
        """Running (count, sum) with a row for every row: rows, sum of the counts, sum of the sums."""
        counts = self.counts()
        triangles = counts * (counts + 1) // 2
        return self.records, int(triangles.sum()), int((triangles * np.arange(1, self.keys + 1)).sum())

    def lists(self) -> Counter[Any]:
        """List state: (key, sum of the list) each time a list has filled up and is emptied."""
        found = Counter(
            {
                (key, (key + 1) * LIST_LENGTH): rows // LIST_LENGTH
                for key, rows in self._sampled(self.counts())
            }
        )
        return +found

    def maps(self) -> Counter[Any]:
        """Map state: (key * MAP_KEYS + sub-key, count) at every tenth row of the pair."""
        numbers = np.arange(self.records)
        pairs = np.bincount(self.key_column(numbers) * MAP_KEYS + numbers % MAP_KEYS)
        return Counter(
            (int(pair), count)
            for pair in np.flatnonzero(pairs)
            if pair // MAP_KEYS % self.sample == 0
            for count in range(10, int(pairs[pair]) + 1, 10)
        )

    def windows(self) -> Counter[Any]:
        """Tumbling windows: (key, sum of the window), one per key and window."""
        numbers = np.arange(self.records)
        window = numbers // (ROWS_PER_MS * WINDOW_MS)
        pairs = np.bincount(window * self.keys + self.key_column(numbers))
        return Counter(
            (int(pair % self.keys), int(pair % self.keys + 1) * int(pairs[pair]))
            for pair in np.flatnonzero(pairs)
        )

    def _keys(self) -> np.ndarray:
        return self.key_column(np.arange(self.records))

    def _sampled(self, counts: np.ndarray) -> list[tuple[int, int]]:
        return [(key, int(counts[key])) for key in range(0, self.keys, self.sample)]


def matching(value: int) -> int:
    """How many of the rules match a value: rule r matches multiples of r + 2."""
    return sum(value % (rule + 2) == 0 for rule in range(RULES))


EXPECTED = {
    "value": Rows.totals,
    "list": Rows.lists,
    "map": Rows.maps,
    "window": Rows.windows,
}
"""What must come out, by kind of state."""


def is_correct(state: str, rows: Rows, found: Any) -> bool:
    """Whether the pairs that came out are exactly those that must."""
    pairs = Counter((int(pair[0]), int(pair[1])) for pair in found)
    return _are_matches(rows, pairs) if state == "broadcast" else pairs == EXPECTED[state](rows)


def _are_matches(rows: Rows, pairs: Counter[tuple[int, int]]) -> bool:
    """Broadcast rules: (key, matches) at every `every`-th row of a sampled key since all rules were there.

    How many rows come before the rules is not determined, but it is few; from there on all is.
    """
    emitted: dict[int, list[int]] = {}
    for key, matches in pairs.elements():
        emitted.setdefault(key, []).append(matches)
    for key, found in emitted.items():
        step = rows.every * matching(key + 1)
        if sorted(found) != [step * number for number in range(1, len(found) + 1)]:
            return False
    possible = {key: count // rows.every for key, count in rows._sampled(rows.counts())}
    some = sum(possible.values())
    return pairs.total() >= 0.7 * some and all(len(found) <= possible[key] for key, found in emitted.items())
