"""Records on their way to Kafka: sent with a producer, or staged in a file until their checkpoint is complete.

A staged file, little-endian:

    magic:7 ("TMKAFKA") | version:u8 (1) | frame*          frame = length:u32 | MessagePack of `OutgoingRecords`

Length and checksum of the whole file are in the pre-commit.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import xxhash

from tidemark.api.connectors.kafka.serialization import OutgoingRecords
from tidemark.errors import SerializationError, StorageError, StorageVerdict
from tidemark.runtime.sinks.staged_files import StagedFile

__all__ = ["MAGIC", "check_sizes", "encode_frame", "read_staged", "send"]

MAGIC = b"TMKAFKA\x01"
_LENGTH = struct.Struct("<I")
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[OutgoingRecords] = msgspec.msgpack.Decoder(OutgoingRecords)
_OVERHEAD = 128
"""Bytes that Kafka's formats put around key and value, at most, headers aside."""
_FULL_S = 0.05
"""How long a full queue is given to empty a bit."""


def encode_frame(records: OutgoingRecords) -> bytes:
    """Records as a staged file holds them."""
    body = _encoder.encode(records)
    return _LENGTH.pack(len(body)) + body


def read_staged(stream: Any, file: StagedFile) -> Iterator[OutgoingRecords]:
    """The records of a staged file, in order; ends only if it is what was written.

    Records are yielded before the whole file has been seen, so whoever writes them must be able to take them back.

    Raises:
        StorageError: The file is damaged.
    """
    checksum = xxhash.xxh3_128()
    size = rows = 0

    def take(length: int) -> bytes:
        nonlocal size
        data: bytes = stream.read(length) if size + length <= file.size else b""
        if len(data) != length:
            raise _damaged(file, f"ends after {size + len(data)} of {file.size} bytes")
        checksum.update(data)
        size += length
        return data

    if take(len(MAGIC)) != MAGIC:
        raise _damaged(file, "does not begin as staged records do")
    while size < file.size:
        (length,) = _LENGTH.unpack(take(_LENGTH.size))
        try:
            records = _decoder.decode(take(length))
        except (msgspec.MsgspecError, ValueError, RecursionError) as exc:
            raise _damaged(file, f"holds no records at byte {size} ({exc})") from exc
        if not _is_even(records):
            raise _damaged(file, f"holds columns of different lengths at byte {size}")
        rows += len(records)
        yield records
    if checksum.hexdigest() != file.checksum or rows != file.rows:
        raise _damaged(file, "holds other bytes than were written (its checksum differs)")


def _is_even(records: OutgoingRecords) -> bool:
    columns: list[Sequence[Any] | None] = [
        records.keys,
        records.timestamps,
        records.headers,
        records.partitions,
        None if isinstance(records.topics, str) else records.topics,
    ]
    return all([column is None or len(column) == len(records) for column in columns])


def _damaged(file: StagedFile, problem: str) -> StorageError:
    return StorageError(
        f"Staged records '{file.staged}' cannot be written to Kafka: the file {problem}. Bring it back as it was, or "
        "start the job from an older snapshot ('tidemark run -s').",
        path=file.staged,
        verdict=StorageVerdict.DAMAGED,
    )


def check_sizes(records: OutgoingRecords, limit: int) -> None:
    """Make sure that no record is larger than the client sends.

    Raises:
        SerializationError: One is.
    """
    largest = max(map(_size, records.values), default=0)
    if records.keys is not None:
        largest += max(map(_size, records.keys), default=0)
    if records.headers is None and largest + _OVERHEAD <= limit:
        return
    keys = records.keys or [None] * len(records)
    headers = records.headers or [[]] * len(records)
    for at, (value, key, pairs) in enumerate(zip(records.values, keys, headers, strict=True)):
        around = sum(len(name.encode()) + _size(data) + 20 for name, data in pairs)
        size = _size(value) + _size(key) + around + _OVERHEAD
        if size > limit:
            topic = records.topics if isinstance(records.topics, str) else records.topics[at]
            raise SerializationError(
                f"A record for the Kafka topic '{topic}' has {size} bytes, more than message.max.bytes "
                f"(max.request.size) of the sink, {limit}. Raise it and the topic's max.message.bytes."
            )


def _size(data: bytes | None) -> int:
    return 0 if data is None else len(data)


def send(producer: Any, records: OutgoingRecords, stuck: Callable[[], None]) -> None:
    """Hand records to a producer, in order; waits while its queue is full.

    Args:
        producer: Of the client library.
        records: To be sent.
        stuck: Called while the queue is full; raises if there is no hope.

    Raises:
        KafkaException: The client refuses a record.
    """
    produce = producer.produce
    for row in zip(*_arguments(records), strict=True):
        try:
            produce(*row)
        except BufferError:
            _send_when_there_is_room(producer, row, stuck)
    producer.poll(0)


def _arguments(records: OutgoingRecords) -> list[Sequence[Any]]:
    """Columns of positional arguments of `Producer.produce`, no more than are needed: each costs time."""
    count = len(records)
    topics = [records.topics] * count if isinstance(records.topics, str) else records.topics
    columns: list[Sequence[Any]] = [topics, records.values]
    if records.timestamps is None and records.headers is None and records.partitions is None:
        return columns if records.keys is None else [*columns, records.keys]
    columns.append(records.keys or [None] * count)
    columns.append([-1 if at is None else at for at in records.partitions or [None] * count])
    columns += [[None] * count, [None] * count]
    columns.append([at or 0 for at in records.timestamps or [None] * count])
    if records.headers is not None:
        columns.append([pairs or None for pairs in records.headers])
    return columns


def _send_when_there_is_room(producer: Any, row: tuple[Any, ...], stuck: Callable[[], None]) -> None:
    while True:
        producer.poll(_FULL_S)
        stuck()
        try:
            producer.produce(*row)
        except BufferError:
            continue
        return
