"""Driver side of the Kafka sink: publishes what tasks have staged, in one transaction per checkpoint.

Who may publish is said twice: by the claim on the staging area, as for every sink with staged output, and by the
brokers, which fence all but the newest producer of a transactional id. What is published is said by the marker, in the
same transaction as the records. It is read behind every `init_transactions`, so a commit that was not acknowledged is
neither lost nor repeated. Staged files go when their transaction is known to be committed.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import partial

import msgspec

from tidemark.checkpoint.metadata.model import CheckpointMetadata
from tidemark.config import Options
from tidemark.errors import FencedError, RestoreError, StorageError, StorageVerdict
from tidemark.plan.vertex import Vertex
from tidemark.runtime.kafka.client import KafkaClients
from tidemark.runtime.sealed_notes import DamagedNote, seal, unseal
from tidemark.runtime.sinks.claimed import ClaimedSink
from tidemark.runtime.sinks.driver import Following, ImmediateSink
from tidemark.runtime.sinks.frontier import ATTEMPT, Frontier, read_frontier
from tidemark.runtime.sinks.kafka_attempts import Attempt, Marker, Outcome, Stretch, outcome_of
from tidemark.runtime.sinks.kafka_commits import StagedGroup, encode_groups
from tidemark.runtime.sinks.kafka_sender import producer_settings, senders
from tidemark.runtime.sinks.kafka_staged import StagedRecords, Unpublished
from tidemark.runtime.sinks.kafka_task import clients_of, sender_key
from tidemark.runtime.sinks.kafka_topics import Topics, message_limit
from tidemark.runtime.sinks.kafka_transactions import (
    MarkerPlace,
    ProducerFenced,
    Transactions,
    read_marker,
)
from tidemark.runtime.sinks.staged_files import StagedFile, claim_directory

__all__ = ["KafkaExactlyOnceSink", "KafkaImmediateSink"]

_log = logging.getLogger(__name__)

_TRIES = 3
"""Producers that one commit may use up before the attempt fails."""
_REFRESH_S = 6 * 3600.0
"""How old a marker may get; brokers forget offsets after days (`offsets.retention.minutes`)."""
_TRANSACTION_TIMEOUT = str(5 * 60_000)
"""How long a transaction may take. Whoever dies amid one holds up `read_committed` readers for that long at most."""
_QUEUE = {"queue.buffering.max.messages": "500000", "queue.buffering.max.kbytes": "262144"}
"""What may wait in the driver's producer. Its own limit, 100,000 records, is reached in a tenth of a second; then the
driver waits for brokers instead of preparing what comes next."""
_ANY_TOPIC = "__consumer_offsets"
"""Where the marker of a sink without a topic of its own is: every cluster that has consumer groups has it."""


class KafkaImmediateSink(ImmediateSink):
    """Tasks send by themselves; the driver only looks whether they can."""

    def __init__(self, vertex: Vertex, timeout_ms: int) -> None:
        super().__init__(vertex)
        self._clients = clients_of(vertex, timeout_ms)

    def claim(
        self,
        lineage: str,
        restored: CheckpointMetadata | None,
        *,
        repeat: bool = False,
        following: Following | None = None,
    ) -> None:
        """Look up the topic, so that a job without one, or without brokers, fails before it reads anything."""
        require_topics(self.vertex, self._clients)

    def take(self, rows: Iterable[bytes], staged: list[StagedFile], epoch: int) -> None:
        """Nothing comes this way."""

    def close(self, *, restorable: bool = False) -> None:
        """Tasks of the local executor have used producers of this process."""
        senders.forget(sender_key(self.vertex.spec.sink))


def require_topics(vertex: Vertex, clients: KafkaClients, *others: str) -> None:
    """Make sure that the topics of a sink that are known beforehand are there.

    Raises:
        ConfigError: One is not.
        StorageError: No broker answered.
    """
    sink = vertex.spec.sink
    topic = sink.record_serializer.topic
    topics = Topics(clients, message_limit(sink.properties.client()))
    topics.require(*dict.fromkeys([name for name in (topic, *others) if name is not None]))
    if topic is None and not others:
        # There is nothing to look up, but brokers there must be.
        with clients.mapped("connect"):
            clients.admin().list_topics(timeout=clients.timeout_s)


class KafkaExactlyOnceSink(ClaimedSink):
    """Writes the records of a checkpoint in one transaction; exactly-once, also between drivers of one lineage."""

    def __init__(
        self,
        vertex: Vertex,
        staging_directory: str,
        job_id: str,
        timeout_ms: int,
        *,
        allow_missing: bool = False,
    ) -> None:
        """Make the sink; nothing is touched before `claim`.

        Args:
            vertex: The sink in its job.
            staging_directory: Where staged records wait.
            job_id: The job.
            timeout_ms: How long a broker may take to answer.
            allow_missing: Whether to go on without staged files that are gone.
        """
        super().__init__(vertex, staging_directory, job_id, "Kafka sink")
        self._sink = vertex.spec.sink
        self._clients = clients_of(vertex, timeout_ms)
        self._allow_missing = allow_missing
        self._marker_place = MarkerPlace("", "")
        self._transactions: Transactions | None = None
        self._marker: Frontier | None = None
        """What the marker says, as far as we know; None: there is none."""
        self._marked_at = time.monotonic()
        self._tried: str | None = None
        """Token of a transaction that was begun and is not known to be committed."""
        self._repeat = False
        self._owing = False
        """Whether a complete checkpoint covers records that are not published yet."""

    # The claim

    def claim(
        self,
        lineage: str,
        restored: CheckpointMetadata | None,
        *,
        repeat: bool = False,
        following: Following | None = None,
    ) -> None:
        """Claim the sink at the first attempt; later ones keep that claim, if it is still theirs."""
        self._restored, self._repeat = restored, repeat
        if self._claim is not None:
            self.verify_claim()
            return
        uid, prefix = self.vertex.uid, self._sink.transactional_id_prefix
        # All that can be refused is refused before the claim, which stops the driver that had it.
        self._directory = claim_directory(lineage, f"{prefix}\0{uid}")
        topic = self._sink.marker_topic or self._sink.record_serializer.topic
        self._marker_place = MarkerPlace(f"{prefix}-{uid}-{lineage}", topic or _ANY_TOPIC)
        require_topics(self.vertex, self._clients, *([topic] if topic else []))
        if restored is not None:
            self._staged.listed(restored.sink_commits.get(uid, b""))
        # A transaction may be open; whoever began it is fenced below.
        marker, _group = read_marker(self._clients, self._marker_place, stable=False)
        self._marker = None if marker is None else marker.frontier
        with self._mapped("claimed"):
            self._frontier = read_frontier(self._place, self._directory)
            self._refuse_behind(restored, withdraws=following is not None)
            self._claim = self._acquire(lineage)
        try:
            # And again behind it, because the other one may have published meanwhile.
            self._marker = self._fence()
            with self._mapped("claimed"):
                self._frontier = read_frontier(self._place, self._directory)
            self._refuse_behind(restored, withdraws=following is not None)
        except BaseException:
            self._discard()
            claim, self._claim = self._claim, None
            with suppress(OSError):
                claim.release(keep_area=True)
                self._place.remove_empty(claim.area)
                self._place.remove_empty(self._directory)
            raise
        self._owing = restored is not None

    def _refuse_behind(self, restored: CheckpointMetadata | None, *, withdraws: bool) -> None:
        frontier = self._published
        if frontier is None or frontier.admits(restored):
            return
        start = (
            "the beginning"
            if restored is None
            else f"checkpoint {restored.checkpoint_id} of job {restored.job_id}"
        )
        problem = (
            f"The Kafka sink '{self.vertex.uid}' (marker: group '{self._marker_place.group}' at "
            f"{self._sink.properties.bootstrap_servers}) has been published up to {frontier}, by a driver of the same "
            f"lineage; this job starts from {start}"
        )
        if self._repeat:
            _log.warning("%s and WRITES RECORDS AGAIN.", problem)
            return
        option = Options.CHECKPOINTING_ALLOW_FALLBACK.key
        told = f", though {option} is 'withdraw'" if withdraws else ""
        raise FencedError(
            f"{problem} and would write records again. Records in Kafka cannot be taken back{told}. Start from the "
            "newest snapshot, or give the sink another topic and transactional id prefix; or end the other driver and "
            f"accept duplicates with {option}: duplicate.",
            path=self._base,
        )

    @property
    def _published(self) -> Frontier | None:
        """How far output is published: what the marker says, and what we noted if brokers have forgotten it."""
        return self._marker if self._marker is not None else self._frontier

    @property
    def _committed(self) -> int:
        """Newest checkpoint of this job whose records are in Kafka; 0: none."""
        marker = self._marker
        return marker.published if marker is not None and marker.job_id == self._job_id else 0

    @property
    def _staged(self) -> StagedRecords:
        """What is staged, as far as it is known where: before there is a claim it can only be checked."""
        area = "" if self._claim is None else self._claim.area
        uid, what = self.vertex.uid, self._clients.what
        return StagedRecords(self._place, self._base, self._directory, area, uid, what, self._mapped)

    # Transactions

    def _fence(self) -> Frontier | None:
        """Open transactions, which ends those of whoever was here before; what the marker says then."""
        self.verify_claim()
        given = self._sink.properties.client()
        settings = {
            **{key: value for key, value in _QUEUE.items() if key not in given},
            "transactional.id": self._marker_place.group,
            "enable.idempotence": "true",
            "acks": "all",
            "transaction.timeout.ms": self._sink.properties.get(
                "transaction.timeout.ms", _TRANSACTION_TIMEOUT
            ),
        }
        opened = Transactions(
            self._clients, producer_settings(self._sink, settings), self._marker_place, self._last_outcome
        )
        # Whoever has claimed meanwhile has been fenced by us, and must not be kept out: it will open anew.
        self.verify_claim()
        self._transactions = opened
        return None if opened.marker is None else opened.marker.frontier

    def _last_attempt(self) -> Attempt | None:
        """The last note of a transaction before its commit, ours or that of the driver before us."""
        assert self._claim is not None
        path = f"{self._claim.area}/{ATTEMPT}"
        try:
            return unseal(self._place.read(path), Attempt)
        except FileNotFoundError:
            return None
        except DamagedNote as exc:
            raise StorageError(
                f"The note '{path}' of the last transaction of {self._clients.what.replace('The ', 'the ', 1)} is "
                f"damaged ({exc}). Look whether the topic holds what is staged, and remove the note.",
                path=path,
                verdict=StorageVerdict.UNUSABLE,
            ) from exc

    def _last_outcome(self, stored: Marker | None) -> tuple[Outcome, Marker | None]:
        """How the last transaction ended that anybody has asked the commit of, and its marker.

        Args:
            stored: The marker as it was before the transaction that is undecided.
        """
        attempt = self._last_attempt()
        if attempt is None or (stored is not None and stored.token == attempt.marker.token):
            return Outcome.ABORTED, None
        staged = self._staged
        files = [staged.locate(file) for file in attempt.files]
        return outcome_of(self._clients, attempt, partial(staged.batches, files)), attempt.marker

    def _note_attempt(self, marker: Marker, files: list[Unpublished], stretches: list[Stretch]) -> None:
        assert self._claim is not None
        attempt = Attempt(marker, tuple(stretches), tuple([entry.file for entry in files]))
        self._place.write(f"{self._claim.area}/{ATTEMPT}", seal(attempt))

    def _opened_transactions(self) -> Transactions:
        """The producer at hand, or a new one; then the marker must be where we left it, or at a commit of ours.

        Raises:
            FencedError: Another driver has published meanwhile.
            StorageError: No broker answered, or the marker is gone.
        """
        if self._transactions is None:
            expected = self._marker
            found = self._fence()
            if found is None and expected is not None:
                raise StorageError(
                    f"{self._clients.what}: its marker, consumer group '{self._marker_place.group}', is gone, so "
                    "nothing can say whether the last transaction was committed. Somebody has deleted the group or the "
                    f"topic '{self._marker_place.topic}'.",
                    verdict=StorageVerdict.UNUSABLE,
                )
            if found is not None and found != expected and found.job_id != self._job_id:
                raise FencedError(
                    f"{self._clients.what}: job {found.job_id} has published up to {found} under the same "
                    f"transactional id '{self._marker_place.group}'. This driver stops and publishes nothing.",
                    path=self._base,
                )
            self._marker = found
        assert self._transactions is not None
        return self._transactions

    def _settle(self) -> None:
        """Learn what is published if the last commit has failed: the brokers may have done it nevertheless.

        Raises:
            FencedError: Another driver has published meanwhile.
            StorageError: No broker answered, or the marker is gone.
        """
        self._opened_transactions()

    def _discard(self, *, abort: bool = False) -> None:
        """Throw a producer away: after an error nothing it says can be relied on."""
        opened, self._transactions = self._transactions, None
        if opened is not None and abort:
            opened.abort()

    def _write(self, files: list[Unpublished], frontier: Frontier, *, again: bool) -> None:
        """Write records and the marker in one transaction; behind an error the marker tells whether it was committed.

        Args:
            files: Staged records.
            frontier: For the marker.
            again: Whether a driver before us may have tried.

        Raises:
            FencedError: Another driver has taken over.
            StorageError: No broker answered in time, or a staged file is damaged.
            ConfigError: A record or a property is refused.
        """
        marker = Marker(frontier, secrets.token_hex(8))
        for left in reversed(range(_TRIES)):
            try:
                transactions = self._opened_transactions()
                token = None if transactions.marker is None else transactions.marker.token
                if token != marker.token:
                    self.verify_claim()
                    again = again or self._tried not in (None, token)
                    self._tried = marker.token
                    transactions.commit(
                        partial(self._staged.batches, files),
                        marker,
                        self._staged.topics_of(files, self._sink.record_serializer.topic),
                        partial(self._note_attempt, marker, files),
                        again=again,
                    )
                break
            except ProducerFenced as exc:
                # By a newer driver, or by the brokers because the transaction took too long: the claim tells.
                self._discard()
                self.verify_claim()
                if not left:
                    raise FencedError(
                        f"{self._clients.what}: the brokers have fenced its producer '{self._marker_place.group}' "
                        f"again and again ({exc}). Another driver uses the same transactional id, or a transaction "
                        "takes longer than transaction.timeout.ms.",
                        path=self._base,
                    ) from None
            except StorageError as exc:
                self._discard(abort=not left)
                if not left or exc.verdict is not StorageVerdict.TRANSIENT:
                    raise
                _log.warning("A commit is tried again with a new producer. %s", exc)
            except BaseException:
                self._discard(abort=True)
                raise
        self._marker, self._marked_at, self._tried = frontier, time.monotonic(), None

    # The two phases

    def take(self, rows: Iterable[bytes], staged: list[StagedFile], epoch: int) -> None:
        """Remember the files of an epoch."""
        self._pending += staged

    def prepare(self, checkpoint_id: int) -> bytes:
        """List what is staged, by the checkpoint it belongs to."""
        self._prepared[checkpoint_id], self._pending = self._pending, []
        return encode_groups(self._prepared)

    def commit(self, checkpoint_id: int) -> None:
        """Write what this checkpoint and earlier ones cover, in one transaction."""
        due = sorted(key for key in self._prepared if key <= checkpoint_id)
        if not due:
            return
        self._owing = True
        if any(self._prepared[key] for key in due) or time.monotonic() - self._marked_at > _REFRESH_S:
            self._settle()
            files = [file for key in due if key > self._committed for file in self._prepared[key]]
            frontier = Frontier(self._job_id, max(due[-1], self._committed), settled=True)
            self._let_out(files, frontier, f"checkpoint {due[-1]}")
        for key in due:
            del self._prepared[key]
        self._owing = False

    def publish(self, items: list[StagedFile]) -> None:
        """Write what no checkpoint covers: the end of a job."""
        if items:
            self._settle()
            start = self._marker or Frontier(self._job_id, settled=True)
            self._let_out(items, msgspec.structs.replace(start, beyond=True), "the end of the job")

    def restore(self, checkpoint_id: int | None, prepared: bytes) -> None:
        """Publish what the checkpoint covers and the marker does not; whatever else is staged goes.

        The marker names this job from here on, so that a driver before us learns of it wherever it stages.

        Raises:
            RestoreError: Records the checkpoint covers are lost, or nothing can say whether they were published.
        """
        groups = self._staged.listed(prepared)
        restored = self._restored
        try:
            self._settle()
            if self._marker is not None and self._marker.job_id == self._job_id and self._marker.beyond:
                self._refuse_behind(restored, withdraws=False)
            if checkpoint_id is not None:
                self.commit(checkpoint_id)
            files = [] if restored is None else self._unpublished(groups, restored)
            if files or self._marker is None or self._marker.job_id != self._job_id:
                what = (
                    ""
                    if restored is None
                    else f"checkpoint {restored.checkpoint_id} of job {restored.job_id}"
                )
                frontier = Frontier.at_start(self._job_id, restored, settled=True)
                self._let_out(files, frontier, what, again=bool(files))
        except StorageError as exc:
            if exc.verdict is StorageVerdict.TRANSIENT:
                raise
            raise RestoreError(str(exc), path=exc.path, operator_uid=self.vertex.uid) from exc
        self._owing = False
        with self._mapped("swept"):
            self._sweep()
        self._prepared, self._pending = {}, []

    def _unpublished(self, groups: list[StagedGroup], restored: CheckpointMetadata) -> list[StagedFile]:
        marker = self._marker_place.group if self._marker is None else None
        return self._staged.unpublished(groups, restored, self._published, marker, repeat=self._repeat)

    def _let_out(
        self, files: list[StagedFile], frontier: Frontier, what: str, *, again: bool = False
    ) -> None:
        """Write files to Kafka, note it, delete them; a crash in between leaves them for the next restore to sweep."""
        with self._mapped("published"):
            present = self._present(files, what)
            self._write(present, frontier, again=again)
            self._note(frontier)
            for entry in present:
                self._place.remove(entry.source)

    def _present(self, files: list[StagedFile], what: str) -> list[Unpublished]:
        """All files with their places, looked at before the first record is written."""
        staged = self._staged
        located = [staged.locate(file) for file in files]
        missing = [entry.file for entry in located if not staged.is_there(entry)]
        if not missing:
            return located
        self.verify_claim()
        rows = sum(file.rows for file in missing)
        problem = (
            f"{len(missing)} files with staged records of {self._clients.what.replace('The ', 'the ', 1)} at {what} "
            f"are gone, the first is '{missing[0].staged}': {rows} RECORDS ARE LOST, and were never written to Kafka"
        )
        if not self._allow_missing:
            raise StorageError(
                f"{problem}. Bring the files back, or start the job from an older snapshot ('tidemark run -s'), which "
                f"makes these records again; to go on without them set "
                f"{Options.CHECKPOINTING_ALLOW_MISSING_OUTPUT.key}: true.",
                path=missing[0].staged,
                verdict=StorageVerdict.MISSING,
            )
        _log.warning("%s.", problem)
        return [entry for entry in located if entry.file not in missing]

    def close(self, *, restorable: bool = False) -> None:
        """Remove what was never committed, release the claim, disconnect."""
        self._discard()
        self._release(restorable=restorable, keep=restorable and self._owing)
