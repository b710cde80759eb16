"""How a job stands: counters for people, web pages and the result of the job."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidemark.config import Configuration, Options
from tidemark.protocol.batch import MIN_WATERMARK

if TYPE_CHECKING:
    from tidemark.api.graph import Edge
    from tidemark.plan.vertex import Vertex

__all__ = ["LatencyMarks", "Progress", "TaskTimes", "add_numbers", "timed_accesses"]

_MARKS_KEPT = 128
"""As many as Flink's histograms of latencies keep."""
_CUTS_KEPT = 1000
"""More than the checkpoints anybody keeps to restore from."""


@dataclass(frozen=True, slots=True)
class TaskTimes:
    """How tasks of a continuous job have spent some time, in milliseconds."""

    busy_ms: int = 0
    waiting_ms: int = 0
    """For slots that had not answered, with something to send."""
    idle_ms: int = 0

    @property
    def total(self) -> int:
        """All of it."""
        return self.busy_ms + self.waiting_ms + self.idle_ms

    def plus(self, other: TaskTimes) -> TaskTimes:
        """Both together."""
        return TaskTimes(
            self.busy_ms + other.busy_ms, self.waiting_ms + other.waiting_ms, self.idle_ms + other.idle_ms
        )


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
    """Vertex -> records it sent over all attempts, to side outputs too."""
    side_records: dict[tuple[int, str], int] = field(default_factory=dict)
    """(vertex, side output) -> records it sent there."""
    replayed: int = 0
    """Records that had been read before and were read again because an attempt failed."""
    last_epoch_ms: float = 0.0
    latency_ms: float | None = None
    """How long records lately took from being read until everything they caused was done; None before the first."""
    watermark: int = MIN_WATERMARK
    attempt: int = 0
    restored_from: int | None = None
    first_checkpoint: int = 1
    """Id of the first checkpoint of the current attempt."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """Metrics of the user's functions in slots, as of the last statistics."""
    task_times: dict[int, TaskTimes] = field(default_factory=dict)
    """Task of a continuous job -> how it has spent this attempt."""
    recent_times: dict[int, TaskTimes] = field(default_factory=dict)
    """Task of a continuous job -> how it has spent its time lately."""
    task_metrics: dict[str, Any] = field(default_factory=dict)
    """Counters of functions fused into tasks, summed over all epochs."""

    _read_at: dict[int, int] = field(default_factory=dict)
    """Checkpoint -> `records` at its barrier."""

    def cut(self, checkpoint_id: int, records: int | None = None) -> None:
        """The barrier of a checkpoint is here, behind so many records; None: behind all of them."""
        self._read_at[checkpoint_id] = self.records if records is None else records
        if len(self._read_at) > _CUTS_KEPT:
            del self._read_at[next(iter(self._read_at))]

    def restored(self, checkpoint_id: int | None) -> None:
        """An attempt goes on from that snapshot, or from the beginning: what was read since comes again.

        Nothing does for the first attempt, whatever it starts from.
        """
        at = -1 if checkpoint_id is None else checkpoint_id
        # Tasks tell now and then what they have read: the last of it may be known to the barrier only.
        self.replayed += max(0, self.records - self._read_at.get(at, 0))
        self._read_at[at] = self.records

    def spent(self, task: int, times: TaskTimes) -> None:
        """A task says how it has spent its time since the last time it did."""
        if times.total:
            self.recent_times[task] = times
            self.task_times[task] = self.task_times.get(task, TaskTimes()).plus(times)

    def forget_tasks(self) -> None:
        """Another attempt has other tasks."""
        self.recent_times, self.task_times = {}, {}

    def records_in(self, vertex: Vertex) -> int:
        """Records a vertex has received over all attempts; of a source those it has read."""
        if not vertex.inputs:
            return self.records_out.get(vertex.id, 0)
        return sum(self._sent(edge) for edge in vertex.inputs)

    def _sent(self, edge: Edge) -> int:
        if edge.tag is not None:
            return self.side_records.get((edge.source, edge.tag), 0)
        sides = sum(
            count for (source, _tag), count in list(self.side_records.items()) if source == edge.source
        )
        return self.records_out.get(edge.source, 0) - sides

    def note_mode(self, continuous: bool, reason: str) -> None:
        """Say how the job runs, and why."""
        self.mode, self.mode_reason = ("continuous" if continuous else "epochs"), reason


class LatencyMarks:
    """How long records took from being read to being processed, taken every so often; read by any thread."""

    def __init__(self, interval_ms: int) -> None:
        """Take one every `interval_ms`; 0 takes none."""
        self._interval = interval_ms
        self._next = 0
        self._taken: deque[float] = deque(maxlen=_MARKS_KEPT)

    def mark(self, now: int, latency_ms: float) -> None:
        """Everything that some records caused was done `latency_ms` after they were read."""
        if self._interval and now >= self._next:
            self._next = now + self._interval
            self._taken.append(latency_ms)

    def quantiles(self) -> dict[str, float]:
        """The latest ones in ms; empty while there are none."""
        ordered = sorted(self._taken.copy())
        if not ordered:
            return {}
        last = len(ordered) - 1
        shares = {"min": 0.0, "p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
        return {
            name: round(ordered[min(last, int(share * len(ordered)))], 3) for name, share in shares.items()
        }


def timed_accesses(configuration: Configuration) -> int:
    """Of how many accesses to keyed state one is timed; 0: none is."""
    if not configuration.get(Options.TRACK_STATE_LATENCY):
        return 0
    return configuration.get(Options.TRACK_STATE_INTERVAL)


def add_numbers(total: dict[str, Any], values: dict[str, Any]) -> None:
    """Add the numbers among `values` to those of the same name in `total`."""
    for name, value in values.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            total[name] = total.get(name, 0) + value
