"""The table of plain value state with time-to-live that reading does not renew: it stamps and checks itself.

Its handle puts and gets bare values, at the cost of a dictionary access: whatever a batch has written carries the
time of that batch, so one stamp for all of it is enough, and none of it can be expired before the batch is over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import repeat
from typing import TYPE_CHECKING, Any

from tidemark.backends.rocksdb.cache import MISS
from tidemark.backends.rocksdb.keys import encode_stamp
from tidemark.backends.rocksdb.scope import BatchScope
from tidemark.backends.rocksdb.value_rows import PendingUnits, ValueRows
from tidemark.backends.table import ABSENT, Address

if TYPE_CHECKING:
    from tidemark.state.backend import KeyContext
    from tidemark.state.expiry import Expiry
    from tidemark.state.serializers.base import TypeSerializer

__all__ = ["ExpiringValueRows"]


class _ExpiringValues(PendingUnits):
    """Values written in this batch. Everything else has stamps, which are checked here; bare values come out."""

    __slots__ = ("context", "remove", "return_expired", "ttl")

    context: KeyContext
    remove: Callable[[Any], None]
    return_expired: bool
    ttl: int

    def __missing__(self, at: Any) -> Any:
        unit = self.known.get(at, MISS)
        if unit is MISS:
            unit = self.load(at)
        if unit is ABSENT:
            return ABSENT
        value, stamp = unit
        if stamp + self.ttl <= self.context.now:  # `Expiry.is_expired`, for every access
            self.remove(at)
            return value if self.return_expired else ABSENT
        return value


class ExpiringValueRows(ValueRows):
    """One row per key, each with its stamp; what `get` gives and `put` takes are bare values."""

    def __init__(
        self,
        scope: BatchScope,
        state_id: int,
        serializer: TypeSerializer[Any],
        expiry: Expiry,
        context: KeyContext,
    ) -> None:
        """Keep the values of one state; `context` supplies the time of the batch."""
        self._expiry = expiry
        self._context = context
        self._to_bytes = serializer.to_bytes
        super().__init__(scope, state_id, serializer, ttl=True, namespaced=False)

    def _new_pending(self) -> PendingUnits:
        values = _ExpiringValues()
        values.context, values.remove = self._context, self.remove
        values.ttl, values.return_expired = self._expiry.ttl, self._expiry.return_expired
        return values

    def _peek_pending(self, at: Address) -> Any:
        value = self.pending.get(at, MISS)
        return value if value is MISS or value is ABSENT else (value, self._context.now)

    def _encode_pending(self) -> tuple[list[bytes], Mapping[Any, Any]]:
        # The scope writes back before the clock of the batch moves on, so `now` is when all this was written.
        now, values = self._context.now, self.pending.values()
        stamp = encode_stamp(now)
        raws = [stamp + raw for raw in map(self._to_bytes, values)]
        return raws, dict(zip(self.pending, zip(values, repeat(now)), strict=True))
