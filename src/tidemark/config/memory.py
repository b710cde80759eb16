"""How much memory one slot may use: Flink's sizes of a task manager, shared by its slots."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.config.configuration import Configuration
from tidemark.config.options import Options
from tidemark.errors import ConfigError

__all__ = ["SlotMemory"]


@dataclass(frozen=True, slots=True)
class SlotMemory:
    """The budget of one slot, which is a process of its own; sizes in bytes, None where nobody set a bound."""

    process: int | None = None
    """All of its process."""
    managed: int | None = None
    """What RocksDB may use of it."""

    @classmethod
    def of(cls, configuration: Configuration) -> SlotMemory:
        """As configured.

        Raises:
            ConfigError: The managed part is no part, or larger than the whole.
        """
        slots = configuration.get(Options.TASK_SLOTS)
        total = configuration.get(Options.PROCESS_MEMORY)
        managed = configuration.get(Options.MANAGED_MEMORY)
        fraction = configuration.get(Options.MANAGED_MEMORY_FRACTION)
        if not 0 <= fraction < 1:
            raise ConfigError(
                f"Option '{Options.MANAGED_MEMORY_FRACTION.key}' must be at least 0 and less than 1, not {fraction}.",
                key=Options.MANAGED_MEMORY_FRACTION.key,
            )
        if total is not None and managed is not None and managed >= total:
            raise ConfigError(
                f"Option '{Options.MANAGED_MEMORY.key}' ({managed} bytes) must be less than "
                f"'{Options.PROCESS_MEMORY.key}' ({total} bytes), of which it is a part.",
                key=Options.MANAGED_MEMORY.key,
            )
        if managed is None and total is not None:
            managed = int(total * fraction)
        return cls(total // slots if total else None, managed // slots if managed else None)
