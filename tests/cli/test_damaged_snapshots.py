"""`run -s` on what is no usable snapshot: one clear paragraph and the exit code of its family, never a traceback."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Command, until, until_processed

from tidemark.cli.program import ProgramSettings, execute_program
from tidemark.runtime.control import live_jobs

Write = Callable[..., Path]
Damage = Callable[[Path], object]

LOCAL = ("execution.target=local", "state.backend.fs.memory-threshold=0")
KINDS = {
    "savepoint": ("state.backend=hashmap",),
    "rocksdb": (
        "state.backend=rocksdb",
        "state.backend.incremental=true",
        "execution.checkpointing.externalized-checkpoint-retention=RETAIN_ON_CANCELLATION",
    ),
}


UNLIMITED = (
    *("-D", "restart-strategy=fixed-delay"),
    *("-D", "restart-strategy.fixed-delay.attempts=1000000"),
    *("-D", "restart-strategy.fixed-delay.delay=1 ms"),
)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def state_file(directory: Path) -> Path:
    files = [*directory.glob("count/**/*.parquet"), *directory.parent.glob("shared/*.sst")]
    return max(files, key=lambda path: path.stat().st_size)


def a_link(path: Path) -> None:
    """Let the file be a link to something that gives an I/O error to any user."""
    path.unlink()
    path.symlink_to(f"/proc/{os.getpid()}/mem")


def something_else(directory: Path) -> None:
    (directory / "_metadata").write_text("name: value\n" * 20)


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, tuple[Damage, str]] = {
    "metadata missing": (lambda d: (d / "_metadata").unlink(), "_metadata is missing"),
    "metadata truncated": (lambda d: os.truncate(d / "_metadata", 60), "instead of"),
    "metadata empty": (lambda d: os.truncate(d / "_metadata", 0), "not the metadata"),
    "metadata flipped": (lambda d: flip(d / "_metadata"), "checksum does not match"),
    "metadata a link": (lambda d: a_link(d / "_metadata"), "symbolic link"),
    "metadata a directory": (lambda d: a_directory(d / "_metadata"), "_metadata is missing"),
    "state truncated": (lambda d: os.truncate(state_file(d), 30), "truncated"),
    "state flipped": (lambda d: flip(state_file(d)), "checksum"),
    "state missing": (lambda d: state_file(d).unlink(), "does not exist"),
    "state a directory": (lambda d: a_directory(state_file(d)), "no file"),
    "not ours": (something_else, "not the metadata of a tidemark checkpoint"),
}


def defines(kind: str, directory: Path) -> list[str]:
    settings = (*LOCAL, *KINDS[kind], f"state.checkpoints.dir={directory / 'checkpoints'}")
    return [part for define in settings for part in ("-D", define)]


@pytest.fixture
def snapshot(tide: Command, program: Write, tmp_path: Path, kind: str) -> Path:
    """A savepoint or retained checkpoint whose state is in files."""
    settings = ProgramSettings.of(defines(kind, tmp_path)[1::2])
    path = program(execute="env.execute_async", sink="add_sink(Nowhere())")
    with settings.applied(), execute_program(str(path), []):
        runner = live_jobs()[-1]
        job_id = runner.execution.job_id
        until_processed(job_id, 50)
        until(lambda: runner.execution.coordinator.completed.latest_checkpoint() is not None)
        stopped = tide(*(("stop", "-p", tmp_path / "sp") if kind == "savepoint" else ("cancel",)), job_id)
        runner.join()
    assert stopped.exit_code == 0
    return Path(stopped.stdout.strip()) if kind == "savepoint" else next(tmp_path.glob("checkpoints/*/chk-*"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_snapshot_is_told_in_one_paragraph(
    tide: Command, program: Write, snapshot: Path, damage: str, kind: str, tmp_path: Path
) -> None:
    spoil, told = DAMAGES[damage]
    spoil(snapshot)
    program_path = program(sink="add_sink(Nowhere())")

    text = tide("run", *defines(kind, tmp_path), "-s", snapshot, program_path, "10")
    machine = tide("--json", "run", *defines(kind, tmp_path), "-s", snapshot, program_path, "10")

    assert text.exit_code == machine.exit_code == 5, text.output
    assert told in text.stderr
    assert str(snapshot.parent) in text.stderr
    assert "Traceback" not in text.output + machine.output
    lines = [line for line in text.stderr.splitlines() if not line.startswith("Web page: ")]
    assert len(lines) == 1, text.stderr
    assert told in json.loads(machine.stderr)["error"]["message"]


@pytest.mark.parametrize("kind", ["savepoint"])
def test_a_snapshot_of_another_type_names_the_remedy_and_is_not_tried_again(
    tide: Command, program: Write, snapshot: Path, kind: str, tmp_path: Path
) -> None:
    other = program(descriptor='ValueStateDescriptor("count", Types.STRING())', sink="add_sink(Nowhere())")

    result = tide("run", *defines(kind, tmp_path), *UNLIMITED, "-s", snapshot, other, "10")

    assert result.exit_code == 7, result.output
    assert "give the operator a new uid" in result.stderr


@pytest.mark.parametrize("kind", ["rocksdb"])
def test_a_snapshot_of_another_backend_names_the_remedy_and_is_not_tried_again(
    tide: Command, program: Write, snapshot: Path, kind: str, tmp_path: Path
) -> None:
    result = tide(
        *("run", *defines("savepoint", tmp_path), *UNLIMITED, "-s", snapshot),
        *(program(sink="add_sink(Nowhere())"), "10"),
    )

    assert result.exit_code == 5, result.output
    assert "take a savepoint there, and restore that one here" in result.stderr
    assert "Traceback" not in result.stderr


AWAY = """
from pathlib import Path

from tidemark.checkpoint.storage import FileSystemStorage

FLAG = Path({flag!r})


class Away(FileSystemStorage):
    def read(self, path):
        if FLAG.exists():
            raise OSError(5, "Input/output error", path)
        return super().read(path)


class Cut(SinkFunction):
    def invoke(self, value, context):
        FLAG.touch()
        raise ValueError("the disk has gone away")
"""


@pytest.mark.parametrize("kind", ["savepoint"])
def test_a_job_whose_snapshot_cannot_be_read_until_its_restarts_run_out_ends_as_one_without_it(
    tide: Command, program: Write, snapshot: Path, kind: str, tmp_path: Path
) -> None:
    storage = f'CustomCheckpointStorage(Away(), "{tmp_path}/custom")'
    cut_off = program(
        sink="add_sink(Cut())",
        classes=AWAY.format(flag=str(tmp_path / "away")),
        execute=f"env.get_checkpoint_config().set_checkpoint_storage({storage})\n    env.execute",
    )
    limited = ("-D", "restart-strategy=fixed-delay", "-D", "restart-strategy.fixed-delay.attempts=2")
    delay = ("-D", "restart-strategy.fixed-delay.delay=1 ms")

    # More than the snapshot has read, so that there is a record to fail at.
    result = tide("run", *defines(kind, tmp_path), *limited, *delay, "-s", snapshot, cut_off, "1000000")

    assert "Input/output error" in result.stderr
    assert result.exit_code == 5, result.output
