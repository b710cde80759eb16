"""Serializers of windows; each also maps its windows to namespaces and back.

Layout: one big-endian int64 per integer of the namespace.
"""

from __future__ import annotations

import struct
from abc import abstractmethod
from typing import Any, Generic, TypeVar

from tidemark.api.windows.window import CountWindow, GlobalWindow, TimeWindow, Window
from tidemark.state.namespace import Namespace, NamespaceKind
from tidemark.state.serializers.base import TypeSerializer

__all__ = ["CountWindowSerializer", "GlobalWindowSerializer", "TimeWindowSerializer", "WindowSerializer"]

W = TypeVar("W", bound=Window)


class WindowSerializer(TypeSerializer[W], Generic[W]):
    """Reads and writes one kind of windows."""

    immutable = True
    namespace_kind: NamespaceKind
    """How many integers identify a window."""

    @abstractmethod
    def from_namespace(self, namespace: Namespace) -> W:
        """The window behind a namespace."""

    def serialize(self, element: W, stream: Any) -> None:
        """Write the integers of the namespace."""
        namespace = element.to_namespace()
        stream.write(struct.pack(f">{len(namespace)}q", *namespace))

    def deserialize(self, stream: Any) -> W:
        """Read the integers of the namespace."""
        count = len(self.namespace_kind.columns)
        return self.from_namespace(struct.unpack(f">{count}q", stream.read(8 * count)))


class TimeWindowSerializer(WindowSerializer[TimeWindow]):
    """Of `TimeWindow`."""

    namespace_kind = NamespaceKind.WINDOW

    def from_namespace(self, namespace: Namespace) -> TimeWindow:
        """`(start, end)`."""
        return TimeWindow(namespace[0], namespace[1])


class CountWindowSerializer(WindowSerializer[CountWindow]):
    """Of `CountWindow`."""

    namespace_kind = NamespaceKind.SINGLE

    def from_namespace(self, namespace: Namespace) -> CountWindow:
        """`(id,)`."""
        return CountWindow(namespace[0])


class GlobalWindowSerializer(WindowSerializer[GlobalWindow]):
    """Of `GlobalWindow`."""

    namespace_kind = NamespaceKind.SINGLE

    def from_namespace(self, namespace: Namespace) -> GlobalWindow:
        """The one instance."""
        return GlobalWindow.get()
