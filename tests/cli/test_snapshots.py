"""`inspect`, `verify` and `savepoint -d`, and that none of the reading commands loads Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Command, process_environment, until_processed


@pytest.fixture
def savepoint(tide: Command, running_job: str, tmp_path: Path) -> Path:
    until_processed(running_job, 50)
    return Path(tide("stop", "-p", tmp_path / "sp", running_job).stdout.strip())


def test_inspect_names_operators_states_types_and_key_groups(tide: Command, savepoint: Path) -> None:
    text = tide("inspect", savepoint).stdout
    facts = json.loads(tide("inspect", savepoint / "_metadata", "--json").stdout)

    assert "Operator KEYED PROCESS (uid count): parallelism 2, 128 key groups" in text
    assert "value state count: 10 rows" in text
    assert "LongSerializer -> LongSerializer" in text
    assert "subtask 1  key groups 64-127" in text
    assert "operator state offset: split, 1 elements" in text
    assert facts["type"] == "savepoint"
    assert {operator["uid"] for operator in facts["operators"]} >= {"numbers", "count"}


def test_source_positions_are_readable(tide: Command, tmp_path: Path) -> None:
    from tidemark.checkpoint.metadata.model import CheckpointMetadata
    from tidemark.checkpoint.metadata.registry import write_metadata
    from tidemark.checkpoint.storage.filesystem import FileSystemStorage

    positions = {"numbers": b"\x91\x92\x05\x09", "text": b"line 7", "other": b"\xff\x00"}
    write_metadata(
        FileSystemStorage(),
        str(tmp_path / "sp"),
        CheckpointMetadata(1, 0, "0" * 32, source_positions=positions),
    )

    facts = json.loads(tide("--json", "inspect", tmp_path / "sp").stdout)

    assert facts["sources"] == {"numbers": [[5, 9]], "text": "line 7", "other": "ff00"}


def test_an_intact_snapshot_verifies(tide: Command, savepoint: Path) -> None:
    result = tide("verify", savepoint)

    assert (result.exit_code, result.stdout) == (0, f"{savepoint} is intact.\n")


def test_damage_is_found_and_is_an_error(tide: Command, savepoint: Path) -> None:
    metadata = savepoint / "_metadata"
    data = bytearray(metadata.read_bytes())
    data[len(data) // 2] ^= 0xFF
    metadata.write_bytes(data)

    result = tide("verify", savepoint, "--json")

    answer = json.loads(result.stdout)
    assert result.exit_code == 1
    assert not answer["intact"]
    assert answer["problems"]
    assert tide("inspect", savepoint).exit_code == 5


def test_a_path_without_a_snapshot_is_an_error_of_its_family(tide: Command, tmp_path: Path) -> None:
    for command in (["inspect"], ["verify"], ["savepoint", "-d"]):
        result = tide(*command, tmp_path)

        assert result.exit_code == 5
        assert "There is no completed checkpoint or savepoint" in result.stderr


def test_a_savepoint_is_disposed(tide: Command, savepoint: Path) -> None:
    result = tide("savepoint", "-d", savepoint)

    assert result.exit_code == 0
    assert not savepoint.exists()
    assert tide("inspect", savepoint).exit_code == 5


@pytest.mark.parametrize("arguments", [["list", "-a"], ["inspect", "{}"], ["verify", "{}"], ["--help"]])
def test_reading_commands_load_neither_spark_nor_pandas(arguments: list[str], savepoint: Path) -> None:
    script = (
        "import sys\n"
        "from tidemark.cli.main import cli\n"
        "code = cli(sys.argv[1:], standalone_mode=False)\n"
        "assert not code, code\n"
        "assert not {'pyspark', 'py4j', 'pandas'} & set(sys.modules)\n"
    )
    filled = [argument.format(savepoint) for argument in arguments]

    done = subprocess.run(
        [sys.executable, "-c", script, *filled],
        env=process_environment(),
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
