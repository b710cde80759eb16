"""What `from_source` and `sink_to` take."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum

from tidemark.api.specs import SinkSpec, SourceSpec
from tidemark.types.typeinfo import TypeInformation

__all__ = ["DeliveryGuarantee", "Sink", "Source"]


class DeliveryGuarantee(Enum):
    """How often a sink may show one element."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
    NONE = 2


class Source(ABC):
    """Something `from_source` can read."""

    @abstractmethod
    def source_spec(self) -> SourceSpec:
        """Plain data for the runtime."""

    @abstractmethod
    def produced_type(self) -> TypeInformation | None:
        """Type of the elements, unless the user declares another; None: they are pickled."""


class Sink(ABC):
    """Something `sink_to` can write to."""

    @abstractmethod
    def sink_spec(self) -> SinkSpec:
        """Plain data for the runtime."""
