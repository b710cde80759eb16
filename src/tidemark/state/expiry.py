"""The one rule of time-to-live: when a stored unit is dead, and who may see it all the same.

A unit carries its stamp, the time of its last access. Handles (`tidemark.backends.ttl`), snapshots, readers from
outside and the clean-ups of both backends ask here. Where a comparison is made for every record the code writes it
out instead of calling, and a comment beside it names the method it stands for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tidemark.state.descriptors import StateDescriptor, StateKind
from tidemark.state.ttl import StateTtlConfig

__all__ = ["Expiry", "Living", "lives_by_event_time"]


@dataclass(frozen=True, slots=True)
class Expiry:
    """Time-to-live of one state as far as it decides what is dead and what a read does about it.

    Attributes:
        ttl: Length in ms.
        renew_on_read: Whether a read of a live unit moves its stamp.
        return_expired: Whether a read returns (and thereby deletes) an expired unit.
        left_out_of_snapshots: Whether full snapshots leave expired units out.
        event_time: Whether stamps are timestamps of records and `now` is the watermark.
        reported: Whether somebody wants to hear of every unit that expires.
    """

    ttl: int
    renew_on_read: bool = False
    return_expired: bool = False
    left_out_of_snapshots: bool = False
    event_time: bool = False
    reported: bool = False

    @staticmethod
    def of(config: StateTtlConfig) -> Expiry:
        """Read the settings once."""
        return Expiry(
            config.ttl_ms,
            config.get_update_type() is StateTtlConfig.UpdateType.OnReadAndWrite,
            config.get_state_visibility() is StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp,
            config.get_cleanup_strategies().in_full_snapshot(),
            config.get_ttl_time_characteristic() is StateTtlConfig.TtlTimeCharacteristic.EventTime,
            config.on_expiry is not None,
        )

    @property
    def plain(self) -> bool:
        """Whether the shortcuts of the backends do: one time for a whole batch, and reads that change nothing."""
        return not (self.renew_on_read or self.event_time or self.reported)

    def dead_before(self, now: int) -> int:
        """The newest stamp that is expired at `now`; the boundary counts as expired."""
        return now - self.ttl

    def is_expired(self, stamp: int, now: int) -> bool:
        """Whether a unit last accessed at `stamp` is expired at `now`."""
        return stamp <= self.dead_before(now)

    def renewed(self, stamp: int, accessed: int) -> int:
        """The stamp of a unit that was read; a record out of order moves none back."""
        return max(stamp, accessed) if self.event_time else accessed

    def visible_at(self, now: int) -> Living | None:
        """What a read that changes nothing may return; None: everything that is stored."""
        return None if self.return_expired else Living(self.dead_before(now))

    def snapshot_at(self, now: int) -> Living | None:
        """What a full snapshot holds; None: everything that is stored."""
        return Living(self.dead_before(now)) if self.left_out_of_snapshots else None


def lives_by_event_time(descriptor: StateDescriptor) -> bool:
    """Whether a state is stamped with the timestamps of records."""
    config = descriptor.ttl_config
    return config is not None and Expiry.of(config).event_time


@dataclass(frozen=True, slots=True)
class Living:
    """The units of a state that are not expired at one moment.

    Attributes:
        dead_before: Units last accessed then or earlier are dead.
    """

    dead_before: int

    def alive(self, stamp: int) -> bool:
        """Whether a unit with that stamp is one of them."""
        return stamp > self.dead_before

    def units(self, units: Iterable[tuple[Any, int]]) -> list[tuple[Any, int]]:
        """Those of `units` that are alive; a unit is `(value, stamp)`."""
        dead_before = self.dead_before
        return [unit for unit in units if unit[1] > dead_before]

    def entries(self, entries: Mapping[Any, tuple[Any, int]]) -> dict[Any, tuple[Any, int]]:
        """Those entries of a map whose unit is alive."""
        dead_before = self.dead_before
        return {key: unit for key, unit in entries.items() if unit[1] > dead_before}

    def part(self, kind: StateKind, held: Any) -> Any:
        """The living part of what an address of that kind of state holds; None if nothing lives."""
        if kind is StateKind.LIST:
            return self.units(held) or None
        if kind is StateKind.MAP:
            return self.entries(held) or None
        return held if self.alive(held[1]) else None
