"""The session that tidemark makes."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark


def test_sockets_of_python_workers_are_in_a_private_directory(spark: Any) -> None:
    directory = Path(spark.sparkContext.getConf().get("spark.python.unix.domain.socket.dir"))

    assert spark.sparkContext.parallelize([1, 2]).map(lambda n: n + 1).collect() == [2, 3]

    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert [path for path in directory.iterdir() if path.is_socket()]
