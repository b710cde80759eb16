"""What a `_metadata` file says: the model, its codecs by version, and which codec reads which file."""

from __future__ import annotations

from tidemark.checkpoint.metadata.model import (
    METADATA_FILE,
    CheckpointMetadata,
    FileHandle,
    NativeHandle,
    OperatorState,
    RowGroup,
    SubtaskState,
    TableHandle,
)
from tidemark.checkpoint.metadata.registry import decode, encode, read_metadata, write_metadata

__all__ = [
    "METADATA_FILE",
    "CheckpointMetadata",
    "FileHandle",
    "NativeHandle",
    "OperatorState",
    "RowGroup",
    "SubtaskState",
    "TableHandle",
    "decode",
    "encode",
    "read_metadata",
    "write_metadata",
]
