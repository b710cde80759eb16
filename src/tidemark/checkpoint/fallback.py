"""May a job go back behind output that is visible already? A pure decision.

Restoring a snapshot older than a completed one repeats the records between the two. State does not mind, it is
older too; but what sinks published for the newer one is visible, and would come a second time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidemark.checkpoint.completed import CompletedSnapshot, Origin
from tidemark.checkpoint.metadata.model import CheckpointMetadata
from tidemark.config.modes import FallbackPolicy
from tidemark.config.options import Options
from tidemark.errors import RestoreError

__all__ = ["Fallback", "LeftBehind", "Publisher", "decide_fallback"]

_OPTION = Options.CHECKPOINTING_ALLOW_FALLBACK.key
_NOUNS = {
    Origin.CHECKPOINT: "checkpoint",
    Origin.SAVEPOINT: "savepoint",
    Origin.EXTERNAL: "starting snapshot",
}


@dataclass(frozen=True, slots=True)
class Publisher:
    """A sink or function that makes something visible, or final, when a checkpoint completes."""

    name: str
    withdraws: bool
    """Whether it can take back what it published."""


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """A completed snapshot newer than the one to restore."""

    snapshot: CompletedSnapshot
    metadata: CheckpointMetadata | None
    """Lists what was published for it; None if it cannot be read."""


@dataclass(frozen=True, slots=True)
class Fallback:
    """What has to be done, and said, when the older snapshot is restored."""

    withdraw: tuple[CheckpointMetadata, ...] = ()
    """Snapshots whose output is to be taken back, in this order."""
    warning: str = ""


def decide_fallback(
    policy: FallbackPolicy,
    target: CompletedSnapshot,
    left: Sequence[LeftBehind],
    publishers: Sequence[Publisher],
    repeating: Sequence[str],
) -> Fallback:
    """What to do about output that came after `target`.

    Args:
        policy: What the user allows.
        target: The newest snapshot that is not known to be damaged. Only its metadata has been read; its state is
            when the job goes back to it.
        left: Every completed snapshot newer than it, newest first.
        publishers: Whatever published output for those.
        repeating: Names of at-least-once sinks.

    Raises:
        RestoreError: The policy forbids it, or the output cannot be taken back; names both snapshots.
    """
    if not left:
        return Fallback()
    newest = left[0].snapshot
    damaged = f"{_name(newest).capitalize()} ({newest.directory}) is damaged"
    older = f"{_name(target)} ({target.directory})"
    both = f"{damaged} and the newest snapshot that can be restored is {older}"
    if not publishers:
        told = f" What {_names(repeating)} wrote since then is written again." if repeating else ""
        return Fallback(warning=f"{both}; the job goes back to it.{told}")
    who = _names([publisher.name for publisher in publishers])
    match policy:
        case FallbackPolicy.DUPLICATE:
            return Fallback(
                warning=f"{both}. {_OPTION} is 'duplicate': the job goes back, and the OUTPUT that {who} published "
                "between the two COMES A SECOND TIME."
            )
        case FallbackPolicy.WITHDRAW:
            return Fallback(
                _withdrawn(f"{damaged}; the next older one is {older}", left, publishers),
                f"{both}. {_OPTION} is 'withdraw': what {who} published between the two is taken back.",
            )
    raise RestoreError(
        f"{damaged}. The next older one is {older}; its state has not been looked at and may share the damaged file "
        f"('tidemark verify' tells). {who} published output between the two, which would come a second time if the "
        f"job went back. Both snapshots were kept. Set {_OPTION} to 'withdraw' (file sinks take that output back) or "
        "to 'duplicate' (accept it twice). Starting the older one with 'tidemark run -s' takes the same option.",
        path=target.directory,
    )


def _withdrawn(
    both: str, left: Sequence[LeftBehind], publishers: Sequence[Publisher]
) -> tuple[CheckpointMetadata, ...]:
    unable = [publisher.name for publisher in publishers if not publisher.withdraws]
    if unable:
        raise RestoreError(
            f"{both}. {_OPTION} is 'withdraw', but {_names(unable)} cannot take output back. Both snapshots were "
            "kept. Set the option to 'duplicate' to accept output twice."
        )
    unlisted = [entry.snapshot for entry in left if entry.metadata is None]
    if unlisted:
        raise RestoreError(
            f"{both}. {_OPTION} is 'withdraw', but what was published for {_names(map(_name, unlisted))} is not "
            "known: its metadata cannot be read. Nothing was taken back and both snapshots were kept. Set "
            "the option to 'duplicate' and remove that output yourself, or accept it twice."
        )
    return tuple(entry.metadata for entry in left if entry.metadata is not None)


def _name(snapshot: CompletedSnapshot) -> str:
    return f"{_NOUNS[snapshot.origin]} {snapshot.checkpoint_id}"


def _names(names: Iterable[str]) -> str:
    return ", ".join(names)
