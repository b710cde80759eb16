"""Live state as rows: the queryable state of a running job, read by Spark tasks, a range of key groups each.

A task lists the keys of its range and then reads them, some at a time. Every key is read in one piece, between two
records; the whole is no snapshot, because the job runs on meanwhile. Columns are those of the same state in a snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tidemark.errors import ConfigError
from tidemark.queryablestate.client import QueryableStateClient
from tidemark.queryablestate.describe import StateDescription
from tidemark.queryablestate.plain_values import find_state, plain_value
from tidemark.runtime.control_client import ControlClient
from tidemark.runtime.launch import client_tls
from tidemark.state.canonical import RowEncoder, Rows, StateSerializers
from tidemark.state.descriptors import StateKind
from tidemark.state.key_groups import assign_to_key_group
from tidemark.state.key_tokens import KeyTokens
from tidemark.state.snapshot import state_schema
from tidemark.state_processor.input_splits import parse_ranges, split_groups
from tidemark.state_processor.rewrite import parse_key
from tidemark.tls import TlsFiles, client_side

__all__ = ["LiveRange", "LiveState"]

_KEYS_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class LiveState:
    """One published state of a running job and where it is served."""

    job_id: str
    name: str
    host: str
    port: int
    token: bytes = field(repr=False)
    timeout: float
    parallelism: int
    description: StateDescription
    tls: TlsFiles | None = None

    @staticmethod
    def find(job: str, name: str, address: str | None, timeout: float) -> LiveState:
        """Ask the job.

        Args:
            job: Its id, or the unique beginning of it.
            name: The name the state is published under.
            address: `HOST:PORT` of its control endpoint, if it is of another machine; see `ControlClient.find`.
            timeout: Seconds to wait for each answer.

        Raises:
            JobNotFoundError: No such job runs.
            StateNotServedError: It serves no queries, or publishes no such state.
        """
        with ControlClient.find(job, address, timeout) as control:
            facts = control.query_facts(name)
            host, token, tls = control.host, control.token, control.tls()
        job_id, port, context = facts["job_id"], facts["query_port"], client_side(tls)
        with QueryableStateClient(host, port, timeout=timeout, token=token, tls=context) as client:
            description = find_state(client, job_id, name)
        return LiveState(
            job_id,
            name,
            host,
            port,
            token,
            timeout,
            max(int(facts["parallelism"]), 1),
            description,
            tls,
        )

    def schema(self) -> pa.Schema:
        """Columns as in a snapshot: key_group, key, map_key of map state, value."""
        meta = self.description.meta()
        serializers = StateSerializers.of(meta)
        return state_schema(meta, serializers.key, serializers.value, serializers.map_key)

    def ranges(self, partitions: int, key_groups: str | None, key: str | None) -> list[LiveRange]:
        """What the tasks are to read: as many ranges as asked for (by default the job's parallelism).

        Raises:
            ConfigError: Key groups or a key that there cannot be.
        """
        groups = self.description.max_parallelism
        if key is not None:
            serializer = self.description.key_serializer()
            value = parse_key(key, serializer)
            group = assign_to_key_group(serializer.key_bytes(value), groups)
            return [LiveRange((group, group), (value,))]
        if key_groups:
            return [LiveRange(each) for each in parse_ranges(key_groups, groups)]
        return [LiveRange(each) for each in split_groups(groups, partitions or self.parallelism)]

    def batches(self, part: LiveRange) -> Iterator[pa.RecordBatch]:
        """The rows of one range, in canonical form.

        Raises:
            QueryError: The job has ended, or does not answer in time.
        """
        found = self.description
        key_type, descriptor, meta = found.key_serializer(), found.descriptor(), found.meta()
        serializers = StateSerializers.of(meta)
        tokens = KeyTokens(serializers.key)
        encoder = RowEncoder(meta, self.schema(), serializers, found.max_parallelism)
        with QueryableStateClient(
            self.host, self.port, timeout=self.timeout, token=self.token, tls=client_tls(self.tls)
        ) as client:
            keys: Sequence[Any] = (
                client.keys(self.job_id, self.name, key_type, descriptor, part.groups).result()
                if part.keys is None
                else part.keys
            )
            for at in range(0, len(keys), _KEYS_AT_ONCE):
                some = list(keys[at : at + _KEYS_AT_ONCE])
                states = client.get_kv_states(self.job_id, self.name, some, key_type, descriptor).result()
                held = [
                    (token, plain_value(found.kind, state))
                    for token, state in zip(tokens.of(some), states, strict=True)
                    if state is not None
                ]
                yield from encoder.batches(_rows(found.kind, held, serializers).pieces)


@dataclass(frozen=True, slots=True)
class LiveRange:
    """What one task reads.

    Attributes:
        groups: First and last key group.
        keys: The keys to read, if they are known; None: all of the range.
    """

    groups: tuple[int, int]
    keys: tuple[Any, ...] | None = None


def _rows(kind: StateKind, held: list[tuple[Any, Any]], serializers: StateSerializers) -> Rows:
    if kind is not StateKind.MAP:
        return Rows([token for token, _ in held], [value for _, value in held])
    if serializers.map_key is None:
        raise ConfigError("Map state without a type of its keys cannot be shown as rows.")
    entries = [(token, map_key, value) for token, items in held for map_key, value in items.items()]
    map_tokens = KeyTokens(serializers.map_key).of([map_key for _, map_key, _ in entries])
    return Rows([token for token, _, _ in entries], [value for _, _, value in entries], None, map_tokens)
