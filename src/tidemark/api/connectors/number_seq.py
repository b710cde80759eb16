"""A bounded source of consecutive numbers."""

from __future__ import annotations

from tidemark.api.connectors.base import Source
from tidemark.api.specs import SequenceSourceSpec
from tidemark.errors import ConfigError
from tidemark.types.typeinfo import TypeInformation, Types

__all__ = ["NumberSequenceSource"]


class NumberSequenceSource(Source):
    """All integers from `start` to `end`, both included, split into contiguous ranges per subtask."""

    def __init__(self, start: int, end: int) -> None:
        """Create a source.

        Raises:
            ConfigError: `start` is larger than `end`.
        """
        if start > end:
            raise ConfigError(f"A number sequence cannot go from {start} down to {end}.")
        self.start = start
        self.end = end

    def source_spec(self) -> SequenceSourceSpec:
        """What the graph holds of this source."""
        return SequenceSourceSpec(self.start, self.end)

    def produced_type(self) -> TypeInformation:
        """`Types.LONG()`."""
        return Types.LONG()
