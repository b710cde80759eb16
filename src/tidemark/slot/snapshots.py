"""The asynchronous part of a snapshot on one slot, as the event that tells the driver how it went."""

from __future__ import annotations

from tidemark.checkpoint.messages import SlotAcknowledged, SlotDeclined
from tidemark.errors import CheckpointError, FailureReason, StorageError
from tidemark.protocol.frames import CutRequest
from tidemark.slot.host import SlotHost

__all__ = ["write_snapshot"]


def write_snapshot(slot: int, host: SlotHost, request: CutRequest) -> SlotAcknowledged | SlotDeclined:
    """Write what was cut before; failures are events too."""
    checkpoint_id = request.checkpoint_id
    try:
        states = host.write(request)
    except CheckpointError as exc:
        return SlotDeclined(checkpoint_id, slot, exc.reason, str(exc))
    except StorageError as exc:
        return SlotDeclined(checkpoint_id, slot, FailureReason.STORAGE, str(exc))
    except Exception as exc:
        return SlotDeclined(checkpoint_id, slot, FailureReason.DECLINED, f"{type(exc).__name__}: {exc}")
    sync_ms = sum(state.sync_ms for state in states.values())
    async_ms = max((state.async_ms for state in states.values()), default=0)
    return SlotAcknowledged(checkpoint_id, slot, states, sync_ms, async_ms)
