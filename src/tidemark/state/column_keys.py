"""The keys of a batch: which there are, which row has which, and arithmetic by key. Beyond Flink.

`Keys` comes with every call of a batch function. State is read and written for its distinct keys, in their order;
`codes` leads from a row of the batch to the place of its key among them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tidemark.errors import ConfigError
from tidemark.state.grouping import cumulative_count, fold, row_order, running

if TYPE_CHECKING:
    import pyarrow as pa

    from tidemark.state.key_tokens import KeyTokens

__all__ = ["KeySet", "Keys", "as_numbers"]

Numbers = np.ndarray[Any, Any]


class KeySet:
    """Some distinct keys of a batch; what state is read, written and cleared for.

    `keys[mask]` and `keys[positions]` choose some of them, as numpy would.
    """

    __slots__ = ("__dict__", "_column", "_firsts", "_tokens", "batch", "places")

    def __init__(
        self, column: pa.Array, firsts: Numbers, places: Numbers, tokens: KeyTokens, batch: object
    ) -> None:
        """Used by backends.

        Args:
            column: Key tokens of all rows of the batch.
            firsts: A row of each of the distinct keys.
            places: Where the backend keeps each of them.
            tokens: The way back from tokens to keys.
            batch: Whose keys these are; they are good as long as the backend is in that batch.
        """
        self._column = column
        self._firsts = firsts
        self._tokens = tokens
        self.places = places
        self.batch = batch

    @cached_property
    def distinct(self) -> pa.Array:
        """The keys, each once, in the order of their first rows."""
        return self._tokens.key_column(self.token_column)

    @cached_property
    def token_column(self) -> pa.Array:
        """Their tokens, as a column."""
        import pyarrow as pa

        return self._column.take(pa.array(self._firsts))

    @cached_property
    def tokens(self) -> list[Any]:
        """Their tokens, as objects."""
        return self._tokens.from_arrow(self.token_column)

    def __len__(self) -> int:
        return len(self._firsts)

    def __getitem__(self, chosen: Any) -> KeySet:
        """Some of the keys: a mask or positions, as numpy or Arrow arrays."""
        chosen = np.asarray(chosen)
        if chosen.dtype == bool and len(chosen) != len(self):
            raise ConfigError(
                f"A mask of {len(chosen)} values cannot choose among {len(self)} distinct keys."
            )
        return KeySet(self._column, self._firsts[chosen], self.places[chosen], self._tokens, self.batch)


class Keys(KeySet):
    """The keys of a batch.

    Attributes:
        codes: For each row the position of its key among `distinct`.

    Group-wise tools take one value per row, as Arrow or numpy arrays without nulls. Those that give one value per
    distinct key take them in the order of the rows, the others give one value per row. `start` is one value per
    distinct key, in front of its first row.
    """

    __slots__ = ("codes",)

    def __init__(
        self,
        column: pa.Array,
        codes: Numbers,
        firsts: Numbers,
        places: Numbers,
        tokens: KeyTokens,
        batch: object,
    ) -> None:
        """Used by backends; see `KeySet`."""
        super().__init__(column, firsts, places, tokens, batch)
        self.codes = codes

    def of_rows(self, codes: Numbers) -> Keys:
        """The same keys, in the same order, for other rows; `codes` tells whose each is, and every key has one."""
        import pyarrow as pa

        firsts = np.empty(len(self), np.int64)
        firsts[codes[::-1]] = np.arange(len(codes))[::-1]
        column = self.token_column.take(pa.array(codes))
        return Keys(column, codes, firsts, self.places, self._tokens, self.batch)

    @cached_property
    def order(self) -> Numbers:
        """The rows grouped by key, in their own order within a key."""
        return row_order(self.codes, len(self))

    @cached_property
    def _counts(self) -> Numbers:
        return np.bincount(self.codes, minlength=len(self))

    def count(self) -> Numbers:
        """Rows of each key."""
        return self._counts.copy()

    def cumcount(self) -> Numbers:
        """For each row, how many rows of its key come before it."""
        return cumulative_count(self.order, self._counts)

    def sum(self, values: Any, start: Any = None) -> Numbers:
        """Sum by key; integers wrap around beyond 64 bits."""
        return self._fold(np.add, values, start, 0)

    def min(self, values: Any, start: Any = None) -> Numbers:
        """Smallest value by key."""
        return self._fold(np.minimum, values, start, None)

    def max(self, values: Any, start: Any = None) -> Numbers:
        """Largest value by key."""
        return self._fold(np.maximum, values, start, None)

    def mean(self, values: Any) -> Numbers:
        """Mean by key."""
        return self.sum(self._numbers(values).astype(np.float64)) / self._counts

    def first(self, values: Any) -> Any:
        """The value of the first row of each key; an Arrow array of an Arrow array."""
        return self._taken(values, self._firsts)

    def last(self, values: Any) -> Any:
        """The value of the last row of each key; an Arrow array of an Arrow array."""
        return self._taken(values, self._lasts)

    def running_sum(self, values: Any, start: Any = None) -> Numbers:
        """Sum of the key up to and including each row; integers wrap around beyond 64 bits."""
        return self._running(np.add, values, start, 0)

    def running_count(self, start: Any = None) -> Numbers:
        """Rows of the key up to and including each row."""
        begin = 0 if start is None else self._start(start, np.dtype(np.int64))
        return cumulative_count(self.order, self._counts, begin + 1)

    def running_min(self, values: Any, start: Any = None) -> Numbers:
        """Smallest value of the key up to and including each row."""
        return self._running(np.minimum, values, start, None)

    def running_max(self, values: Any, start: Any = None) -> Numbers:
        """Largest value of the key up to and including each row."""
        return self._running(np.maximum, values, start, None)

    def running(self, ufunc: np.ufunc, values: Any, start: Any) -> Numbers:
        """The fold of any ufunc of two arguments behind each row, from a start value per key."""
        return running(ufunc, self.order, self._counts, self._numbers(values), start)

    @cached_property
    def _lasts(self) -> Numbers:
        if "order" in self.__dict__:
            return self.order.take(np.cumsum(self._counts) - 1)
        lasts = np.empty(len(self), np.int64)
        lasts[self.codes] = np.arange(len(self.codes))
        return lasts

    def _fold(self, ufunc: np.ufunc, values: Any, start: Any, neutral: int | None) -> Numbers:
        numbers, begin = self._operands(values, start, neutral)
        return fold(ufunc, self.codes, numbers, begin)

    def _running(self, ufunc: np.ufunc, values: Any, start: Any, neutral: int | None) -> Numbers:
        numbers, begin = self._operands(values, start, neutral)
        return running(ufunc, self.order, self._counts, numbers, begin)

    def _operands(self, values: Any, start: Any, neutral: int | None) -> tuple[Numbers, Numbers]:
        numbers = self._numbers(values)
        if start is not None:
            begin = self._start(start, np.result_type(numbers.dtype, np.asarray(start).dtype))
        elif neutral is None:
            begin = numbers[self._firsts]
        else:
            begin = np.full(len(self), neutral, _wide(numbers.dtype))
        return numbers, begin

    def _numbers(self, values: Any) -> Numbers:
        numbers = as_numbers(values)
        if len(numbers) != len(self.codes):
            raise ConfigError(
                f"{len(numbers)} values for {len(self.codes)} rows: one value per row is needed."
            )
        return numbers

    def _start(self, start: Any, dtype: np.dtype[Any]) -> Numbers:
        begin = as_numbers(start).astype(_wide(dtype), copy=False)
        if len(begin) != len(self):
            raise ConfigError(
                f"{len(begin)} start values for {len(self)} keys: one per distinct key is needed."
            )
        return begin

    def _taken(self, values: Any, at: Numbers) -> Any:
        if len(values) != len(self.codes):
            raise ConfigError(
                f"{len(values)} values for {len(self.codes)} rows: one value per row is needed."
            )
        if isinstance(values, np.ndarray):
            return values[at]
        import pyarrow as pa

        return values.take(pa.array(at))


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Integers are added with 64 bits, and so are booleans."""
    return np.dtype(np.int64) if dtype.kind in "ib" else dtype


def as_numbers(values: Any) -> Numbers:
    """An Arrow, numpy or other array of numbers as a numpy array.

    Raises:
        ConfigError: Some values are missing.
    """
    if getattr(values, "null_count", 0):
        raise ConfigError(
            "Arithmetic by key needs values without nulls: use fill_null(), or filter the batch."
        )
    to_numpy: Callable[..., Numbers] | None = getattr(values, "to_numpy", None)
    if to_numpy is None or isinstance(values, np.ndarray):
        return np.asarray(values)
    import pyarrow as pa

    return to_numpy() if isinstance(values, pa.ChunkedArray) else to_numpy(zero_copy_only=False)
