"""Task side of the Kafka sink: sends records, or stages them for the driver's transaction."""

from __future__ import annotations

import uuid
from typing import Any

from tidemark.api.connectors.base import DeliveryGuarantee
from tidemark.api.connectors.kafka.serialization import BuiltRecordSchema, OutgoingRecords
from tidemark.api.connectors.kafka.sink import KafkaSink
from tidemark.plan.vertex import Vertex
from tidemark.protocol.reports import TaskReport
from tidemark.runtime.kafka.client import KafkaClients
from tidemark.runtime.records import Records
from tidemark.runtime.sinks.file_task import StagedOutput
from tidemark.runtime.sinks.kafka_records import MAGIC, check_sizes, encode_frame
from tidemark.runtime.sinks.kafka_sender import Sender, producer_settings, senders
from tidemark.runtime.sinks.kafka_topics import Topics, message_limit

__all__ = ["KafkaStagingTaskSink", "KafkaTaskSink", "clients_of", "sender_key"]

_LOOK_UP_MS = 30_000
"""How long a task waits to learn about a topic; the driver has been there, within the job's own timeout."""
_IDEMPOTENT = {"enable.idempotence": "true", "acks": "all"}
_topics: dict[Any, Topics] = {}
"""Of every sink this process has written for: looking one up costs a connection."""


def clients_of(vertex: Vertex, timeout_ms: int) -> KafkaClients:
    """Makes the clients of a sink."""
    return KafkaClients(vertex.spec.sink.properties, timeout_ms, f"The Kafka sink '{vertex.uid}'")


def sender_key(sink: KafkaSink) -> tuple[Any, ...]:
    """What two producers have in common that can stand in for each other."""
    return sink.properties, sink.delivery_guarantee


class _Serializing:
    """Makes records of elements, and sees to it that they can be written."""

    def __init__(self, vertex: Vertex) -> None:
        self._sink: KafkaSink = vertex.spec.sink
        self._clients = clients_of(vertex, _LOOK_UP_MS)
        self._limit = message_limit(self._sink.properties.client())
        schema = self._sink.record_serializer
        # The driver has looked up the one topic of such a sink.
        self._anywhere = not (isinstance(schema, BuiltRecordSchema) and schema.topic is not None)

    def _records(self, records: Records) -> OutgoingRecords:
        made = self._sink.record_serializer.to_records(records.values, records.timestamps)
        check_sizes(made, self._limit)
        if self._anywhere and len(made):
            key = self._sink.properties
            known = _topics.get(key) or _topics.setdefault(key, Topics(self._clients, self._limit))
            known.check(made)
        return made

    def rows(self) -> list[tuple[str, bytes]]:
        """Nothing goes to the driver."""
        return []


class KafkaTaskSink(_Serializing):
    """Sends records; all are acknowledged when the task reports."""

    def __init__(self, vertex: Vertex) -> None:
        """Prepare to write; a producer is taken when there is something to send."""
        super().__init__(vertex)
        self._sender: Sender | None = None

    def write(self, records: Records) -> None:
        """Serialise and send."""
        made = self._records(records)
        if self._sender is None:
            self._sender = senders.borrow(sender_key(self._sink)) or self._connect()
        self._sender.send(made)

    def _connect(self) -> Sender:
        idempotent = self._sink.delivery_guarantee is DeliveryGuarantee.AT_LEAST_ONCE
        return Sender(self._clients, producer_settings(self._sink, _IDEMPOTENT if idempotent else {}))

    def close(self, report: TaskReport) -> None:
        """Wait for what is under way."""
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.flush()
            senders.give_back(sender_key(self._sink), sender)


class KafkaStagingTaskSink(_Serializing):
    """Writes records to a file in the staging area of the driver's claim."""

    def __init__(self, vertex: Vertex, staging: str, unique: str) -> None:
        """Prepare to write.

        Args:
            vertex: The sink.
            staging: Directory of the driver's claim; it is there.
            unique: Part of the name that no other task, epoch or attempt of any job has.
        """
        super().__init__(vertex)
        self._vertex = vertex.id
        self._staging = staging
        self._name = f"records-{unique}-{uuid.uuid4().hex[:8]}"
        self._out: StagedOutput | None = None
        self._rows = 0

    def write(self, records: Records) -> None:
        """Serialise and append."""
        made = self._records(records)
        if self._out is None:
            # Where it would be published if it were a file of a file sink; that makes its name one we can check.
            base = self._staging.rsplit("/", 2)[0]
            self._out = StagedOutput(self._staging, base, self._name)
            self._out.write(MAGIC)
        self._out.write(encode_frame(made))
        self._rows += len(made)

    def close(self, report: TaskReport) -> None:
        """Finish the file and report it."""
        out, self._out = self._out, None
        if out is not None:
            report.staged.setdefault(self._vertex, []).append(out.close(self._rows))
