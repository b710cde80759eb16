"""A door in front of a broker that knows Kafka's requests: acts when a certain client makes a certain one.

Brokers advertise the door instead of themselves, so clients come through it with every connection. It changes nothing
on the way; a rule runs something (a kill, say) before a request goes on to the broker, before its answer goes back, or
behind that. The code under test knows nothing of it. Brokers come through it, too: markers that end transactions can
be lost here although the coordinator is told that they were written.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, IntEnum

CLIENT = "under-test"
"""The `client.id` whose requests count."""


class Request(IntEnum):
    """Kafka's numbers of requests, those a commit makes."""

    PRODUCE = 0
    OFFSET_FETCH = 9
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28


class Moment(Enum):
    """When a rule acts."""

    BEFORE = "before"
    """The broker has not seen the request."""
    ANSWERED = "answered"
    """The broker has done it; the client does not know."""
    AFTER = "after"
    """The client has been told."""


@dataclass
class Rule:
    """Runs `action` at the n-th such request of the client under test, once."""

    request: Request
    nth: int
    moment: Moment
    action: Callable[[], None]
    seen: int = 0
    matched: tuple[int, int] | None = None
    """Connection and correlation id of the request, while its answer is awaited."""
    done: threading.Event = field(default_factory=threading.Event)


class Proxy:
    """Listens on a port of its own and passes everything on to `target` (host, port)."""

    def __init__(self) -> None:
        self.target: tuple[str, int] = ("", 0)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self.address = f"127.0.0.1:{self.port}"
        self._lock = threading.Lock()
        self._rule: Rule | None = None
        self._sockets: set[socket.socket] = set()
        self._number = 0
        self._shut = False
        self.loses_markers = False
        """Whether brokers only believe that they end transactions."""
        self.markers_lost = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def set_rule(self, request: Request, nth: int, moment: Moment, action: Callable[[], None]) -> Rule:
        """Replace the rule."""
        with self._lock:
            self._rule = Rule(request, nth, moment, action)
            return self._rule

    def clear(self) -> None:
        """No rule any more."""
        with self._lock:
            self._rule = None

    def shut(self) -> None:
        """Cut every connection and let no new one through; `open` ends that."""
        self._shut = True
        with self._lock:
            open_now = list(self._sockets)
        for one in open_now:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def open(self) -> None:
        """Let connections through again."""
        self._shut = False

    def close(self) -> None:
        """Close every connection and the port."""
        self._server.close()
        self.shut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            if self._shut:
                client.close()
                continue
            try:
                broker = socket.create_connection(self.target, timeout=10)
                broker.settimeout(None)
            except OSError:
                client.close()
                continue
            with self._lock:
                self._number += 1
                number = self._number
                self._sockets |= {client, broker}
            for source, sink, handle in ((client, broker, self._request), (broker, client, self._answer)):
                threading.Thread(target=self._pump, args=(number, source, sink, handle), daemon=True).start()

    def _pump(
        self,
        number: int,
        source: socket.socket,
        sink: socket.socket,
        handle: Callable[[int, bytes], Callable[[], None] | None],
    ) -> None:
        try:
            while True:
                head = _exactly(source, 4)
                body = _exactly(source, struct.unpack(">i", head)[0])
                if handle == self._request and self.loses_markers and (answer := answer_to_markers(body)):
                    source.sendall(answer)
                    self.markers_lost.set()
                    continue
                behind = handle(number, body)
                sink.sendall(head + body)
                if behind is not None:
                    behind()
        except OSError:
            pass
        finally:
            for one in (source, sink):
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()
                with self._lock:
                    self._sockets.discard(one)

    def _request(self, number: int, body: bytes) -> Callable[[], None] | None:
        key, _version, correlation, length = struct.unpack_from(">hhih", body)
        client = body[10 : 10 + max(0, length)].decode(errors="replace")
        with self._lock:
            rule = self._rule
            if rule is None or rule.done.is_set() or key != rule.request or client != CLIENT:
                return None
            rule.seen += 1
            if rule.seen != rule.nth:
                return None
            if rule.moment is not Moment.BEFORE:
                rule.matched = (number, correlation)
                return None
            rule.done.set()
        rule.action()
        return None

    def _answer(self, number: int, body: bytes) -> Callable[[], None] | None:
        (correlation,) = struct.unpack_from(">i", body)
        with self._lock:
            rule = self._rule
            if rule is None or rule.matched != (number, correlation):
                return None
            rule.matched = None
            rule.done.set()
        if rule.moment is Moment.ANSWERED:
            rule.action()
            return None
        return rule.action


def _exactly(source: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        chunk = source.recv(count - len(data))
        if not chunk:
            raise ConnectionError("closed")
        data += chunk
    return bytes(data)


def answer_to_markers(body: bytes) -> bytes | None:
    """The answer "written" to a request for markers in a user's topics, of version 1 or 2; None for other requests."""
    key, version, correlation, length = struct.unpack_from(">hhih", body)
    if key != Request.WRITE_TXN_MARKERS:
        return None
    reader = _Reader(body, 10 + max(0, length) + 1)
    written = b""
    count = reader.varint() - 1
    for _ in range(count):
        producer = reader.take(8)
        reader.take(2 + 1)
        topics = b""
        entries = reader.varint() - 1
        for _ in range(entries):
            name = reader.take(reader.varint() - 1)
            if name.startswith(b"__"):
                return None
            partitions = [reader.take(4) for _ in range(reader.varint() - 1)]
            reader.take(1)
            topics += _varint(len(name) + 1) + name + _varint(len(partitions) + 1)
            topics += b"".join([partition + bytes(3) for partition in partitions]) + bytes(1)
        reader.take(4 + (version >= 2) + 1)
        written += producer + _varint(entries + 1) + topics + bytes(1)
    answer = struct.pack(">i", correlation) + bytes(1) + _varint(count + 1) + written + bytes(1)
    return struct.pack(">i", len(answer)) + answer


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def take(self, count: int) -> bytes:
        self.at += count
        return self.data[self.at - count : self.at]

    def varint(self) -> int:
        value = shift = 0
        while True:
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return value
            shift += 7


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
