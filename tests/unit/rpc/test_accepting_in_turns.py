"""An acceptor at whose door strangers never end: those who are proving themselves have their turn."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

from tidemark.rpc.acceptor import Acceptor
from tidemark.wire import Connection, connect

TOKEN = b"t" * 32


class EndlessListener(socket.socket):
    """Behind the first client there is always one more, who is gone again by the time he is looked at."""

    honest = True

    def accept(self) -> tuple[socket.socket, str]:
        if self.honest:
            self.honest = False
            return super().accept()
        mine, theirs = socket.socketpair()
        theirs.close()
        return mine, ""


def test_strangers_without_end_who_fail_at_once_do_not_keep_a_client_out(tmp_path: Path) -> None:
    listener = EndlessListener(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(tmp_path / "door"))
    listener.listen()
    served = threading.Event()

    def serve(connection: Connection) -> None:
        served.set()
        connection.close()

    acceptor = Acceptor([listener], TOKEN, serve, name="door")
    try:
        connect(f"unix:{tmp_path / 'door'}", TOKEN, timeout=5).close()
        assert served.wait(5)
    finally:
        acceptor.close()
