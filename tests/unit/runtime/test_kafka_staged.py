"""What the staged files of a snapshot mean to a Kafka sink, without a broker: written, to be written, or unknown."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from tidemark.checkpoint.metadata.model import CheckpointMetadata
from tidemark.errors import RestoreError
from tidemark.runtime.places import open_place
from tidemark.runtime.sinks.frontier import Frontier
from tidemark.runtime.sinks.kafka_commits import StagedGroup
from tidemark.runtime.sinks.kafka_staged import StagedRecords, reached
from tidemark.runtime.sinks.staged_files import StagedFile

CLAIM = f".tidemark-{'0' * 32}"
EARLIER, PRESENT = ".area-00000001-0123456789abcdef", ".area-00000002-fedcba9876543210"
GROUP = "consumer group of the marker"
RESTORED = CheckpointMetadata(8, 0, "job", lineage="job")


class Staging:
    """The staging directory of a sink, with files of an earlier driver that have moved to the area of this one."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.base.mkdir()
        self.records = StagedRecords(
            open_place(str(base)),
            str(base),
            CLAIM,
            f"{CLAIM}/{PRESENT}",
            "out",
            "The sink",
            lambda _: nullcontext(),
        )

    def listed(self, name: str, *, there: bool) -> StagedFile:
        if there:
            area = self.base / CLAIM / PRESENT
            area.mkdir(parents=True, exist_ok=True)
            (area / f".{name}.inprogress").touch()
        return StagedFile(
            f"{self.base}/{CLAIM}/{EARLIER}/.{name}.inprogress", f"{self.base}/{name}", 1, 0, ""
        )

    def unpublished(
        self,
        *files: tuple[int, StagedFile],
        published: Frontier | None = None,
        marker: str | None = None,
        repeat: bool = False,
    ) -> list[StagedFile]:
        groups = [StagedGroup(checkpoint, [file]) for checkpoint, file in files]
        return self.records.unpublished(groups, RESTORED, published, marker, repeat=repeat)


@pytest.fixture
def staging(tmp_path: Path) -> Staging:
    return Staging(tmp_path / "staging")


@pytest.fixture
def former(tmp_path: Path) -> Staging:
    """Where the sink staged files before it was given another directory."""
    return Staging(tmp_path / "former")


@pytest.mark.parametrize(
    ("published", "checkpoint"),
    [
        pytest.param(None, -1, id="nobody knows"),
        pytest.param(Frontier("job", 7), 7, id="the job itself"),
        pytest.param(Frontier("next", 0, "job", 8), 8, id="a job that started from the snapshot"),
        pytest.param(Frontier("next", 3, "job", 7), -1, id="a job that started from another one"),
        pytest.param(Frontier("other", 9), -1, id="another job"),
    ],
)
def test_records_are_known_to_be_in_kafka_up_to_a_checkpoint(published, checkpoint) -> None:
    assert reached(published, RESTORED) == checkpoint


@pytest.mark.parametrize("there", [True, False])
def test_what_the_marker_does_not_cover_is_to_be_written(staging: Staging, there: bool) -> None:
    written, left = staging.listed("a", there=False), staging.listed("b", there=there)

    # A file that is lost is found to be so when it is read.
    assert staging.unpublished((7, written), (8, left), published=Frontier("job", 7)) == [left]


def test_without_the_marker_what_is_still_staged_is_written_only_if_duplicates_are_accepted(
    staging: Staging,
) -> None:
    file = staging.listed("a", there=True)

    with pytest.raises(RestoreError, match=f"still staged.*{GROUP}"):
        staging.unpublished((8, file), marker=GROUP)
    assert staging.unpublished((8, file), marker=GROUP, repeat=True) == [file]


def test_without_the_marker_what_is_staged_no_more_was_written(staging: Staging) -> None:
    assert staging.unpublished((8, staging.listed("a", there=False)), marker=GROUP) == []


@pytest.mark.parametrize(("marker", "there"), [(None, True), (None, False), (GROUP, True)])
def test_records_that_wait_at_a_former_directory_are_out_of_reach(
    staging: Staging, former: Staging, marker: str | None, there: bool
) -> None:
    with pytest.raises(RestoreError, match="lies outside of the sink's staging area"):
        staging.unpublished((8, former.listed("a", there=there)), marker=marker)


def test_records_at_a_former_directory_that_are_in_kafka_are_not_missed(
    staging: Staging, former: Staging
) -> None:
    file = former.listed("a", there=False)

    assert staging.unpublished((8, file), marker=GROUP) == []
    assert staging.unpublished((8, file), published=Frontier("job", 8)) == []
