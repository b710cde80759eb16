"""Who may read what a job leaves on local disks: its owner, unless the user asks otherwise."""

from __future__ import annotations

import itertools
import logging
import os
import stat
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest
from tests.recovery.local_jobs import DEADLINE, Count, Numbers, finals, local_env, new_board

from tidemark import (
    Configuration,
    EmbeddedRocksDBStateBackend,
    ExternalizedCheckpointRetention,
    FsStateBackend,
    HashMapStateBackend,
    StreamExecutionEnvironment,
    Types,
)
from tidemark.checkpoint.storage.filesystem import FileSystemStorage
from tidemark.errors import ConfigError

STRANGER = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


@pytest.fixture(autouse=True)
def open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def modes(root: Path) -> tuple[set[int], set[int]]:
    """Modes of the directories and of the files below `root`."""
    found: tuple[set[int], set[int]] = (set(), set())
    for path in root.rglob("*"):
        found[path.is_file()].add(stat.S_IMODE(path.stat().st_mode))
    return found


def run(tmp_path, backend, settings=None):
    """Run until a checkpoint and a savepoint are there, and stop with both kept."""
    seen = new_board()
    root = tmp_path / "checkpoints"
    root.mkdir(exist_ok=True)
    root.chmod(0o755)
    env = local_env(
        {
            "state.checkpoints.dir": str(root),
            "state.savepoints.dir": str(tmp_path / "savepoints"),
            "state.backend.fs.memory-threshold": "0",
            **(settings or {}),
        },
        2,
        backend,
    )
    env.enable_checkpointing(10)
    env.get_checkpoint_config().set_externalized_checkpoint_retention(
        ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    )
    numbers = env.add_source(Numbers(seen.name, 2, 5, bounded=False), type_info=Types.LONG())
    counted = numbers.uid("numbers").key_by(lambda n: n % 3, Types.LONG()).process(Count()).uid("count")
    results = counted.execute_and_collect()
    client = results.get_job_client()
    seen.wait_set("emitted")
    client.trigger_savepoint().result(DEADLINE)
    seen.wait(lambda board: any(event[0] == "complete" for event in board.events))
    client.cancel().result(DEADLINE)
    return root


@pytest.mark.parametrize("backend", [HashMapStateBackend, lambda: EmbeddedRocksDBStateBackend(True)])
def test_checkpoints_and_savepoints_are_private_and_the_users_own_directory_stays(tmp_path, backend):
    root = run(tmp_path, backend())

    for place in (root, tmp_path / "savepoints"):
        directories, files = modes(place)
        assert directories <= {0o700}
        assert files == {0o600}
    assert stat.S_IMODE(root.stat().st_mode) == 0o755


def test_the_group_may_read_if_the_user_says_so(tmp_path):
    root = run(tmp_path, HashMapStateBackend(), {"fs.permissions.umask-mode": "027"})

    assert modes(root) == ({0o750}, {0o640})


@pytest.mark.parametrize("value", ["private", "63", "777", "0777", "088", ""])
def test_a_umask_that_is_none_is_refused(tmp_path, value):
    with pytest.raises(ConfigError, match=r"fs\.permissions\.umask-mode"):
        run(tmp_path, HashMapStateBackend(), {"fs.permissions.umask-mode": value})


@as_root
def test_another_user_reads_nothing_of_a_checkpoint(tmp_path):
    root = run(tmp_path, HashMapStateBackend())
    for directory in (tmp_path, *tmp_path.parents):
        if directory.is_relative_to(tempfile.gettempdir()) and directory != Path(tempfile.gettempdir()):
            directory.chmod(0o755)

    seen = subprocess.run(
        ["find", str(root)],
        user=STRANGER,
        group=STRANGER,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.splitlines()

    # That there is a job, and nothing of it.
    assert [Path(path).name for path in seen[1:]] == [path.name for path in root.iterdir()]
    assert len(seen) == 2


def test_a_link_in_the_place_of_a_temporary_file_is_not_followed(tmp_path):
    storage = FileSystemStorage()
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "_metadata").symlink_to(tmp_path / "precious")

    storage.write(str(tmp_path / "_metadata"), b"new")

    assert (tmp_path / "precious").read_text() == "mine"
    assert not (tmp_path / "_metadata").is_symlink()


def wait_for(condition):
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def put_in_place_of(job, planted):
    """Replace the directory of a running job, whose next checkpoint may make it again in between."""
    for turn in itertools.count():
        with suppress(FileNotFoundError):
            job.rename(job.with_name(f"old-{turn}"))
        with suppress(OSError):
            planted.rename(job)
            return


