"""May a job go back behind visible output? The decision alone."""

from __future__ import annotations

import pytest

from tidemark.checkpoint.completed import CompletedSnapshot, Origin
from tidemark.checkpoint.fallback import Fallback, LeftBehind, Publisher, decide_fallback
from tidemark.checkpoint.metadata import CheckpointMetadata
from tidemark.config.modes import FallbackPolicy
from tidemark.errors import RestoreError

TARGET = CompletedSnapshot(3, "/c/chk-3", Origin.CHECKPOINT)
FILES = Publisher("sink 'files'", withdraws=True)
COLLECT = Publisher("sink 'collect'", withdraws=False)


def left(checkpoint_id: int, *, listed: bool = True) -> LeftBehind:
    snapshot = CompletedSnapshot(checkpoint_id, f"/c/chk-{checkpoint_id}", Origin.CHECKPOINT)
    return LeftBehind(snapshot, CheckpointMetadata(checkpoint_id, 0, "job") if listed else None)


@pytest.mark.parametrize("policy", FallbackPolicy)
def test_the_newest_snapshot_is_restored_without_a_word(policy: FallbackPolicy) -> None:
    assert decide_fallback(policy, TARGET, [], [FILES, COLLECT], ["print"]) == Fallback()


def test_by_default_the_job_fails_and_both_checkpoints_and_the_option_are_named() -> None:
    with pytest.raises(RestoreError) as caught:
        decide_fallback(FallbackPolicy.NEVER, TARGET, [left(5), left(4)], [FILES], [])

    for part in ("/c/chk-5", "/c/chk-3", "execution.checkpointing.allow-fallback", "sink 'files'", "run -s"):
        assert part in str(caught.value)
    assert "can be restored" not in str(caught.value), "the older one may share the damaged file"
    assert "tidemark verify" in str(caught.value)


@pytest.mark.parametrize("policy", FallbackPolicy)
def test_without_published_output_going_back_is_allowed_and_said(policy: FallbackPolicy) -> None:
    fallback = decide_fallback(policy, TARGET, [left(4)], [], ["sink 'print'"])

    assert fallback.withdraw == ()
    assert "chk-4" in fallback.warning
    assert "sink 'print' wrote since then is written again" in fallback.warning


def test_duplicates_are_accepted_loudly() -> None:
    fallback = decide_fallback(FallbackPolicy.DUPLICATE, TARGET, [left(4, listed=False)], [COLLECT], [])

    assert fallback.withdraw == ()
    assert "SECOND TIME" in fallback.warning


def test_all_output_between_the_two_is_withdrawn_newest_first() -> None:
    entries = [left(5), left(4)]

    fallback = decide_fallback(FallbackPolicy.WITHDRAW, TARGET, entries, [FILES], [])

    assert fallback.withdraw == tuple(entry.metadata for entry in entries)
    assert "taken back" in fallback.warning


def test_nothing_is_withdrawn_if_one_publisher_cannot() -> None:
    with pytest.raises(RestoreError, match="sink 'collect' cannot take output back"):
        decide_fallback(FallbackPolicy.WITHDRAW, TARGET, [left(4)], [FILES, COLLECT], [])


def test_nothing_is_withdrawn_if_one_checkpoint_in_between_cannot_be_listed() -> None:
    with pytest.raises(RestoreError, match=r"checkpoint 4 is not known.*'duplicate'"):
        decide_fallback(FallbackPolicy.WITHDRAW, TARGET, [left(5), left(4, listed=False)], [FILES], [])
