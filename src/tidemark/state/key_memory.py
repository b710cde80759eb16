"""What snapshots of one state remember of its keys, so that the next one need not look at them again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark.state.layers import KeyMark

__all__ = ["KeyColumns", "KeyMemory"]


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """Keys of rows in their own order, and the key groups they are in."""

    groups: np.ndarray[Any, Any]
    keys: pa.Array

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def nbytes(self) -> int:
        """Bytes of both columns."""
        return int(self.groups.nbytes + self.keys.nbytes)

    def followed_by(self, other: KeyColumns) -> KeyColumns:
        """These keys and then the others."""
        if not len(other):
            return self
        keys = pa.concat_arrays([self.keys, other.keys])
        return KeyColumns(np.concatenate([self.groups, other.groups]), keys)


class KeyMemory:
    """Remembers the key columns of one state from one snapshot to the next.

    While no key is removed, a snapshot then looks at new keys only, and at the values. States from which keys
    were removed between two snapshots are not remembered: they would only pay for it.
    """

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        """Know nothing."""
        # One attribute, read once by every method: two writers at a time never see the mark of one with the keys
        # of the other.
        self._kept: tuple[KeyMark, KeyColumns | None] | None = None

    def recall(self, mark: KeyMark) -> KeyColumns | None:
        """Columns of the first keys of a snapshot with that mark, perhaps of all; None if nothing is known."""
        kept = self._kept
        if kept is None:
            return None
        known, columns = kept
        return columns if known.removals == mark.removals and known.entries <= mark.entries else None

    def keep(self, mark: KeyMark, columns: KeyColumns) -> None:
        """Remember the keys of a snapshot, if they seem to last."""
        kept = self._kept
        lasting = kept is not None and kept[0].removals == mark.removals
        self._kept = (mark, columns if lasting else None)

    def forget(self) -> None:
        """Let go of the columns."""
        self._kept = None
