"""Sources that users write: what there is to read is divided into splits, and a reader reads each of them.

`SplitSource` says which splits there are (in the driver) and opens readers for them (in tasks). A split has an id
that means the same after every restart, and a position that says how far it has been read; checkpoints
store both, so that a job goes on exactly behind what its state has seen, at any parallelism and in either
execution mode. `runtime.sources` drives what is declared here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tidemark.api.connectors.base import Source
from tidemark.api.specs import SplitSourceSpec
from tidemark.errors import ConfigError
from tidemark.types.typeinfo import TypeInformation

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Split", "SplitReader", "SplitSource"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Split:
    """What one reader reads: a file, a partition of a topic, a shard.

    Attributes:
        id: Unique in the source, and the same after every restart: positions are stored under it.
        data: What `SplitSource.open` has to know beside the id. Plain data: None, numbers, text, bytes, and
            lists and dicts of them. It is stored in checkpoints; tuples come back as lists.
    """

    id: str
    data: Any = None


class SplitReader(ABC, Generic[T]):
    """Reads one split, in a task. Calls come from one thread, one after the other."""

    @abstractmethod
    def read(self, max_records: int, timeout_ms: int) -> Sequence[T] | pa.RecordBatch | pa.Table | None:
        """The next records, at most `max_records`.

        Returns at once with what is there; if nothing is, it may wait up to `timeout_ms` for it (0: not at all).

        Records of a source whose type is declared may come as Arrow columns: of rows, tuples and dataclasses one per
        field, of any other type a single one. `max_records` is larger where those who read the source take columns.

        Returns:
            Records; none of them if there are none yet; None if the split has ended for good.
        """

    @abstractmethod
    def position(self) -> Any:
        """Where the split goes on behind the last record that `read` gave; goes into the checkpoint.

        Plain data, as in `Split.data`. None means the beginning.
        """

    def timestamps(self) -> Sequence[int | None] | pa.Array | None:
        """Event time in ms of each record that the last `read` gave; None if the split has no timestamps.

        Behind a `read` that gave columns it may be an Arrow or numpy array.
        """
        return None

    def side_outputs(self) -> Mapping[str, Sequence[Any]]:
        """Elements for side outputs of the source that the last `read` came upon, by the id of their tag.

        They are as exact as the records: `position` lies behind both. A `read` may give some though it gives no
        record. Elements of a side output that nobody reads are dropped.
        """
        return {}

    def counts(self) -> Mapping[str, int]:
        """What there is to count since the last call; added to the source's metrics of these names."""
        return {}

    def wake_fd(self) -> int | None:
        """A file descriptor that is readable when `read` has something; None if the reader has to be asked.

        With it a task waits for all its splits at once and takes a record the moment it comes. It is asked for
        before each wait, and waited for only after `read` has given nothing. Used in continuous execution.
        """
        return None

    def close(self) -> None:
        """Release what the reader holds. Called once, also after a failure."""


class SplitSource(Source, Generic[T]):
    """A source of splits. It is pickled: what cannot be (connections, locks) is made in `enumerate` and `open`.

    The driver works with a copy of its own, a fresh one for every attempt; tasks open readers on other copies.
    Nothing that is kept in the object gets from one to the other.

    Attributes:
        bounded: Whether the source ends: its splits are those of `enumerate`, and all of them end.
        discovery_interval_ms: How often an unbounded source is asked for new splits; None: never, and the source
            ends if all its splits do.
    """

    bounded: bool
    discovery_interval_ms: int | None = None

    @abstractmethod
    def enumerate(self) -> Sequence[Split]:
        """The splits to begin with. In the driver, at the first start; a restored job knows its splits."""

    def discover(self) -> Sequence[Split]:
        """All splits there are now, in the driver; those with an id that is not known yet are new.

        A split that has ended may be left out, and is then forgotten: it must not be named again.
        """
        return ()

    def restore(self, splits: Sequence[tuple[Split, Any]]) -> Sequence[tuple[Split, Any]]:
        """Look at what a snapshot wants to read: its splits that have not ended, with their positions.

        In the driver, before anything is read. Raises if that cannot be read, or says how to go on instead.

        Returns:
            Splits with other data or another position, under the ids they had; those that are left out stay.
        """
        return ()

    @abstractmethod
    def open(self, split: Split, position: Any | None) -> SplitReader[T]:
        """A reader that goes on at `position`, or begins if it is None. In a task.

        In continuous execution a reader lives as long as the attempt; in epochs it is opened for every one, asked
        for records, and closed. A reader that needs a while until its first record should wait for that here.
        """

    def notify_checkpoint_complete(self, checkpoint_id: int, positions: Mapping[str, Any]) -> None:
        """A checkpoint is durable that holds these positions (by split id). In the driver.

        May be left out for a checkpoint; a later one covers it. An exception fails the attempt.
        """

    def close(self) -> None:
        """The attempt is over: release what the driver's copy holds."""

    def get_produced_type(self) -> TypeInformation | None:
        """Type of the records unless the user declares another; None: they are pickled."""
        return None

    def source_spec(self) -> SplitSourceSpec:
        """What the graph holds of this source.

        Raises:
            ConfigError: `bounded` is not said, or the interval of discovery makes no sense.
        """
        name = type(self).__name__
        bounded, interval = getattr(self, "bounded", None), self.discovery_interval_ms
        if not isinstance(bounded, bool):
            raise ConfigError(f"{name} does not say whether it ends. Set `bounded` to True or False.")
        if interval is not None and (not isinstance(interval, int) or interval <= 0):
            raise ConfigError(f"discovery_interval_ms of {name} must be positive or None, got {interval!r}.")
        if bounded and interval is not None:
            raise ConfigError(
                f"{name} is bounded, so its splits are fixed at the start. Leave discovery_interval_ms at None."
            )
        return SplitSourceSpec(self)

    def produced_type(self) -> TypeInformation | None:
        """What `get_produced_type` says."""
        return self.get_produced_type()
