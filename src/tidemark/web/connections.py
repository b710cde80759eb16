"""Connections of the web server: only so many, and none that is held open without asking for anything.

The server lives in the process of a job. Whoever opens connections and says nothing, or a byte a minute, must not use
up the file descriptors that the job needs.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["MOST_CONNECTIONS", "REQUEST_S", "LimitedProtocol"]

MOST_CONNECTIONS = 200
REQUEST_S = 10.0
"""How long the head of a request may take."""


class LimitedProtocol(H11Protocol):
    """HTTP/1.1 as uvicorn speaks it, within these limits."""

    _waiting: asyncio.TimerHandle | None = None
    """Closes the connection unless the head of a request arrives."""
    _since = 0.0
    """When it was opened."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Somebody has connected; if that is one too many, whoever asks for nothing gives way, strangers first."""
        super().connection_made(transport)
        self._since = self.loop.time()
        if len(self.connections) > MOST_CONNECTIONS:
            silent = [
                known
                for known in self.connections
                if isinstance(known, LimitedProtocol) and known._is_silent()
            ]
            min(
                silent, key=lambda known: (known.cycle is not None, known._since), default=self
            ).transport.abort()
        if not transport.is_closing():
            self._expect_request()

    def data_received(self, data: bytes) -> None:
        """Something came: a request is on its way, or there now."""
        super().data_received(data)
        self._expect_request()

    def on_response_complete(self) -> None:
        """A request is answered; uvicorn closes the connection if the next one does not begin soon."""
        super().on_response_complete()
        self._calm()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._calm()
        super().connection_lost(exc)

    def _is_silent(self) -> bool:
        """Whether nothing is being answered here."""
        answering: Any = self.cycle
        return not self.transport.is_closing() and (answering is None or answering.response_complete)

    def _expect_request(self) -> None:
        if not self.transport.is_closing() and not self._is_silent():
            self._calm()
        elif self._waiting is None and not self.transport.is_closing():
            self._waiting = self.loop.call_later(REQUEST_S, self.transport.abort)

    def _calm(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
