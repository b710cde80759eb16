"""How long a driver waits for its slots, and they for it, and how much memory each may use."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemark.config import Configuration, Options
from tidemark.config.memory import SlotMemory
from tidemark.errors import ConfigError
from tidemark.runtime.cancellation import Cancellation

__all__ = ["SlotLimits"]


@dataclass(frozen=True, slots=True)
class SlotLimits:
    """Times of the connection between a driver and its slots, and their memory.

    Attributes:
        heartbeat_interval_s: Between two pings of a slot.
        heartbeat_timeout_s: Silence after which a slot is given up, and after which a slot gives its driver up.
        cancellation: Patience with user code.
        memory: Bytes that the process of a slot may use; None for any number.
    """

    heartbeat_interval_s: float = 5.0
    heartbeat_timeout_s: float = 30.0
    cancellation: Cancellation = field(default_factory=Cancellation)
    memory: int | None = None

    @classmethod
    def of(cls, configuration: Configuration) -> SlotLimits:
        """As configured.

        Raises:
            ConfigError: The heartbeat's timeout is not longer than its interval, or sizes of memory contradict.
        """
        interval = configuration.get(Options.HEARTBEAT_INTERVAL)
        timeout = configuration.get(Options.HEARTBEAT_TIMEOUT)
        if timeout <= interval:
            raise ConfigError(
                f"Option '{Options.HEARTBEAT_TIMEOUT.key}' ({timeout} ms) must be longer than "
                f"'{Options.HEARTBEAT_INTERVAL.key}' ({interval} ms).",
                key=Options.HEARTBEAT_TIMEOUT.key,
            )
        memory = SlotMemory.of(configuration).process
        return cls(interval / 1000, timeout / 1000, Cancellation.of(configuration), memory)
