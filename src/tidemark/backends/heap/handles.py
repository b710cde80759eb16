"""The one handle worth a shortcut: value state without namespace and time-to-live, straight on the dict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidemark.backends.handles import TableValueState
from tidemark.backends.table import ABSENT

if TYPE_CHECKING:
    from tidemark.backends.heap.tables import HeapValueTable
    from tidemark.backends.registration import StateSpec
    from tidemark.state.backend import KeyContext

__all__ = ["HeapValueState"]


class HeapValueState(TableValueState):
    """Value state. None is never stored, so a plain dictionary `get` answers at once in most cases."""

    __slots__ = ("_store",)

    def __init__(self, spec: StateSpec, context: KeyContext, table: HeapValueTable) -> None:
        """See `Handle`."""
        super().__init__(spec, context, table)
        self._store = table.store

    def value(self) -> Any:
        """The stored value, else a copy of the default."""
        value = self._store.live.get(self._context.token)
        return self._miss() if value is None else value

    def _miss(self) -> Any:
        if self._store.frozen:
            value = self._table.thaw(self._context.token)
            if value is not ABSENT:
                return value
        return self._default()

    def update(self, value: Any) -> None:
        """Overwrite; None clears."""
        if value is None:
            self._store.remove(self._context.token)
            return
        normalize = self._normalize
        self._store.live[self._context.token] = value if normalize is None else normalize(value)