@as_root
@pytest.mark.parametrize("linked", ["shared", "job"])
def test_a_job_deletes_nothing_behind_links_in_its_checkpoint_directory(tmp_path, caplog, linked):
    seen = new_board()
    root, precious = tmp_path / "checkpoints", tmp_path / "precious"
    (precious / "shared").mkdir(parents=True)
    for place in (precious, precious / "shared"):
        (place / "keys").write_text("mine")
    root.mkdir()
    root.chmod(0o777)
    env = local_env(
        {"state.checkpoints.dir": str(root), "state.backend.fs.memory-threshold": "0"},
        1,
        EmbeddedRocksDBStateBackend(True),
    )
    env.enable_checkpointing(10)
    env.get_checkpoint_config().set_tolerable_checkpoint_failure_number(1_000_000)
    env.get_checkpoint_config().set_externalized_checkpoint_retention(
        ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    )
    numbers = env.add_source(Numbers(seen.name, 2, 5, bounded=False), type_info=Types.LONG())
    with caplog.at_level(logging.WARNING):
        results = numbers.key_by(lambda n: n % 3, Types.LONG()).process(Count()).execute_and_collect()
        client = results.get_job_client()
        seen.wait(lambda board: any(event[0] == "complete" for event in board.events))

        (job,) = root.iterdir()
        planted = root / "planted"
        if linked == "job":
            planted.symlink_to(precious)
        else:
            planted.mkdir()
            (planted / "shared").symlink_to(precious)
            os.chown(planted, STRANGER, STRANGER)
        put_in_place_of(job, planted)
        # The next checkpoint is refused, or else completes behind the link.
        wait_for(
            lambda: (
                "is a symbolic link" in caplog.text
                or "belongs to user" in caplog.text
                or any(job.glob("chk-*/_metadata"))
            )
        )
        client.cancel().result(DEADLINE)

    assert [(precious / "keys").read_text(), (precious / "shared" / "keys").read_text()] == ["mine", "mine"]
    assert f"{root} may be changed by every user" in caplog.text


def local_recovery(tmp_path):
    seen = new_board()
    env = local_env(
        {
            "state.checkpoints.dir": str(tmp_path / "checkpoints"),
            "state.backend.fs.memory-threshold": "0",
            "state.backend.local-recovery": "true",
            "taskmanager.state.local.root-dirs": str(tmp_path / "local"),
        },
        1,
        HashMapStateBackend(),
    )
    env.enable_checkpointing(10)
    numbers = env.add_source(Numbers(seen.name, 3, 5, bounded=False), type_info=Types.LONG())
    counted = numbers.key_by(lambda n: n % 3, Types.LONG()).process(Count())
    results = counted.execute_and_collect()
    seen.wait_set("emitted")
    seen.wait(lambda board: any(event[0] == "complete" for event in board.events))
    shown = modes(tmp_path / "local"), sorted((tmp_path / "local").rglob("*.parquet"))
    seen.set("end")
    assert finals(results) == {k: 5 for k in range(3)}
    return shown


def test_local_copies_are_private_in_a_directory_of_the_user(tmp_path):
    (directories, files), tables = local_recovery(tmp_path)

    assert tables
    assert directories == {0o700}
    assert files == {0o600}
    assert tables[0].relative_to(tmp_path / "local").parts[0] == f"tidemark-copies-{os.geteuid()}"


@as_root
def test_local_copies_are_not_kept_in_a_directory_of_somebody_else(tmp_path, caplog):
    taken = tmp_path / "local" / f"tidemark-copies-{os.geteuid()}"
    taken.mkdir(parents=True)
    os.chown(taken, STRANGER, STRANGER)

    with caplog.at_level(logging.WARNING):
        _modes, tables = local_recovery(tmp_path)

    assert tables == []
    assert list(taken.iterdir()) == []
    assert f"{taken} belongs to user {STRANGER}" in caplog.text


def test_local_files_of_rocksdb_are_private_and_go_with_the_job(tmp_path):
    seen = new_board()
    place = tmp_path / "rocks"
    backend = EmbeddedRocksDBStateBackend()
    backend.set_db_storage_paths(str(place))
    env = local_env({}, 1, backend)
    numbers = env.add_source(Numbers(seen.name, 1, 5, bounded=False), type_info=Types.LONG())
    env.enable_checkpointing(10)
    results = numbers.key_by(lambda n: n % 3, Types.LONG()).process(Count()).execute_and_collect()
    seen.wait_set("emitted")

    found = {stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()}
    seen.set("end")
    list(results)

    assert found == {0o700}
    results.get_job_client().get_job_execution_result().result(DEADLINE)
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("directory", ["file:///proc/nowhere", "file:///dev/null/below-a-file"])
def test_a_directory_that_cannot_hold_checkpoints_is_refused_at_submission(directory: str) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration().set_string("execution.target", "local")
    )
    env.enable_checkpointing(100)
    env.set_state_backend(FsStateBackend(directory))
    env.from_collection([1]).print()

    with pytest.raises(
        ConfigError, match=r"cannot be kept in .* \(state.checkpoints.dir\): .* cannot be made"
    ):
        env.execute()


def test_looking_at_the_checkpoint_directory_leaves_nothing_in_it(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration().set_string("execution.target", "local")
    )
    env.enable_checkpointing(100)
    env.set_state_backend(FsStateBackend(f"file://{tmp_path}/checkpoints"))
    env.from_collection([1]).print()

    env.execute()

    assert not list((tmp_path / "checkpoints").glob(".probe*"))
