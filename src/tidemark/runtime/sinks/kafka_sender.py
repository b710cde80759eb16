"""Producers of tasks: one per task that writes, kept between epochs because connecting costs more than an epoch."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from tidemark.api.connectors.kafka.serialization import OutgoingRecords
from tidemark.api.connectors.kafka.sink import KafkaSink
from tidemark.errors import TidemarkError
from tidemark.runtime.kafka.client import KafkaClients
from tidemark.runtime.sinks.kafka_records import send

__all__ = ["Sender", "Senders", "producer_settings", "senders"]

_DEFAULTS = {
    # Keys go to the partitions that Java's client would choose.
    "partitioner": "murmur2_random",
    # Under load records travel together anyway, as those in front of them are under way: the client's 5 ms only make
    # them late.
    "linger.ms": "1",
}
_SAME = {"linger.ms": "queue.buffering.max.ms"}
"""Other names of these."""
_IDLE_S = 60.0
"""How long a producer nobody uses stays connected."""
_SLICE_S = 0.5


def producer_settings(sink: KafkaSink, settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of a producer beside the user's: what the connector needs, and defaults where the user is silent."""
    given = sink.properties.client()
    silent = {
        key: value for key, value in _DEFAULTS.items() if key not in given and _SAME.get(key) not in given
    }
    return {**silent, **settings, "delivery.report.only.error": True}


class Sender:
    """A producer and what is under way with it."""

    def __init__(self, clients: KafkaClients, settings: dict[str, Any]) -> None:
        """Connects when the first record is sent."""
        self._clients = clients
        self._failure: TidemarkError | None = None
        self._producer = clients.producer(**settings, on_delivery=self._failed)

    def send(self, records: OutgoingRecords) -> None:
        """Hand records to the producer.

        Raises:
            ConfigError, StorageError: A record was refused, now or earlier.
        """
        with self._clients.mapped("write"):
            send(self._producer, records, self._check)
        self._check()

    def flush(self) -> None:
        """Wait until every record is acknowledged.

        The client gives each of them up by itself after `message.timeout.ms`.

        Raises:
            ConfigError, StorageError: One was not.
        """
        with self._clients.mapped("write"):
            while self._producer.flush(_SLICE_S):
                self._check()
        self._check()

    def _failed(self, error: Any, message: Any) -> None:
        if error is not None and self._failure is None:
            topic = None if message is None else message.topic()
            self._failure = self._clients.error(error, f"write to topic '{topic}'", topic=topic)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure


@dataclass(slots=True)
class Senders:
    """Producers of this process that no task uses just now; a failed one never comes back."""

    _idle: dict[Any, list[tuple[float, Sender]]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _process: int = field(default_factory=os.getpid)

    def borrow(self, key: Any) -> Sender | None:
        """One made for the same purpose, for the use of the caller alone; None if there is none."""
        with self._lock:
            if self._process != os.getpid():
                # A producer's threads do not survive a fork.
                self._idle, self._process = {}, os.getpid()
            self._drop_old()
            kept = self._idle.get(key)
            return kept.pop()[1] if kept else None

    def give_back(self, key: Any, sender: Sender) -> None:
        """Keep a producer that has nothing under way for others."""
        with self._lock:
            self._idle.setdefault(key, []).append((time.monotonic(), sender))
            self._drop_old()

    def forget(self, key: Any) -> None:
        """Disconnect: nobody in this process will need such a producer soon."""
        with self._lock:
            self._idle.pop(key, None)

    def _drop_old(self) -> None:
        since = time.monotonic() - _IDLE_S
        for key, kept in list(self._idle.items()):
            self._idle[key] = [entry for entry in kept if entry[0] >= since]
            if not self._idle[key]:
                del self._idle[key]


senders = Senders()
