"""Snapshots of one slot from their barrier until they are written and the driver can be told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tidemark.checkpoint.messages import BarrierTimes, SlotAcknowledged, SlotDeclined
from tidemark.checkpoint.metadata.model import SubtaskState
from tidemark.checkpoint.snapshot_writer import SnapshotWriter
from tidemark.errors import CheckpointError, FailureReason, StorageError
from tidemark.protocol.frames import CutRequest
from tidemark.state.snapshot import Increment
from tidemark.subtask.subtask import Subtask, SubtaskCut

__all__ = ["PendingCuts", "acknowledgement", "write_cuts"]


class PendingCuts:
    """What was cut and not yet fetched by a writer, by checkpoint. Used under the slot's lock."""

    def __init__(self) -> None:
        """Nothing is pending."""
        self._cuts: dict[int, list[SubtaskCut]] = {}

    def make(self, request: CutRequest, subtasks: Iterable[Subtask]) -> None:
        """Cut every subtask; if one fails nothing of this checkpoint is pending.

        Raises:
            CheckpointError: `DECLINED`: a user function failed in `snapshot_state`.
        """
        self._cuts[request.checkpoint_id] = []
        for subtask in subtasks:
            self.add(request, subtask)

    def add(self, request: CutRequest, subtask: Subtask) -> int:
        """Cut one more subtask; returns how many of this checkpoint are cut. See `make` for failures."""
        checkpoint_id = request.checkpoint_id
        cuts = self._cuts.setdefault(checkpoint_id, [])
        try:
            increment = Increment(checkpoint_id, request.base) if request.incremental else None
            cuts.append(subtask.cut(checkpoint_id, request.timestamp, incremental=increment))
        except Exception as exc:
            self.drop(checkpoint_id)
            if isinstance(exc, CheckpointError):
                raise
            raise CheckpointError(
                f"Checkpoint {checkpoint_id} was declined by operator '{subtask.info.name}': "
                f"{type(exc).__name__}: {exc}",
                reason=FailureReason.DECLINED,
                checkpoint_id=checkpoint_id,
            ) from exc
        return len(cuts)

    def take(self, checkpoint_id: int) -> list[SubtaskCut]:
        """The cuts of a checkpoint, which are the caller's now.

        Raises:
            CheckpointError: `DECLINED`: there are none any more.
        """
        cuts = self._cuts.pop(checkpoint_id, None)
        if cuts is None:
            raise CheckpointError(
                f"Checkpoint {checkpoint_id} is not known to this slot any more.",
                reason=FailureReason.DECLINED,
                checkpoint_id=checkpoint_id,
            )
        return cuts

    def drop(self, checkpoint_id: int) -> None:
        """The checkpoint was given up."""
        _release(self._cuts.pop(checkpoint_id, ()))

    def clear(self) -> None:
        """Give all of them up."""
        for cuts in self._cuts.values():
            _release(cuts)
        self._cuts.clear()


def write_cuts(
    cuts: list[SubtaskCut], request: CutRequest, writer: SnapshotWriter
) -> dict[str, SubtaskState]:
    """Write them one after the other and release them all, also if that fails; uid -> where the state lies.

    Raises:
        StorageError: The bytes could not be written.
        CheckpointError: The state is larger than the memory backend may carry.
    """
    states: dict[str, SubtaskState] = {}
    pending = list(cuts)
    try:
        while pending:
            cut = pending.pop(0)
            states[cut.info.uid] = cut.write(writer, request.location, request.base)
    finally:
        _release(pending)
    return states


def acknowledgement(
    slot: int,
    request: CutRequest,
    write: Callable[[CutRequest], dict[str, SubtaskState]],
    barriers: Mapping[str, BarrierTimes] | None = None,
) -> SlotAcknowledged | SlotDeclined:
    """Write what was cut before and say how it went; failures are events too."""
    checkpoint_id = request.checkpoint_id
    try:
        states = write(request)
    except CheckpointError as exc:
        return SlotDeclined(checkpoint_id, slot, exc.reason, str(exc))
    except StorageError as exc:
        return SlotDeclined(checkpoint_id, slot, FailureReason.STORAGE, str(exc))
    except Exception as exc:
        return SlotDeclined(checkpoint_id, slot, FailureReason.DECLINED, f"{type(exc).__name__}: {exc}")
    sync_ms = sum(state.sync_ms for state in states.values())
    async_ms = max((state.async_ms for state in states.values()), default=0)
    return SlotAcknowledged(checkpoint_id, slot, states, sync_ms, async_ms, barriers or {})


def _release(cuts: Iterable[SubtaskCut]) -> None:
    for pending in cuts:
        pending.cut.release()
