"""Which files the incremental checkpoints of a heap backend consist of, and what the next one has to add.

A checkpoint is a chain of files per state. The next one goes on with the chains of the checkpoint it is based on, so
that what a checkpoint wrote that never completed is in none of the later ones, and what had changed for it is written
once more. A chain that has become long, or whose changes are as many as half of the state, is begun anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemark.backends.chain_files import KIND, ChainNames
from tidemark.state.snapshot import FileContent, Increment, NativeCut, StateMeta

__all__ = ["MAX_CHANGES", "Chain", "Chains", "Link"]

MAX_CHANGES = 10
"""Files with changes that a chain has at most, unless an option says otherwise."""
_LARGEST_SHARE = 0.5


@dataclass(slots=True)
class Link:
    """One file of a chain."""

    name: str
    rows: int = 0
    """Known once it was written, hence to everybody who goes on with it."""


@dataclass(frozen=True, slots=True)
class Chain:
    """The files of one state, oldest first."""

    meta: StateMeta
    links: tuple[Link, ...]

    def can_go_on(self, meta: StateMeta, most: int) -> bool:
        """Whether changes of the state as it is now may follow, `most` of them altogether."""
        whole, *changes = self.links
        changed = sum(link.rows for link in changes)
        return self.meta == meta and len(changes) < most and changed <= _LARGEST_SHARE * whole.rows

    def followed_by(self, link: Link) -> Chain:
        """The same with one more file."""
        return Chain(self.meta, (*self.links, link))


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    """An incremental checkpoint that others may be based on."""

    cut: int
    chains: dict[str, Chain] = field(default_factory=dict)


class Chains:
    """The incremental checkpoints of one backend that are pending or the base of the next one."""

    def __init__(self, most: int = MAX_CHANGES) -> None:
        """Start without any.

        Args:
            most: Files with changes that a chain may have.
        """
        self.most = most
        self._checkpoints: dict[int, _Checkpoint] = {}

    @property
    def oldest_cut(self) -> int | None:
        """The oldest cut since which changes may be asked for."""
        return min([each.cut for each in self._checkpoints.values()], default=None)

    def completed(self, checkpoint_id: int) -> None:
        """No checkpoint before this one will be the base of another."""
        for older in [each for each in self._checkpoints if each < checkpoint_id]:
            del self._checkpoints[older]

    def base_of(self, increment: Increment) -> tuple[int, Mapping[str, Chain]]:
        """Number of the cut to go on from and its chains; no chains if everything is to be written."""
        if increment.base is None:
            return 0, {}
        self.completed(increment.base)
        base = self._checkpoints.get(increment.base)
        return (0, {}) if base is None else (base.cut, base.chains)

    def add(
        self, increment: Increment, cut: int, chains: dict[str, Chain], written: Mapping[str, FileContent]
    ) -> NativeCut:
        """A checkpoint is made of these chains; `written` are the files that no other one has."""
        self._checkpoints[increment.checkpoint_id] = _Checkpoint(cut, chains)
        names = {state: [link.name for link in chain.links] for state, chain in chains.items()}
        files = {name: written.get(name) for links in names.values() for name in links}
        return NativeCut(KIND, files, frozenset(files), ChainNames(names).to_bytes())

    def forget(self, state: str) -> None:
        """The next checkpoint writes all of the state."""
        for checkpoint in self._checkpoints.values():
            checkpoint.chains.pop(state, None)

    def clear(self) -> None:
        """The next checkpoint writes everything."""
        self._checkpoints.clear()
