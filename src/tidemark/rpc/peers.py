"""Whose the other end of a loopback connection is.

A port of a loopback address can be reached by every user of the machine. On Linux the kernel tells whose a socket is,
so that a server without a token can answer its own user and root only.
"""

from __future__ import annotations

import ipaddress
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

__all__ = ["Address", "is_own_user", "peer_uid"]

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")

Address = tuple[Any, ...]


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
    port = f":{int(client[1]):04X} "
    for line in lines:
        if port not in line:  # The table is long under a flood, and parsing an address takes a while.
            continue
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
