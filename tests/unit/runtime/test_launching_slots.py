"""What goes wrong when slots are launched on the executors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tidemark.errors import ConfigError
from tidemark.protocol.failure import is_curable
from tidemark.runtime.spark_executor import _launch


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
