"""Snapshots of one slot from their barrier until they are written."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from tidemark.checkpoint.metadata.model import SubtaskState
from tidemark.checkpoint.snapshot_writer import SnapshotWriter, SubtaskTarget
from tidemark.errors import CheckpointError, FailureReason
from tidemark.protocol.frames import CutRequest
from tidemark.state.snapshot import OperatorCut
from tidemark.subtask.hosting import Hosted

__all__ = ["Cut", "PendingCuts", "write_cuts"]


@dataclass(frozen=True, slots=True)
class Cut:
    """One operator's part of a snapshot."""

    hosted: Hosted
    cut: OperatorCut
    sync_ms: int


class PendingCuts:
    """What was cut and not yet fetched by a writer, by checkpoint. Used under the slot's lock."""

    def __init__(self) -> None:
        """Nothing is pending."""
        self._cuts: dict[int, list[Cut]] = {}

    def make(self, request: CutRequest, operators: Iterable[Hosted]) -> None:
        """Cut every operator; if one fails nothing of this checkpoint is pending.

        Raises:
            CheckpointError: `DECLINED`: a user function failed in `snapshot_state`.
        """
        cuts: list[Cut] = []
        for hosted in operators:
            at = time.perf_counter()
            try:
                cut = hosted.operator.cut(
                    request.checkpoint_id, request.timestamp, incremental=request.incremental
                )
            except Exception as exc:
                _release(cuts)
                if isinstance(exc, CheckpointError):
                    raise
                raise CheckpointError(
                    f"Checkpoint {request.checkpoint_id} was declined by operator '{hosted.vertex.name}': "
                    f"{type(exc).__name__}: {exc}",
                    reason=FailureReason.DECLINED,
                    checkpoint_id=request.checkpoint_id,
                ) from exc
            cuts.append(Cut(hosted, cut, round((time.perf_counter() - at) * 1000)))
        self._cuts[request.checkpoint_id] = cuts

    def take(self, checkpoint_id: int) -> list[Cut]:
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
    cuts: list[Cut], request: CutRequest, slot: int, writer: SnapshotWriter
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
            next_cut = pending.pop(0)
            hosted = next_cut.hosted
            target = SubtaskTarget(
                request.checkpoint_id,
                request.location,
                hosted.vertex.uid,
                slot,
                hosted.key_groups,
                request.base,
            )
            states[hosted.vertex.uid] = writer.write_subtask(target, next_cut.cut, sync_ms=next_cut.sync_ms)
    finally:
        _release(pending)
    return states


def _release(cuts: Iterable[Cut]) -> None:
    for pending in cuts:
        pending.cut.release()
