"""Who listens and who asks, over `tidemark.wire`: one place for tokens, TLS, limits and timeouts."""

from __future__ import annotations

from tidemark.rpc.acceptor import Acceptor, Limits
from tidemark.rpc.addresses import socket_base, socket_directory
from tidemark.rpc.client import Client
from tidemark.rpc.codecs import MSGPACK, Codec
from tidemark.rpc.messages import EVENT, Handlers, Incoming
from tidemark.rpc.pool import Call, Connections, Pool, Unreachable
from tidemark.rpc.server import Server

__all__ = [
    "EVENT",
    "MSGPACK",
    "Acceptor",
    "Call",
    "Client",
    "Codec",
    "Connections",
    "Handlers",
    "Incoming",
    "Limits",
    "Pool",
    "Server",
    "Unreachable",
    "socket_base",
    "socket_directory",
]
