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
from dataclasses import dataclass, field
from enum import Enum, IntEnum

from tests.gate import Gate

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


class Proxy(Gate):
    """A gate that takes requests apart."""

    def __init__(self) -> None:
        super().__init__()
        self._rule_lock = threading.Lock()
        self._rule: Rule | None = None
        self.loses_markers: Callable[[str], bool] | None = None
        """Of which topics the ends of transactions are lost, where there are records in them."""
        self.markers_lost = threading.Event()
        self._answers: dict[tuple[int, int], bytes] = {}

    def set_rule(self, request: Request, nth: int, moment: Moment, action: Callable[[], None]) -> Rule:
        """Replace the rule."""
        with self._rule_lock:
            self._rule = Rule(request, nth, moment, action)
            return self._rule

    def clear(self) -> None:
        """No rule any more."""
        with self._rule_lock:
            self._rule = None

    def pass_on(self, number: int, source: socket.socket, sink: socket.socket, *, asks: bool) -> None:
        """Carry whole requests, or answers, and act on them as the rule says."""
        while True:
            head = _exactly(source, 4)
            body = _exactly(source, struct.unpack(">i", head)[0])
            behind = self._request(number, body) if asks else self._answer(number, body)
            if asks:
                if _is_closed(source):
                    raise ConnectionError("whoever asked is gone")
                body = self._without_markers(number, body)
            else:
                body = self._answers.pop((number, struct.unpack_from(">i", body)[0]), body)
            sink.sendall(struct.pack(">i", len(body)) + body)
            if behind is not None:
                behind()

    def _request(self, number: int, body: bytes) -> Callable[[], None] | None:
        key, _version, correlation, length = struct.unpack_from(">hhih", body)
        client = body[10 : 10 + max(0, length)].decode(errors="replace")
        with self._rule_lock:
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

    def _without_markers(self, number: int, body: bytes) -> bytes:
        lost = self.loses_markers
        changed = None if lost is None else lose_markers(body, lost)
        if changed is None:
            return body
        request, answer = changed
        self._answers[number, struct.unpack_from(">i", answer)[0]] = answer
        self.markers_lost.set()
        return request

    def _answer(self, number: int, body: bytes) -> Callable[[], None] | None:
        (correlation,) = struct.unpack_from(">i", body)
        with self._rule_lock:
            rule = self._rule
            if rule is None or rule.matched != (number, correlation):
                return None
            rule.matched = None
            rule.done.set()
        if rule.moment is Moment.ANSWERED:
            rule.action()
            return None
        return rule.action


def _is_closed(source: socket.socket) -> bool:
    """Whether the other side has closed, and sent nothing more before."""
    try:
        return source.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False


def _exactly(source: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        chunk = source.recv(count - len(data))
        if not chunk:
            raise ConnectionError("closed")
        data += chunk
    return bytes(data)


def lose_markers(body: bytes, lost: Callable[[str], bool]) -> tuple[bytes, bytes] | None:
    """A request for markers (version 1 or 2) without those of some topics, and the answer that all were written.

    None for other requests, for those without records, and if nothing is lost of it.
    """
    key, version, correlation, length = struct.unpack_from(">hhih", body)
    if key != Request.WRITE_TXN_MARKERS:
        return None
    start = 10 + max(0, length) + 1
    reader = _Reader(body, start)
    request = answer = b""
    names: list[str] = []
    count = reader.varint() - 1
    for _ in range(count):
        producer, ending = reader.take(8), reader.take(2 + 1)
        asked: list[bytes] = []
        told: list[bytes] = []
        for _ in range(reader.varint() - 1):
            name = reader.take(reader.varint() - 1)
            names.append(name.decode())
            partitions = [reader.take(4) for _ in range(reader.varint() - 1)]
            reader.take(1)
            begin = _varint(len(name) + 1) + name + _varint(len(partitions) + 1)
            told.append(begin + b"".join([partition + bytes(3) for partition in partitions]) + bytes(1))
            if not lost(name.decode()):
                asked.append(begin + b"".join(partitions) + bytes(1))
        rest = reader.take(4 + (version >= 2) + 1)
        request += producer + ending + _varint(len(asked) + 1) + b"".join(asked) + rest
        answer += producer + _varint(len(told) + 1) + b"".join(told) + bytes(1)
    if all([name.startswith("__") for name in names]) or not any(map(lost, names)):
        return None
    return (
        body[:start] + _varint(count + 1) + request + bytes(1),
        struct.pack(">i", correlation) + bytes(1) + _varint(count + 1) + answer + bytes(1),
    )


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
