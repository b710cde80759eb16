"""Clients made from a connector's properties, and what their errors mean.

`confluent_kafka` is imported here first and on use only, so that its absence is one error with a remedy. Every error of
the client leaves this package as one of ours: with the address of the brokers, without any secret.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tidemark.api.connectors.kafka.properties import ClientProperties
from tidemark.errors import ConfigError, StorageError, StorageVerdict, TidemarkError

__all__ = ["QUIET", "KafkaClients", "confluent", "is_fenced", "is_settling"]

_log = logging.getLogger("tidemark.kafka")

_UNREACHABLE = (
    "_ALL_BROKERS_DOWN",
    "_TRANSPORT",
    "_TIMED_OUT",
    "_RESOLVE",
    "_TIMED_OUT_QUEUE",
    "REQUEST_TIMED_OUT",
)
_UNKNOWN_TOPIC = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")
_REFUSED = (
    "_AUTHENTICATION",
    "SASL_AUTHENTICATION_FAILED",
    "TOPIC_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
)
_COORDINATOR_MOVES = ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS")
_FENCED = ("_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")
QUIET = {"log_level": "3"}
"""Errors only: a client for a question warns of every property that is meant for another kind of client."""
_APPEARS_S = 3.0
"""How long a topic may take to be known everywhere after it was made."""


def confluent() -> Any:
    """The client library.

    Raises:
        ConfigError: It is not installed.
    """
    try:
        import confluent_kafka
    except ImportError as exc:
        raise ConfigError(
            f"Kafka sources and sinks need the package confluent-kafka ({exc}). Install tidemark[kafka], on the "
            "workers, too."
        ) from exc
    return confluent_kafka


def is_fenced(error: Any) -> bool:
    """Whether an error of the client says that another producer has taken the transactional id."""
    return _name(error) in _FENCED


def is_settling(error: Any) -> bool:
    """Whether an error of the client says that a coordinator moves or is only starting: one to ask again."""
    return _name(error) in _COORDINATOR_MOVES


class KafkaClients:
    """Makes clients of one connector, and says what went wrong in our words."""

    def __init__(self, properties: ClientProperties, timeout_ms: int, what: str) -> None:
        """Nothing is connected.

        Args:
            properties: As the user gave them.
            timeout_ms: How long a broker may take to answer.
            what: The source or sink, for messages: "The Kafka sink 'orders'".
        """
        self._properties = properties
        self.timeout_s = timeout_ms / 1000
        self.what = what
        self._questions: Any = None

    def producer(self, **settings: Any) -> Any:
        """A producer; `settings` are librdkafka's and come before the user's only where those are silent."""
        with self.mapped("make a producer"):
            return confluent().Producer(self._with(settings), logger=_log)

    def consumer(self, **settings: Any) -> Any:
        """A consumer."""
        with self.mapped("make a consumer"):
            return confluent().Consumer(self._with(settings), logger=_log)

    def admin(self, **settings: Any) -> Any:
        """A client for questions about topics."""
        confluent()
        from confluent_kafka.admin import AdminClient

        with self.mapped("make a client"):
            return AdminClient(self._with({**QUIET, **settings}), logger=_log)

    def _asker(self) -> Any:
        """A client for questions that is kept: one for each commit would have to connect each time."""
        if self._questions is None:
            self._questions = self.admin()
        return self._questions

    def _with(self, settings: dict[str, Any]) -> dict[str, Any]:
        # What we set ourselves wins: the connector depends on it.
        return {**self._properties.client(), **settings}

    def require_topics(self, admin: Any, topics: Iterable[str]) -> dict[str, int]:
        """Make sure that topics are there.

        Returns:
            The number of partitions of each.

        Raises:
            ConfigError: One is missing.
            StorageError: No broker answered in time.
        """
        found: dict[str, int] = {}
        deadline = time.monotonic() + min(self.timeout_s, _APPEARS_S)
        for topic in topics:
            while topic not in found:
                with self.mapped(f"look up topic '{topic}'", topic=topic):
                    entry = admin.list_topics(topic, timeout=self.timeout_s).topics.get(topic)
                    if entry is not None and entry.error is None and entry.partitions:
                        found[topic] = len(entry.partitions)
                        continue
                    problem = None if entry is None else entry.error
                    if problem is not None and _name(problem) not in (
                        *_UNKNOWN_TOPIC,
                        "LEADER_NOT_AVAILABLE",
                    ):
                        raise confluent().KafkaException(problem)
                if time.monotonic() >= deadline:
                    raise self._missing(topic)
                time.sleep(0.1)
        return found

    def open_partitions(self, topics: Iterable[str]) -> list[tuple[str, int]]:
        """Partitions of topics in which some transaction is open: readers of what is committed cannot read to the end.

        Raises:
            ConfigError: A topic is missing.
            StorageError: No broker answered in time.
        """
        partitions = self.partitions(topics)
        # In this order: a transaction that ends in between is taken for open, not the other way round.
        committed = self.ends(partitions, committed=True)
        written = self.ends(partitions, committed=False)
        return [at for at in partitions if committed[at] < written[at]]

    def partitions(self, topics: Iterable[str]) -> list[tuple[str, int]]:
        """Topic and number of all partitions of topics.

        Raises:
            ConfigError: A topic is missing.
            StorageError: No broker answered in time.
        """
        counts = self.require_topics(self._asker(), topics)
        return [(topic, at) for topic, count in counts.items() for at in range(count)]

    def ends(self, partitions: Iterable[tuple[str, int]], *, committed: bool) -> dict[tuple[str, int], int]:
        """The offset behind the last record, of each partition.

        Args:
            partitions: Topic and number.
            committed: Whether what is behind the first open transaction does not count.

        Raises:
            StorageError: No broker answered in time.
        """
        kafka = confluent()
        from confluent_kafka.admin import OffsetSpec

        level = kafka.IsolationLevel.READ_COMMITTED if committed else kafka.IsolationLevel.READ_UNCOMMITTED
        wanted = {kafka.TopicPartition(*at): OffsetSpec.latest() for at in partitions}
        if not wanted:
            return {}
        with self.mapped("look up offsets"):
            asked = self._asker().list_offsets(wanted, isolation_level=level, request_timeout=self.timeout_s)
            return {(at.topic, at.partition): future.result().offset for at, future in asked.items()}

    @contextmanager
    def mapped(self, doing: str, *, topic: str | None = None) -> Iterator[None]:
        """Errors of the client as ours; `doing` completes "cannot"."""
        kafka = confluent()
        try:
            yield
        except kafka.KafkaException as exc:
            raise self.error(exc.args[0], doing, topic=topic) from None
        except SystemError:
            # What the client's C code leaves of a fatal error that came twice.
            raise StorageError(f"{self.what} cannot {doing}: its client has failed for good.") from None
        except (TypeError, ValueError) as exc:
            raise ConfigError(self._properties.redacted(f"{self.what} cannot {doing}: {exc}.")) from None

    def error(self, error: Any, doing: str, *, topic: str | None = None) -> TidemarkError:
        """What an error of the client means."""
        name = _name(error)
        text = self._properties.redacted(str(error.str()))
        servers = self._properties.bootstrap_servers
        problem = f"{self.what} cannot {doing}"
        if name in _UNKNOWN_TOPIC and topic is not None:
            return self._missing(topic)
        if name in _UNREACHABLE:
            return StorageError(
                f"{problem}: the Kafka brokers at {servers} did not answer within {self.timeout_s:g} s ({text}). Look "
                "whether they run and can be reached from here, also under the addresses they advertise.",
                path=servers,
            )
        if name in _REFUSED:
            return StorageError(
                f"{problem}: the Kafka brokers at {servers} refuse it ({text}). Check the security settings of the "
                "client and the rights (ACLs) of its user.",
                path=servers,
                verdict=StorageVerdict.UNUSABLE,
            )
        if name == "MSG_SIZE_TOO_LARGE":
            return ConfigError(
                f"{problem}: a message is too large ({text}). Raise message.max.bytes of the sink, and "
                "max.message.bytes of the topic or message.max.bytes of the broker."
            )
        if name == "INVALID_TRANSACTION_TIMEOUT":
            return ConfigError(
                f"{problem}: its transaction.timeout.ms is above what the brokers at {servers} allow ({text}). Lower "
                "it, or raise transaction.max.timeout.ms of the brokers.",
                key="transaction.timeout.ms",
            )
        if name in ("_INVALID_ARG", "INVALID_CONFIG"):
            return ConfigError(f"{problem}: {text}.")
        return StorageError(f"{problem} (brokers {servers}): {text}.", path=servers)

    def _missing(self, topic: str) -> ConfigError:
        return ConfigError(
            f"{self.what}: the topic '{topic}' does not exist on the Kafka brokers at "
            f"{self._properties.bootstrap_servers}. Create it first (kafka-topics --create), or correct its name."
        )


def _name(error: Any) -> str:
    return str(error.name())
