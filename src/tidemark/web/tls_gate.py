"""HTTPS: a connection has to finish its TLS handshake soon, and only so many may be at it.

asyncio would let strangers sit in handshakes for a minute each, in any number, before it tells the server of them.
Here a connection is counted from its first moment; while all places are taken the oldest gives way to a newcomer.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any

from tidemark.tls import TlsContext, check_peer
from tidemark.web.connections import LimitedProtocol

__all__ = ["HANDSHAKE_S", "MOST_HANDSHAKES", "TlsGate"]

_log = logging.getLogger(__name__)

MOST_HANDSHAKES = 100
HANDSHAKE_S = 10.0


class TlsGate:
    """Makes the protocol of each connection to a server that speaks HTTPS."""

    def __init__(self, context: TlsContext) -> None:
        """Let in whom `context` believes."""
        self.context = context
        self.handshakes: dict[_Handshake, None] = {}
        """Who is at it, the oldest first."""

    def __call__(self, **arguments: Any) -> asyncio.Protocol:
        """The protocol of a new connection, in the place of `LimitedProtocol` and with its arguments."""
        return _Handshake(self, lambda: LimitedProtocol(**arguments))


class _Handshake(asyncio.Protocol):
    """One connection, until its handshake is done."""

    def __init__(self, gate: TlsGate, behind: Callable[[], LimitedProtocol]) -> None:
        self._gate = gate
        self._behind = behind
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._early = bytearray()
        """What came in the same moment as the end of the handshake: a client does not wait to be asked."""
        self._lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody has connected."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        gate = self._gate
        while len(gate.handshakes) >= MOST_HANDSHAKES:
            oldest = next(iter(gate.handshakes))
            del gate.handshakes[oldest]
            oldest.abort()
        gate.handshakes[self] = None
        self._task = asyncio.get_running_loop().create_task(self._shake_hands(transport))

    def data_received(self, data: bytes) -> None:
        """Something came before the protocol behind has taken over."""
        self._early += data

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone before the protocol behind has taken over."""
        self._lost = True

    def abort(self) -> None:
        """Give the place to somebody else."""
        if self._transport is not None:
            self._transport.abort()
        if self._task is not None:
            self._task.cancel()

    async def _shake_hands(self, transport: asyncio.Transport) -> None:
        try:
            encrypted = await asyncio.get_running_loop().start_tls(
                transport, self, self._gate.context, server_side=True, ssl_handshake_timeout=HANDSHAKE_S
            )
            if encrypted is None or self._lost:
                return
            told = encrypted.get_extra_info("ssl_object")
            if isinstance(told, ssl.SSLObject):
                check_peer(told)
        except (OSError, asyncio.CancelledError) as exc:
            _log.debug("A handshake of the web server failed: %s", exc)
            transport.abort()
            return
        finally:
            self._gate.handshakes.pop(self, None)
        protocol = self._behind()
        encrypted.set_protocol(protocol)
        protocol.connection_made(encrypted)
        if self._early:
            protocol.data_received(bytes(self._early))
