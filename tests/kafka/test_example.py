"""The example runs against a real broker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.kafka.broker import Broker

ROOT = Path(__file__).parents[2]


@pytest.mark.modes("auto", reason="what it does is tested in both modes elsewhere")
def test_words_are_counted_from_topic_to_topic(broker: Broker, tmp_path: Path) -> None:
    words, counts = broker.create_topic(2), broker.create_topic(1)
    broker.produce(words, ["a", "b", "a"], partition=0)
    command = [
        sys.executable,
        str(ROOT / "examples/kafka_to_kafka.py"),
        broker.bootstrap,
        words,
        counts,
        "bounded",
    ]
    environment = {**os.environ, "TIDEMARK_EXECUTION_TARGET": "local", "TMPDIR": str(tmp_path)}

    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)

    assert done.returncode == 0, done.stderr
    assert sorted(broker.committed_values(counts)) == ["a 1", "a 2", "b 1"]
