"""A token and a door-keeper for PySpark's callback server, which `foreachBatch` opens and PySpark leaves unprotected.

Through that server the JVM calls Python functions of the driver. It listens on a random port of the loopback
interface and, in PySpark's default threading mode, serves whoever connects, so any user of the machine could call the
driver's functions with arguments of their choice. py4j can ask callers for a token, and its Java side can send
one; PySpark loses it when it tells the JVM the server's port. Here both sides are given a new one.

Before the token py4j gives every connection a thread and reads a line of any length from it, and the first error of
its accept loop ends that for good: a flood from another user that used up the driver's descriptors would leave the JVM
calling for ever. So connections of other users are dropped as they come in, and such errors are waited out.
"""

from __future__ import annotations

import errno
import logging
import secrets
import socket
import time
from typing import TYPE_CHECKING, Any

from tidemark.rpc.peers import Address, is_own_user

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["protect_callbacks", "watch_door"]

_log = logging.getLogger(__name__)

_BACKLOG = 4096
"""py4j asks for 5, which strangers would fill faster than they are dropped."""
_PAUSE_S = 0.05
_SHUT = (errno.EBADF, errno.EINVAL, errno.ENOTSOCK)
"""What accepting says of a socket that is closed or shut down, not of the times."""


def protect_callbacks(session: SparkSession) -> bool:
    """Have the driver's callback server running and let only its own JVM call; returns whether it is protected.

    Idempotent. A server that a user's program opened before is protected from here on.
    """
    from pyspark.java_gateway import ensure_callback_server_started

    gateway: Any = session.sparkContext._gateway
    parameters = gateway.callback_server_parameters
    if parameters.auth_token is None:
        token = secrets.token_hex(32)
        running = gateway.__dict__.get("_callback_server") is not None
        if not running:
            # Nobody may slip in between the start of the server and the next lines.
            parameters.auth_token = token
        try:
            ensure_callback_server_started(gateway)
            watch_door(gateway._callback_server)
            _tell_jvm(gateway, token)
        except Exception as exc:
            parameters.auth_token = None
            _log.warning("PySpark's callback server stays open to every user of this machine: %s", exc)
            return False
        parameters.auth_token = token
    return True


def watch_door(server: Any) -> None:
    """Let a running callback server of py4j's have connections of this user and root only. Idempotent."""
    if not isinstance(server.server_socket, _WatchedListener):
        server.server_socket = _WatchedListener(server.server_socket)


class _WatchedListener:
    """A listening socket as py4j uses it: it looks for newcomers itself, then calls `accept`."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._widened = False

    def accept(self) -> tuple[socket.socket, Address]:
        """The next connection of this user's.

        Raises:
            OSError: The server is shut down.
        """
        if not self._widened:
            # Not before: py4j's thread may still be about to say how long the queue is to be.
            self._listener.listen(_BACKLOG)
            self._widened = True
        while True:
            try:
                connection, address = self._listener.accept()
            except OSError as exc:
                if exc.errno in _SHUT:
                    raise
                # Descriptors or memory are lacking, or the newcomer is gone again.
                time.sleep(_PAUSE_S)
                continue
            try:
                if is_own_user(address, connection.getsockname()):
                    return connection, address
            except OSError:
                # Not even the kernel's table can be opened now.
                time.sleep(_PAUSE_S)
            connection.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._listener, name)


def _tell_jvm(gateway: Any, token: str) -> None:
    """Let the JVM's callback client prove itself on every new connection.

    Its constructor takes the token, but PySpark calls `copyWith`, which leaves it out.
    """
    from py4j.java_gateway import JavaObject

    client = JavaObject("GATEWAY_SERVER", gateway._gateway_client).getCallbackClient()
    kind = client.getClass()
    while kind.getName() != "py4j.CallbackClient":
        kind = kind.getSuperclass()
    field = kind.getDeclaredField("authToken")
    field.setAccessible(True)
    field.set(client, token)
