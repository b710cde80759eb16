"""Who else may replace the checkpoints or output of a job is said once, at submission."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from tidemark import Configuration, Encoder, FileSink, StreamExecutionEnvironment, Types
from tidemark.api.executor import JobSettings
from tidemark.checkpoint.storage import FileSystemStorage
from tidemark.protocol.deployment import StorageChoice
from tidemark.runtime.storage_plan import StoragePlan, warn_of_others

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give directories to somebody else")


def warnings_for(root: Path, caplog: pytest.LogCaptureFixture, umask: int = 0o077) -> list[str]:
    files = FileSystemStorage()
    plan = StoragePlan(files, files, str(root), StorageChoice(umask=umask))
    with caplog.at_level(logging.WARNING):
        warn_of_others(plan, JobSettings())
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize(("mode", "who"), [(0o777, "every user"), (0o770, "group")])
def test_a_root_that_others_may_write_is_named_with_the_remedy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, who: str
) -> None:
    tmp_path.chmod(mode)

    (warning,) = warnings_for(tmp_path, caplog)

    assert f"{tmp_path} may be changed by {who}" in warning
    assert "chmod +t" in warning
    assert "files of their own are refused" in warning


def test_a_warning_says_that_shared_checkpoints_may_run_code(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tmp_path.chmod(0o770)

    (warning,) = warnings_for(tmp_path, caplog, umask=0o007)

    assert "may run code as you" in warning


@pytest.mark.parametrize("there", [True, False], ids=["made", "to be made"])
def test_a_directory_above_the_root_that_others_may_write_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, there: bool
) -> None:
    open_to_all = tmp_path / "open"
    root = open_to_all / "mine" / "checkpoints"
    (root if there else open_to_all).mkdir(parents=True)
    open_to_all.chmod(0o777)

    (warning,) = warnings_for(root, caplog)

    assert f"{open_to_all}, on the way to {root}, may be changed by every user" in warning


@pytest.mark.parametrize("relative", [False, True])
def test_a_directory_behind_a_link_on_the_way_is_looked_at(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, relative: bool
) -> None:
    open_to_all = tmp_path / "open"
    (open_to_all / "checkpoints").mkdir(parents=True)
    open_to_all.chmod(0o777)
    (tmp_path / "link").symlink_to("./x/../open" if relative else open_to_all)
    (tmp_path / "x").mkdir()

    (warning,) = warnings_for(tmp_path / "link" / "checkpoints", caplog)

    assert f"{open_to_all}, on the way to {tmp_path}/link/checkpoints, may be changed by" in warning


def test_links_that_lead_nowhere_need_no_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nothing")

    assert warnings_for(tmp_path / "loop" / "checkpoints", caplog) == []
    assert warnings_for(tmp_path / "dangling" / "checkpoints", caplog) == []


@as_root
def test_a_link_that_its_owner_may_replace_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "sticky").mkdir()
    link = tmp_path / "sticky" / "link"
    link.symlink_to(tmp_path / "mine")
    os.chown(link, 65534, 65534, follow_symlinks=False)

    (tmp_path / "sticky").chmod(0o755)
    assert warnings_for(link, caplog) == []
    (tmp_path / "sticky").chmod(0o1777)
    (warning,) = warnings_for(link, caplog)
    assert f"{link} may be changed by user 65534, to whom the link belongs" in warning


@as_root
def test_a_directory_above_the_root_that_is_somebody_elses_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "theirs" / "checkpoints"
    root.mkdir(parents=True)
    os.chown(root.parent, 65534, 65534)

    (warning,) = warnings_for(root, caplog)

    assert f"{root.parent}, on the way to {root}, may be changed by user 65534, to whom it belongs" in warning


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


@pytest.mark.parametrize("mode", [0o777, 0o755, 0o1777])
def test_output_that_others_may_rearrange_is_named_when_a_job_is_submitted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int
) -> None:
    base = tmp_path / "out"
    base.mkdir()
    base.chmod(mode)
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration().set_string("execution.target", "local")
    )
    sink = FileSink.for_row_format(str(base), Encoder.simple_string_encoder()).build()
    env.from_collection(["a"], Types.STRING()).sink_to(sink)

    with caplog.at_level(logging.WARNING):
        env.execute()

    # A job that ends at that moment in another thread puts logging back, and a line may go both ways.
    told = {message for message in caplog.messages if "may be changed by" in message}
    assert len(told) == (mode == 0o777)
    assert all(f"The base path {base} of the file sink" in message for message in told)


@pytest.mark.parametrize(("kind", "told"), [("filesystem", 1), ("none", 0)])
def test_a_directory_of_high_availability_that_others_may_write_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, told: int
) -> None:
    leaders = tmp_path / "ha"
    leaders.mkdir()
    leaders.chmod(0o777)
    options = {"high-availability.type": kind, "high-availability.storageDir": str(leaders)}
    files = FileSystemStorage()
    plan = StoragePlan(files, files, str(tmp_path / "checkpoints"), StorageChoice())

    with caplog.at_level(logging.WARNING):
        warn_of_others(plan, JobSettings(configuration=Configuration.from_dict(options)))

    expected = (
        {f"The directory of high availability {leaders} may be changed by every user"} if told else set()
    )
    assert {message.partition(" (mode")[0] for message in caplog.messages} == expected
