"""Shortcuts for the handle every job uses: value state without namespace, straight on the pending writes.

They behave exactly like the general handles; what they save is the calls in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidemark.backends.handles import TableValueState
from tidemark.backends.table import ABSENT

if TYPE_CHECKING:
    from tidemark.backends.registration import StateSpec
    from tidemark.backends.rocksdb.value_rows import ValueRows
    from tidemark.state.backend import KeyContext

__all__ = ["RocksTtlValueState", "RocksValueState"]


class RocksValueState(TableValueState):
    """Value state."""

    __slots__ = ("_pending",)

    def __init__(self, spec: StateSpec, context: KeyContext, table: ValueRows) -> None:
        """See `Handle`."""
        super().__init__(spec, context, table)
        self._pending = table.pending

    def value(self) -> Any:
        """The stored value, else a copy of the default."""
        unit = self._pending[self._context.token]
        return self._default() if unit is ABSENT else unit

    def update(self, value: Any) -> None:
        """Overwrite; None clears."""
        if value is None:
            self._table.remove(self._context.token)
            return
        normalize = self._normalize
        self._pending[self._context.token] = value if normalize is None else normalize(value)


class RocksTtlValueState(RocksValueState):
    """Value state with time-to-live that reading does not renew; its table, `ExpiringValueRows`, stamps and checks."""

    __slots__ = ()

    def value(self) -> Any:
        """The value, or None if there is none or it is expired and invisible."""
        value = self._pending[self._context.token]
        return None if value is ABSENT else value
