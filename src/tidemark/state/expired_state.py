"""What a job is told of state that has expired (`StateTtlConfig.Builder.on_expiry`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemark.state.backend import KeyToken

__all__ = ["ExpiredState", "ExpiredUnit", "OnExpiry"]


@dataclass(frozen=True, slots=True)
class ExpiredState:
    """One unit of state that has expired and is gone.

    Attributes:
        state_name: Name of the state.
        key: The key it belonged to; it is the current key while the callback runs.
        value: The value; of list state one element, of map state one entry's value, of aggregating state the
            accumulator.
        last_access: The time it was stamped with, in ms.
        expired_at: `last_access` plus time-to-live: when it expired, however much later it was noticed.
        map_key: Of map state, the key of the entry.
    """

    state_name: str
    key: Any
    value: Any
    last_access: int
    expired_at: int
    map_key: Any = None


OnExpiry = Callable[[ExpiredState], Iterable[Any] | None]
"""What it returns or yields is emitted like the results of `process_element`."""


@dataclass(frozen=True, slots=True)
class ExpiredUnit:
    """The same as the backend notes it: by token, for the operator to tell between two batches."""

    callback: OnExpiry
    state_name: str
    token: KeyToken
    value: Any
    last_access: int
    expired_at: int
    map_key: Any
    event_time: bool
