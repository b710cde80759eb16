"""PyFlink's five programs for Kafka, out of its wheel: they run with nothing changed but their imports.

They want a broker at localhost:9092; a forwarder listens there for the time of a test.
"""

from __future__ import annotations

import os
import re
import runpy
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.kafka.broker import Broker, wait_until

_fetch = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "fetch_pyflink.py"))
WHEEL = _fetch["cached_wheel"]()
FOLDER = "pyflink/examples/datastream/connectors/"
ROWS = [
    f"+I[{number},{word}]"
    for number, word in zip((1, 2, 3, 4, 5, 6, 6), ("hi", "hello") * 3 + ("hello",), strict=True)
]
PROGRAMS = {
    "kafka_avro_format": ("test_avro_topic", ROWS),
    "kafka_csv_format": ("test_csv_topic", ROWS),
    "kafka_json_format": ("test_json_topic", ROWS),
    "kafka_bytearray_format": (
        "test_bytearray_topic",
        [f'{{"id": {n}, "country": "{name}"}}' for n, name in ((1, "USA"), (2, "Canada"), (3, "Germany"))],
    ),
}

pytestmark = [
    pytest.mark.skipif(WHEEL is None, reason="the apache-flink wheel is not there: scripts/fetch_pyflink.py"),
    pytest.mark.modes("auto", reason="what the programs do is tested in both modes elsewhere"),
]


@pytest.fixture(scope="module")
def at_9092(broker: Broker) -> Iterator[Broker]:
    """The broker, reachable at localhost:9092 for a client's first connection."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", 9092))
    except OSError:
        listener.close()
        pytest.skip("PYFLINK'S KAFKA PROGRAMS DO NOT RUN: port 9092 is taken, and they want a broker there")
    listener.listen()
    target = ("127.0.0.1", int(broker.bootstrap.rpartition(":")[2]))
    threading.Thread(target=_forward_all, args=(listener, target), daemon=True).start()
    yield broker
    with suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def _forward_all(listener: socket.socket, target: tuple[str, int]) -> None:
    with suppress(OSError):
        while True:
            client, _ = listener.accept()
            server = socket.create_connection(target)
            for ends in ((client, server), (server, client)):
                threading.Thread(target=_forward, args=ends, daemon=True).start()


def _forward(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    for each in (source, sink):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def start(name: str, folder: Path) -> subprocess.Popen[bytes]:
    """Start a program of the wheel in the local executor; its output goes to a file."""
    with zipfile.ZipFile(WHEEL) as wheel:
        text = wheel.read(f"{FOLDER}{name}.py").decode()
    changed = re.sub(r"^from pyflink\.", "from tidemark.", text, flags=re.MULTILINE)
    (folder / f"{name}.py").write_text(changed)
    environment = {**os.environ, "TIDEMARK_EXECUTION_TARGET": "local", "PYTHONUNBUFFERED": "1"}
    with (folder / "out").open("wb") as out:
        return subprocess.Popen(
            [sys.executable, str(folder / f"{name}.py")], env=environment, cwd=folder, stdout=out, stderr=out
        )


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_that_write_and_read_print_what_they_wrote(at_9092, tmp_path, name):
    topic, expected = PROGRAMS[name]
    at_9092.create_topic(1, name=topic)
    out = tmp_path / "out"
    program = start(name, tmp_path)
    try:

        def printed():
            found = [line.partition("> ")[2] or line for line in out.read_text().splitlines()]
            assert program.poll() is None, out.read_text()
            return sorted(line for line in found if line in expected) == sorted(expected)

        wait_until(printed, f"{name} prints what it reads")
    finally:
        # It reads for ever.
        program.kill()
        program.wait()


def test_the_program_that_writes_keys_and_values_ends(at_9092, tmp_path):
    at_9092.create_topic(3, name="row-extractor-example")
    program = start("kafka_row_field_extractor_example", tmp_path)
    try:
        assert program.wait(120) == 0, (tmp_path / "out").read_text()
    finally:
        program.kill()
        program.wait()

    written = at_9092.read_committed("row-extractor-example")
    assert sorted(each.key() for each in written) == [b"user-001", b"user-001", b"user-002", b"user-003"]
    assert b'{"type": "purchase", "item": "keyboard", "price": 79.99}' in [each.value() for each in written]
