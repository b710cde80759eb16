"""How a job stands: counters for people, web pages and the result of the job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tidemark.protocol.batch import MIN_WATERMARK

__all__ = ["Progress", "add_numbers"]


@dataclass(slots=True)
class Progress:
    """Counters a person or a web page wants to see."""

    mode: str = "epochs"
    """How the job runs: in epochs, or continuous."""
    mode_reason: str = ""
    """Why it runs that way, for people."""
    epoch: int = 0
    records: int = 0
    records_out: dict[int, int] = field(default_factory=dict)
    last_epoch_ms: float = 0.0
    watermark: int = MIN_WATERMARK
    attempt: int = 0
    restored_from: int | None = None
    first_checkpoint: int = 1
    """Id of the first checkpoint of the current attempt."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """Metrics of the user's functions in slots, as of the last statistics."""
    shares: dict[int, tuple[float, float, float]] = field(default_factory=dict)
    """Task of a continuous job -> how much of its time it lately worked, waited for slots, had nothing to do."""
    task_metrics: dict[str, Any] = field(default_factory=dict)
    """Counters of functions fused into tasks, summed over all epochs."""

    def note_mode(self, continuous: bool, reason: str) -> None:
        """Say how the job runs, and why."""
        self.mode, self.mode_reason = ("continuous" if continuous else "epochs"), reason


def add_numbers(total: dict[str, Any], values: dict[str, Any]) -> None:
    """Add the numbers among `values` to those of the same name in `total`."""
    for name, value in values.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            total[name] = total.get(name, 0) + value
