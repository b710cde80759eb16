"""Who listens and who asks, over `tidemark.wire`: one place for tokens, TLS, limits and timeouts."""

from __future__ import annotations

from tidemark.rpc.acceptor import DEFAULT_LIMITS, Acceptor, Limits
from tidemark.rpc.addresses import socket_base, socket_directory
from tidemark.rpc.pool import Call, Pool, Unreachable
from tidemark.rpc.server import Server

__all__ = [
    "DEFAULT_LIMITS",
    "Acceptor",
    "Call",
    "Limits",
    "Pool",
    "Server",
    "Unreachable",
    "socket_base",
    "socket_directory",
]
