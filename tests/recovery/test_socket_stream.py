"""`socket_text_stream`: records as the server cuts them, its end, its return, its absence."""

from __future__ import annotations

import contextlib
import socket
import threading

import pytest
from tests.recovery.local_jobs import DEADLINE, local_env

from tidemark import RestartStrategies
from tidemark.api.specs import SocketSourceSpec
from tidemark.errors import ConfigError, ExecutionError
from tidemark.runtime.sources.socket_lines import SocketLines


@contextlib.contextmanager
def server(*talks):
    """Serves one connection after the other: sends the chunks of its talk, then closes. Yields the port."""
    listening = socket.create_server(("127.0.0.1", 0))
    listening.settimeout(DEADLINE)

    def serve():
        for chunks in talks:
            with listening.accept()[0] as connection:
                for chunk in chunks:
                    connection.sendall(chunk)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        thread.join(DEADLINE)
        listening.close()


def collected(port, *args, **settings):
    env = local_env(settings)
    env.set_restart_strategy(RestartStrategies.no_restart())
    return list(env.socket_text_stream("127.0.0.1", port, *args).execute_and_collect())


def test_lines_come_whole_whatever_the_network_cuts():
    text = "α\r\nbeta\n\nγ at the end".encode()
    with server([text[:1], text[1:5], text[5:]]) as port:
        assert collected(port) == ["α", "beta", "", "γ at the end"]


def test_a_delimiter_may_be_longer_than_a_character():
    with server([b"a|", b"|b\r||c"]) as port:
        assert collected(port, "||") == ["a", "b\r", "c"]


def test_more_than_an_epoch_takes_arrives_in_order():
    lines = [f"{n:06d}" for n in range(50_000)]
    with server(["\n".join(lines).encode()]) as port:
        assert collected(port) == lines


def test_a_server_that_closes_is_connected_to_again_as_often_as_allowed():
    with server([b"a\nhalf "], [b"line\n"], [b"b\n"]) as port:
        assert collected(port, "\n", 3) == ["a", "half line", "b"]


def test_a_server_that_is_not_there_fails_the_job_and_is_named():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ExecutionError, match=rf"cannot connect to 127\.0\.0\.1:{port}"):
        collected(port)


def test_a_socket_wakes_whoever_waits_and_gives_what_is_there_at_once():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        lines = SocketLines(SocketSourceSpec("127.0.0.1", listening.getsockname()[1], "\n", 0))
        with listening.accept()[0] as connection:
            assert lines.read(5, 0) == []
            assert lines.fileno() is not None
            connection.sendall(b"1\n2\n3\n")
            assert lines.read(2, DEADLINE) == ["1", "2"]
            assert lines.read(2, 0) == ["3"]
        assert lines.read(1, DEADLINE) is None
        assert lines.fileno() is None
        lines.close()


@pytest.mark.parametrize("arguments", [(0,), (70_000,), (80, "")])
def test_ports_and_delimiters_that_make_no_sense_are_refused(arguments):
    with pytest.raises(ConfigError, match=r"port|delimiter"):
        local_env().socket_text_stream("localhost", *arguments)


def test_a_socket_with_checkpoints_is_warned_about(caplog):
    with server([b"a\n"]) as port:
        env = local_env()
        env.enable_checkpointing(10)
        assert list(env.socket_text_stream("127.0.0.1", port).execute_and_collect()) == ["a"]
    assert "cannot be read again" in caplog.text
