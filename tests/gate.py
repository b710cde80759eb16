"""A port in front of a server: passes everything on, and can be shut while the server lives on."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Gate:
    """Listens on a port of its own and connects whoever comes to `target` (host, port)."""

    def __init__(self) -> None:
        self.target: tuple[str, int] = ("", 0)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.address = f"127.0.0.1:{self.port}"
        self.refused = threading.Event()
        """Somebody came while it was shut."""
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._is_shut = False
        threading.Thread(target=self._accept, daemon=True).start()

    def shut(self) -> None:
        """Cut every connection and let no new one through; `open` ends that."""
        self._is_shut = True
        with self._lock:
            open_now = list(self._sockets)
        for one in open_now:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def open(self) -> None:
        """Let connections through again."""
        self._is_shut = False

    def close(self) -> None:
        """Close every connection and the port."""
        self._listener.close()
        self.shut()

    def pass_on(self, number: int, source: socket.socket, sink: socket.socket, *, asks: bool) -> None:
        """Carry bytes one way until a side closes (or an OSError ends it).

        Args:
            number: Of the connection.
            source: Where they come from.
            sink: Where they go.
            asks: Whether the source is the client.
        """
        while data := source.recv(1 << 16):
            sink.sendall(data)

    def _accept(self) -> None:
        number = 0
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._is_shut:
                self.refused.set()
                client.close()
                continue
            try:
                server = socket.create_connection(self.target, timeout=10)
                server.settimeout(None)
            except OSError:
                client.close()
                continue
            with self._lock:
                number += 1
                self._sockets |= {client, server}
            for source, sink, asks in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._pump, args=(number, source, sink, asks), daemon=True).start()

    def _pump(self, number: int, source: socket.socket, sink: socket.socket, asks: bool) -> None:
        with suppress(OSError):
            self.pass_on(number, source, sink, asks=asks)
        for one in (source, sink):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
            with self._lock:
                self._sockets.discard(one)
