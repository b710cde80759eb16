"""The session that tidemark makes."""

from __future__ import annotations

import socket
import stat
import struct
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.integration.conftest import SECRET_SETTING

pytestmark = pytest.mark.spark

RPC_REQUEST, RPC_RESPONSE = 3, 4
DEADLINE_S = 60


def test_sockets_of_python_workers_are_in_a_private_directory(spark: Any) -> None:
    directory = Path(spark.sparkContext.getConf().get("spark.python.unix.domain.socket.dir"))

    assert spark.sparkContext.parallelize([1, 2]).map(lambda n: n + 1).collect() == [2, 3]

    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert [path for path in directory.iterdir() if path.is_socket()]


def text(value: str) -> bytes:
    return struct.pack(">i", len(value)) + value.encode()


def answer_to_a_stranger(address: tuple[str, int], application: str, block: str) -> int | None:
    """The kind of message with which Spark answers the question for a block (`OpenBlocks`); None: it hangs up."""
    wish = b"\x00" + text(application) + text("driver") + struct.pack(">i", 1) + text(block)
    body = bytes([RPC_REQUEST]) + struct.pack(">qi", 1, len(wish)) + wish
    with socket.create_connection(address, DEADLINE_S) as connection:
        try:
            connection.sendall(struct.pack(">q", 8 + len(body)) + body)
            connection.shutdown(socket.SHUT_WR)
            answer = connection.makefile("rb").read(9)
        except ConnectionError:
            return None
    return answer[8] if len(answer) == 9 else None


def doors_of_jvm(jvm: psutil.Process) -> set[tuple[str, int]]:
    """The addresses at which it listens; an IPv4 address in its IPv6 form is told as IPv4."""
    connections = [c for c in jvm.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    return {(c.laddr.ip.removeprefix("::ffff:"), c.laddr.port) for c in connections}


def test_a_secret_of_the_configuration_reaches_the_session_and_no_command_line(spark: Any) -> None:
    [(key, secret)] = SECRET_SETTING.items()

    jvms = [process for process in psutil.Process().children(recursive=True) if process.name() == "java"]
    commands = [" ".join(jvm.cmdline()) for jvm in jvms]

    assert spark.sparkContext.getConf().get(key) == secret
    assert any("SparkSubmit" in command for command in commands)
    assert not [command for command in commands if secret in command]


def test_sparks_own_ports_give_no_block_to_strangers(spark: Any) -> None:
    context = spark.sparkContext
    secret = context.broadcast("a token, for instance")
    # Its data is behind the one of the description; any broadcast of the session would do.
    block = f"broadcast_{secret._jbroadcast.id()}_piece0"
    jvm = next(process for process in psutil.Process().children() if process.name() == "java")
    # The door of PySpark has a token of its own.
    doors = {door for door in doors_of_jvm(jvm) if door[1] != context._gateway.gateway_parameters.port}
    assert doors

    answers = {door: answer_to_a_stranger(door, context.applicationId, block) for door in doors}

    assert RPC_RESPONSE not in answers.values(), answers
