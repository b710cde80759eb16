"""Connections of the web server: only so many, and none that is held open without asking for anything.

The server lives in the process of a job. Whoever opens connections and says nothing, or a byte a minute, or does not
take what he asked for, must not use up the file descriptors that the job needs, nor the places of others.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["ANSWER_S", "LET_IN", "MOST_CONNECTIONS", "REQUEST_S", "LimitedProtocol"]

MOST_CONNECTIONS = 200
REQUEST_S = 10.0
"""How long the head of a request may take."""
ANSWER_S = 30.0
"""How long a caller may leave what was sent lying, once the kernel takes no more of it for him."""
LET_IN = "tidemark.let-in"
"""In the scope of a request: whether its caller is one who may ask."""


class LimitedProtocol(H11Protocol):
    """HTTP/1.1 as uvicorn speaks it, within these limits."""

    _waiting: asyncio.TimerHandle | None = None
    """Closes the connection unless the head of a request arrives."""
    _leaving: asyncio.TimerHandle | None = None
    """Closes the connection unless the caller takes what was sent."""
    _since = 0.0
    """When it was opened."""
    _given_up = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Somebody has connected; if that is one too many, one that keeps us waiting gives way, strangers' first."""
        super().connection_made(transport)
        self._since = self.loop.time()
        if len(self.connections) > MOST_CONNECTIONS:
            others = [known for known in self.connections if isinstance(known, LimitedProtocol)]
            min(
                (known for known in others if known._may_give_way()),
                key=lambda known: (known._is_let_in(), known._since),
                default=self,
            )._give_up()
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
        self._expect_leave()

    def timeout_keep_alive_handler(self) -> None:
        """No further request has begun."""
        super().timeout_keep_alive_handler()
        self._expect_leave()

    def pause_writing(self) -> None:
        """The caller does not take what is sent."""
        super().pause_writing()
        if self._leaving is None:
            self._leaving = self.loop.call_later(ANSWER_S, self._give_up)

    def resume_writing(self) -> None:
        """The caller has taken most of it."""
        super().resume_writing()
        if not self.transport.is_closing():
            self._forget_leave()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._calm()
        self._forget_leave()
        super().connection_lost(exc)

    def _may_give_way(self) -> bool:
        """Whether it is a stranger's, or it is the caller's turn: to ask, to send the rest, or to take an answer."""
        if self._given_up:
            return False
        if self.transport.is_closing():
            return self.transport.get_write_buffer_size() > 0
        asked: Any = self.cycle
        return not self._is_let_in() or self._is_silent() or asked.more_body or self.flow.write_paused

    def _is_let_in(self) -> bool:
        """Whether the guard has let this caller's last request in."""
        asked: Any = self.cycle
        return asked is not None and bool(asked.scope.get(LET_IN))

    def _give_up(self) -> None:
        self._given_up = True
        self.transport.abort()

    def _is_silent(self) -> bool:
        """Whether nothing is being answered here."""
        answering: Any = self.cycle
        return not self.transport.is_closing() and (answering is None or answering.response_complete)

    def _expect_request(self) -> None:
        if not self.transport.is_closing() and not self._is_silent():
            self._calm()
        elif self._waiting is None and not self.transport.is_closing():
            self._waiting = self.loop.call_later(REQUEST_S, self.transport.abort)

    def _expect_leave(self) -> None:
        """A connection that is to be closed is there until the caller has taken the last byte."""
        if self.transport.is_closing() and self._leaving is None:
            self._leaving = self.loop.call_later(ANSWER_S, self._give_up)

    def _forget_leave(self) -> None:
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None

    def _calm(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
