"""Who else may replace the checkpoints of a job is said once, at submission."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from tidemark.checkpoint.storage import FileSystemStorage
from tidemark.protocol.deployment import StorageChoice
from tidemark.runtime.storage_plan import StoragePlan, warn_of_shared_root

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give directories to somebody else")


def warnings_for(root: Path, caplog: pytest.LogCaptureFixture) -> list[str]:
    files = FileSystemStorage()
    with caplog.at_level(logging.WARNING):
        warn_of_shared_root(StoragePlan(files, files, str(root), StorageChoice()))
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize(("mode", "who"), [(0o777, "every user"), (0o770, "group")])
def test_a_root_that_others_may_write_is_named_with_the_remedy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, who: str
) -> None:
    tmp_path.chmod(mode)

    (warning,) = warnings_for(tmp_path, caplog)

    assert f"{tmp_path} may be changed by {who}" in warning
    assert "chmod +t" in warning


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o1777])
def test_a_root_that_nobody_else_can_rearrange_needs_no_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int
) -> None:
    tmp_path.chmod(mode)

    assert warnings_for(tmp_path, caplog) == []


def test_a_root_that_is_not_there_yet_needs_no_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert warnings_for(tmp_path / "new", caplog) == []


@as_root
def test_a_root_of_somebody_else_is_named_with_its_owner(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    os.chown(tmp_path, 65534, 65534)

    (warning,) = warnings_for(tmp_path, caplog)

    assert "user 65534, to whom it belongs" in warning
