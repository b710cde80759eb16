"""Places where the bytes of checkpoints and savepoints live."""

from __future__ import annotations

from tidemark.checkpoint.storage.base import Storage
from tidemark.checkpoint.storage.filesystem import FileSystemStorage
from tidemark.checkpoint.storage.memory import MemoryStorage

__all__ = ["FileSystemStorage", "MemoryStorage", "Storage"]
