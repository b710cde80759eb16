"""Who holds a connection to the web server, and for how long: strangers get few places and little time.

A connection is *proven* once the guard has let a request of it pass; until then, and between two requests, it is idle.
Idle ones have `IDLE_S`; while all places are taken the one that has been idle longest gives way to a newcomer. So
whoever opens connections and says nothing costs the driver a bounded number of descriptors and nobody else a place.

A port of a loopback address can be reached by every user of the machine. On Linux the kernel says whose the other
end of such a connection is (`peer_uid`), so that a server without a token can answer its own user and root only.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["IDLE_S", "PLACES", "Address", "Callers", "Listener", "is_own_user", "peer_uid"]

PLACES = 256
"""Connections at a time."""
IDLE_S = 30.0
"""How long a connection may be idle: a request, TLS included, has to arrive within that time."""

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")

Address = tuple[Any, ...]


@dataclass(slots=True)
class _Caller:
    connection: socket.socket
    since: float
    """When it was opened, or its last request was answered."""
    answering: int = 0
    """Requests that passed the guard and are being answered."""


class Callers:
    """The open connections of one server; used by the server's thread only."""

    def __init__(self, places: int = PLACES, clock: Callable[[], float] = time.monotonic) -> None:
        """Nobody is here yet."""
        self._places = places
        self._clock = clock
        self._callers: dict[Address, _Caller] = {}

    def enter(self, connection: socket.socket, address: Address) -> bool:
        """Take a new connection in; False if every place is taken by somebody who is being answered."""
        self._forget_closed()
        if len(self._callers) >= self._places:
            idle = [key for key, caller in self._callers.items() if not caller.answering]
            if not idle:
                return False
            self._drop(min(idle, key=lambda key: self._callers[key].since))
        self._callers[address[:2]] = _Caller(connection, self._clock())
        return True

    def begin(self, address: Address | None) -> None:
        """A request has passed the guard."""
        if (caller := self._find(address)) is not None:
            caller.answering += 1

    def end(self, address: Address | None) -> None:
        """That request is answered."""
        if (caller := self._find(address)) is not None:
            caller.answering -= 1
            caller.since = self._clock()

    def sweep(self) -> None:
        """Let go of connections that have been idle for too long."""
        self._forget_closed()
        latest = self._clock() - IDLE_S
        late = [key for key, c in self._callers.items() if not c.answering and c.since <= latest]
        for key in late:
            self._drop(key)

    def _find(self, address: Address | None) -> _Caller | None:
        return None if address is None else self._callers.get(address[:2])

    def _forget_closed(self) -> None:
        for key in [key for key, caller in self._callers.items() if caller.connection.fileno() < 0]:
            del self._callers[key]

    def _drop(self, key: Address) -> None:
        caller = self._callers.pop(key)
        with contextlib.suppress(OSError):
            # Whoever reads from it, HTTP or TLS, is told that it has ended, and closes it.
            caller.connection.shutdown(socket.SHUT_RDWR)


class Listener(socket.socket):
    """A listening socket that asks `callers` about everyone it accepts."""

    callers: Callers

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection that may come in.

        Raises:
            BlockingIOError: Nobody is waiting.
        """
        while True:
            connection, address = super().accept()
            if self.callers.enter(connection, address):
                return connection, address
            connection.close()


def is_own_user(client: Address | None, server: Address | None) -> bool:
    """Whether the other end of a loopback connection belongs to this user or to root.

    Where the kernel does not tell (other systems than Linux) everybody on the machine counts as such.
    """
    if client is None or server is None:
        return False
    tables = [path for path in _TABLES if os.access(path, os.R_OK)]
    if not tables:
        return True
    lines = (line for path in tables for line in Path(path).read_text().splitlines()[1:])
    return peer_uid(client, server, lines) in (0, os.geteuid())


def peer_uid(client: Address, server: Address, lines: Iterable[str]) -> int | None:
    """The user whose socket the client's end is, by the lines of the kernel's tables of TCP sockets.

    None if nobody holds it any more: the kernel shows a socket that its process has closed as root's.
    """
    wanted = (_endpoint(client), _endpoint(server))
    for line in lines:
        fields = line.split()
        if len(fields) > 9 and (_parsed(fields[1]), _parsed(fields[2])) == wanted:
            return int(fields[7]) if int(fields[9]) else None
    return None


def _endpoint(address: Address) -> tuple[Any, int]:
    return _plain(ipaddress.ip_address(str(address[0]).partition("%")[0])), int(address[1])


def _parsed(text: str) -> tuple[Any, int]:
    """An address as the kernel prints it: words of four bytes in the machine's order, and the port."""
    digits, _, port = text.partition(":")
    words = [bytes.fromhex(digits[at : at + 8]) for at in range(0, len(digits), 8)]
    step = -1 if sys.byteorder == "little" else 1
    return _plain(ipaddress.ip_address(b"".join(word[::step] for word in words))), int(port, 16)


def _plain(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> Any:
    """An IPv4 address that is written as an IPv6 one is the same place."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
