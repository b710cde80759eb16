"""When failed checkpoints fail the job: consecutive failures against the tolerated number."""

from __future__ import annotations

from tidemark.errors import CheckpointError, FailureReason

__all__ = ["FailureTracker"]


class FailureTracker:
    """Counts checkpoints that failed in a row."""

    def __init__(self, tolerable: int) -> None:
        self._tolerable = tolerable
        self.consecutive = 0

    def succeeded(self) -> None:
        """A checkpoint completed: the row is broken."""
        self.consecutive = 0

    def restarted(self) -> None:
        """A new attempt starts with a clean slate."""
        self.consecutive = 0

    def failed(self, checkpoint_id: int, reason: FailureReason, message: str) -> CheckpointError | None:
        """Count a failed checkpoint; return the error that must end the attempt, if it was one too many."""
        if not reason.counts_as_failure:
            return None
        self.consecutive += 1
        if self.consecutive <= self._tolerable:
            return None
        return CheckpointError(
            f"Checkpoint {checkpoint_id} failed ({reason.value}): {message} That is {self.consecutive} in a "
            f"row, {self._tolerable} are tolerated (set_tolerable_checkpoint_failure_number).",
            reason=reason,
            checkpoint_id=checkpoint_id,
        )
