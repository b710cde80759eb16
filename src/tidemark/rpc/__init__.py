"""Who listens and who asks, over `tidemark.wire`: one place for tokens, TLS, limits and timeouts."""

from __future__ import annotations

from tidemark.rpc.acceptor import Acceptor, Limits
from tidemark.rpc.addresses import socket_base, socket_directory
from tidemark.rpc.client import Client
from tidemark.rpc.codecs import MSGPACK, Codec
from tidemark.rpc.messages import EVENT, Handlers, Incoming
from tidemark.rpc.pool import Call, Connections, Pool, Unreachable
from tidemark.rpc.pooled_server import DEFAULT_THREADS, PooledServer, ServerThreads
from tidemark.rpc.server import Server

__all__ = [
    "DEFAULT_THREADS",
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
    "PooledServer",
    "Server",
    "ServerThreads",
    "Unreachable",
    "socket_base",
    "socket_directory",
]
