"""A token for PySpark's callback server, which `foreachBatch` opens and PySpark leaves unprotected.

Through that server the JVM calls Python functions of the driver. It listens on a random port of the loopback
interface and, in PySpark's default threading mode, serves whoever connects, so any user of the machine could call the
driver's functions with arguments of their choice. py4j can ask callers for a token, and its Java side can send
one; PySpark loses it when it tells the JVM the server's port. Here both sides are given a new one.
"""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["protect_callbacks"]

_log = logging.getLogger(__name__)


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
            _tell_jvm(gateway, token)
        except Exception as exc:
            parameters.auth_token = None
            _log.warning("PySpark's callback server stays open to every user of this machine: %s", exc)
            return False
        parameters.auth_token = token
    return True


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
