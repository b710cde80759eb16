"""Reduce functions with a form for whole batches, which operators use where state lies in columns. Beyond Flink."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from tidemark.api.functions.basic import ReduceFunction

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from tidemark.state.column_keys import Keys

__all__ = ["BatchReduceFunction"]


class BatchReduceFunction(ReduceFunction):
    """A reduce function that can also combine all records of a batch at once.

    On a keyed stream of a declared type `KeyedStream.reduce` calls `reduce_batch`; elsewhere, and in batch mode, it
    calls `reduce`. Both must say the same.
    """

    @abstractmethod
    def reduce_batch(
        self, batch: pa.RecordBatch, keys: Keys, held: pa.RecordBatch, present: np.ndarray[Any, Any]
    ) -> Any:
        """The combined value of its key behind each row.

        Args:
            batch: The new records.
            keys: Their keys.
            held: The value so far of each distinct key.
            present: Which of these there are; where there is none the key begins with its first record.

        Returns:
            As many rows as `batch` has, of the same type: a record batch, a table or a dict of arrays.
        """
