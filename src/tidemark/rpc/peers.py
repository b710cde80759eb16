"""Whose the other end of a loopback connection is.

A port of a loopback address can be reached by every user of the machine. On Linux the kernel tells whose a socket is,
so that a server without a token can answer its own user and root only. It is asked for that one socket (by netlink):
its table of all sockets, which others can make as long as they like, is read only where it does not answer.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import struct
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

__all__ = ["Address", "is_own_user", "peer_uid"]

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")

_SOCK_DIAG = 4
_BY_FAMILY = 20
_ANY = 0xFFFFFFFF
_HEAD = struct.Struct("=IHHII")
"""`nlmsghdr`: length, type, flags, sequence, process."""
_REQUEST = struct.Struct("=BBBxI")
"""`inet_diag_req_v2` up to the id: family, protocol, extensions, states."""
_ENDS = struct.Struct("!HH16s16s")
"""`inet_diag_sockid` up to the interface: ports and addresses of the socket and its other end."""
_REST = struct.Struct("=III")
"""The rest of the id: interface, and a cookie for whoever knows it."""
_FOUND = struct.Struct("=B3x36s12x12xII")
"""`inet_diag_msg`: family, ..., ends, ..., user, inode."""
_answers = False
"""Whether the kernel has answered once: then what it does not find is not there."""

Address = tuple[Any, ...]


def is_own_user(client: Address | None, server: Address | None) -> bool:
    """Whether the other end of a loopback connection belongs to this user or to root.

    Where the kernel does not tell (other systems than Linux) everybody on the machine counts as such.
    """
    if client is None or server is None:
        return False
    try:
        owner = _looked_up(client, server)
    except OSError:
        tables = [path for path in _TABLES if os.access(path, os.R_OK)]
        if not tables:
            return True
        lines = (line for path in tables for line in Path(path).read_text().splitlines()[1:])
        owner = peer_uid(client, server, lines)
    return owner in (0, os.geteuid())


def _looked_up(client: Address, server: Address) -> int | None:
    """The user whose socket the client's end is, None if nobody holds it any more.

    Raises:
        OSError: The kernel cannot be asked.
    """
    global _answers
    if sys.platform != "linux":
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
    (client_ip, client_port), (server_ip, server_port) = _endpoint(client), _endpoint(server)
    ends = _ENDS.pack(client_port, server_port, client_ip.packed, server_ip.packed)
    family = socket.AF_INET if client_ip.version == 4 else socket.AF_INET6
    asked = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, _ANY) + ends + _REST.pack(0, _ANY, _ANY)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG) as kernel:
        kernel.settimeout(1.0)
        kernel.sendto(_HEAD.pack(_HEAD.size + len(asked), _BY_FAMILY, 1, 1, 0) + asked, (0, 0))
        told = kernel.recv(4096)
    if _HEAD.unpack_from(told)[1] != _BY_FAMILY:
        refused = -struct.unpack_from("=i", told, _HEAD.size)[0]
        if refused == errno.ENOENT and _answers:
            return None
        raise OSError(refused, os.strerror(refused))
    _answers = True
    family, found, uid, inode = _FOUND.unpack_from(told, _HEAD.size)
    # Where there is no such connection the kernel shows whoever listens at that port, of whatever address.
    return int(uid) if inode and _ends(family, found) == (_endpoint(client), _endpoint(server)) else None


def _ends(family: int, found: bytes) -> tuple[tuple[Any, int], tuple[Any, int]]:
    client_port, server_port, client_ip, server_ip = _ENDS.unpack(found)
    size = 16 if family == socket.AF_INET6 else 4
    first, second = (_plain(ipaddress.ip_address(each[:size])) for each in (client_ip, server_ip))
    return (first, client_port), (second, server_port)


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
