"""Requests, answers and events, the same for slot control, job control and queries.

Each is one frame of `tidemark.wire`. The header is MessagePack whatever the body is; a `Codec` reads the body:

    [REQUEST, number, name]    body: payload        the number is the asking side's own
    [REPLY, number]            body: result
    [ERROR, number]            body: error
    [EVENT]                    body: event          said by the answering side, asked by nobody
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidemark.errors import ConfigError
from tidemark.rpc.codecs import Codec
from tidemark.wire import Connection, WireClosed

__all__ = ["EVENT", "REQUEST", "Handlers", "Incoming", "read_answer"]

REQUEST, REPLY, ERROR, EVENT = range(4)


def read_answer(header: Any, body: bytearray, codec: Codec) -> tuple[int, Any, BaseException | None]:
    """The number of the request, and its result or its error.

    Raises:
        ValueError: The frame is no answer. So may the codec, in its own way.
    """
    kind, number = header
    if kind == ERROR:
        return number, None, codec.decode_error(body)
    return number, codec.decode(body), None


class Incoming:
    """A request that has come in, to be answered once. What is no request has no name."""

    __slots__ = ("_body", "_codec", "_connection", "_number", "name")

    def __init__(self, connection: Connection, header: Any, body: bytearray, codec: Codec) -> None:
        self._connection = connection
        self._body = body
        self._codec = codec
        self._number: int | None = None
        self.name = ""
        match header:
            case [0, int(number), str(name)]:
                self._number, self.name = number, name

    def payload(self) -> Any:
        """What was sent along; raises what the codec does if it cannot be read."""
        return self._codec.decode(self._body)

    def reply(self, result: Any) -> None:
        """Answer with a result.

        Raises:
            WireClosed: Nobody waits for it any more.
            FrameTooLargeError: It is too large; nothing was sent.
        """
        self._connection.send([REPLY, self._number], self._codec.encode(result))

    def fail(self, error: BaseException) -> None:
        """Answer with an error.

        Raises:
            WireClosed: Nobody waits for it any more.
        """
        self._connection.send([ERROR, self._number], self._codec.encode_error(error))


class Handlers:
    """Requests by name: what a handler returns is the answer, what it raises is the error. A `Respond` of `Server`."""

    def __init__(self, codec: Codec, **handlers: Callable[[Any], Any]) -> None:
        """Call the handler of that name with the payload of each request."""
        self._handlers = handlers
        self._codec = codec

    def __contains__(self, name: str) -> bool:
        return name in self._handlers

    def __call__(self, connection: Connection, header: Any, body: bytearray) -> None:
        """Answer the request in a frame."""
        self.answer(Incoming(connection, header, body, self._codec))

    def answer(self, request: Incoming) -> None:
        """Answer a request.

        Raises:
            WireClosed: Nobody waits for the answer any more.
        """
        try:
            handler = self._handlers.get(request.name)
            if handler is None:
                raise ConfigError(
                    f"The peer does not know the request '{request.name}'. Use the same version of tidemark "
                    "on both sides."
                )
            request.reply(handler(request.payload()))
        except WireClosed:
            raise
        except BaseException as exc:
            request.fail(exc)
