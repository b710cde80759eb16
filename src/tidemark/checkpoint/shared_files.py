"""Which files in `shared/` may be deleted: reference counting over completed checkpoints, pure.

A file is deleted when no retained checkpoint refers to it any more, but not while a snapshot is pending
that was triggered before: its slots may just be deciding to refer to a file of their base.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

__all__ = ["SharedFiles"]


class SharedFiles:
    """References from completed checkpoints to shared files."""

    def __init__(self) -> None:
        self._references: dict[int, frozenset[str]] = {}
        self._waiting: dict[str, set[int]] = {}

    def register(self, checkpoint_id: int, files: Iterable[str]) -> None:
        """A completed checkpoint refers to these files."""
        self._references[checkpoint_id] = frozenset(files)

    def release(self, checkpoint_id: int, pending: Collection[int]) -> tuple[str, ...]:
        """A checkpoint is dropped; return what may be deleted now.

        Args:
            checkpoint_id: The dropped checkpoint.
            pending: Snapshots in the making; what they might refer to is kept until they ended.
        """
        return self.drop(self._references.pop(checkpoint_id, frozenset()), pending)

    def drop(self, files: Iterable[str], pending: Collection[int]) -> tuple[str, ...]:
        """Somebody no longer needs these files; return those that may be deleted now."""
        for name in files:
            if not self.is_referenced(name):
                self._waiting.setdefault(name, set()).update(pending)
        return self._ready()

    def ended(self, checkpoint_id: int) -> tuple[str, ...]:
        """A pending snapshot completed (and was registered) or was aborted; return what may go now."""
        for waiting in self._waiting.values():
            waiting.discard(checkpoint_id)
        return self._ready()

    def is_referenced(self, name: str) -> bool:
        """Whether a retained checkpoint needs the file."""
        return any(name in files for files in self._references.values())

    def _ready(self) -> tuple[str, ...]:
        settled = sorted(name for name, waiting in self._waiting.items() if not waiting)
        for name in settled:
            del self._waiting[name]
        return tuple(name for name in settled if not self.is_referenced(name))
