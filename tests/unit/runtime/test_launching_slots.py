"""Who launches slots, and what goes wrong when that is done on the executors."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tidemark.api.executor import JobSettings, PythonArtifacts
from tidemark.config import Configuration
from tidemark.errors import ConfigError
from tidemark.protocol.failure import is_curable
from tidemark.runtime.launch import driver_launches
from tidemark.runtime.spark_slots import SlotLauncher, _launch


def session_that_fails(text: str) -> Any:
    """A session whose jobs fail with `text`."""

    def collect() -> Any:
        raise RuntimeError(text)

    jobs = SimpleNamespace(mapPartitions=lambda _function: SimpleNamespace(collect=collect))
    return SimpleNamespace(sparkContext=SimpleNamespace(parallelize=lambda _items, _parts: jobs))


@pytest.mark.parametrize(
    ("told", "trouble"),
    [
        ("...\nModuleNotFoundError: No module named 'tidemark.runtime'\n...", "does not have tidemark"),
        (
            "...\nModuleNotFoundError: No module named 'msgspec'\n...",
            "does not have 'msgspec', which tidemark needs",
        ),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has a different version", "is of another version"),
    ],
)
def test_workers_that_cannot_be_used_are_named_and_not_tried_again(told: str, trouble: str) -> None:
    session = session_that_fails(told)

    with pytest.raises(ConfigError, match=f"Python of the Spark workers {trouble}") as caught:
        _launch(session, [{"slot": 0}])

    assert not is_curable(caught.value)


def test_other_failures_are_passed_on() -> None:
    with pytest.raises(RuntimeError, match="executor lost"):
        _launch(session_that_fails("executor lost"), [{"slot": 0}])


def test_the_driver_launches_slots_where_a_task_would_start_the_same_process() -> None:
    nothing = PythonArtifacts()

    assert driver_launches({"spark.master": "local[2]"}, nothing, [])
    assert driver_launches({}, nothing, [sys.executable])
    assert driver_launches({"spark.files.maxPartitionBytes": "1m", "spark.archives": ""}, nothing, [])
    # What Spark gives to the processes of executors, or ships to them, or another interpreter, only it can give.
    assert not driver_launches({"spark.executorEnv.SHOP": "42"}, nothing, [])
    assert not driver_launches({"spark.executor.pyspark.memory": "1g"}, nothing, [])
    assert not driver_launches({"spark.archives": "tables.zip#tables"}, nothing, [])
    assert not driver_launches({}, PythonArtifacts(files=("helper.py",)), [])
    assert not driver_launches({}, nothing, ["/bin/sh"])
    assert not driver_launches({}, nothing, ["no-such-python"])


def test_the_same_python_in_another_environment_is_another_interpreter(tmp_path: Path) -> None:
    (tmp_path / "python").symlink_to(sys.executable)

    assert not driver_launches({}, PythonArtifacts(), [str(tmp_path / "python")])


@pytest.mark.parametrize(
    ("in_driver", "options", "warned"),
    [
        (True, {"slotmanager.redundant-taskmanager-num": "2"}, False),
        (False, {}, False),
        (False, {"slotmanager.redundant-taskmanager-num": "2"}, True),
        (True, {"slotmanager.redundant-taskmanager-num": "2", "spark.executorEnv.SHOP": "42"}, True),
    ],
)
def test_spare_slots_are_not_asked_for_in_vain_without_a_word(
    in_driver: bool,
    options: dict[str, str],
    warned: bool,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    settings = JobSettings(configuration=Configuration.from_dict(options))

    SlotLauncher("0" * 32, settings, None, in_driver)

    assert ("no spare slots are kept" in caplog.text) is warned
