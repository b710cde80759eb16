"""What the stored snapshot of a serializer is called, found out without importing what it names.

`compatibility.load_serializer_snapshot` runs the code of whoever is named in the bytes. Who only looks at a
snapshot must not do that; the names themselves are in the bytes, or follow from them for our own classes.
"""

from __future__ import annotations

from tidemark.errors import SerializationError
from tidemark.state.serializers.compatibility import GenericSerializerSnapshot
from tidemark.state.serializers.leaf import LeafSerializer, LeafSerializerSnapshot
from tidemark.state.serializers.streams import DataInputView
from tidemark.types.inference import qualified_name

__all__ = ["stored_serializer_name"]


def stored_serializer_name(snapshot: bytes | None) -> str | None:
    """Qualified class name of the serializer; of the snapshot's own class if that does not tell it.

    Returns:
        None without a snapshot, "unknown" if the bytes are no snapshot of a serializer.
    """
    if not snapshot:
        return None
    try:
        return _name(DataInputView(snapshot))
    except (SerializationError, ValueError):
        return "unknown"


def _name(view: DataInputView) -> str:
    view.read_fully(1)
    name = view.read_utf()
    view.read_int()
    if name == qualified_name(LeafSerializerSnapshot):
        leaf = LeafSerializer.by_name.get(DataInputView(view.read_bytes()).read_utf())
        return name if leaf is None else qualified_name(leaf)
    if name == qualified_name(GenericSerializerSnapshot):
        return DataInputView(view.read_bytes()).read_utf()
    # Ours are called like their serializers and live beside them.
    return name.removesuffix("Snapshot") if name.startswith("tidemark.") else name
