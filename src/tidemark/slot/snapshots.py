"""The asynchronous part of a snapshot on one slot, as the event that tells the driver how it went."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidemark.errors import CheckpointError, FailureReason, StorageError
from tidemark.slot.host import SlotHost
from tidemark.slot.requests import CutRequest

__all__ = ["SlotEvent", "write_snapshot"]


@dataclass(frozen=True, slots=True)
class SlotEvent:
    """Something a slot said by itself.

    `kind`: "written" (checkpoint id, states, async ms), "declined" (checkpoint id, reason name, message),
    "ready" (a source has something new), "lost" (message).
    """

    slot: int
    kind: str
    payload: Any = None


def write_snapshot(slot: int, host: SlotHost, request: CutRequest) -> SlotEvent:
    """Write what was cut before; failures are events too."""
    try:
        states = host.write(request)
    except CheckpointError as exc:
        return SlotEvent(slot, "declined", (request.checkpoint_id, exc.reason.name, str(exc)))
    except StorageError as exc:
        return SlotEvent(slot, "declined", (request.checkpoint_id, FailureReason.STORAGE.name, str(exc)))
    except Exception as exc:
        text = f"{type(exc).__name__}: {exc}"
        return SlotEvent(slot, "declined", (request.checkpoint_id, FailureReason.DECLINED.name, text))
    took = max((state.async_ms for state in states.values()), default=0)
    return SlotEvent(slot, "written", (request.checkpoint_id, states, took))
