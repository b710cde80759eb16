"""Looking into snapshots without a job: what is in them, and whether every byte is as it was written.

Nothing a snapshot names is imported and nothing in it is unpickled: a snapshot from anybody may be looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from tidemark.checkpoint.format.native import verify_native
from tidemark.checkpoint.format.read import read_schema, verify_table
from tidemark.checkpoint.layout import SnapshotLocation, resolve_snapshot_path, savepoint_location
from tidemark.checkpoint.metadata.model import CheckpointMetadata, OperatorState, SubtaskState
from tidemark.checkpoint.metadata.registry import read_metadata
from tidemark.checkpoint.storage.base import Storage
from tidemark.checkpoint.storage.filesystem import FileSystemStorage
from tidemark.errors import StorageError, TidemarkError
from tidemark.state.serializers.naming import stored_serializer_name
from tidemark.state.snapshot import StateMeta

__all__ = ["describe", "verify"]

_DEEPEST = 50


def describe(path: str, storage: Storage | None = None) -> dict[str, Any]:
    """What a checkpoint or savepoint holds, as plain data for text or JSON output.

    Args:
        path: Anything that names a snapshot: directory, `_metadata`, retained `chk-<n>`.
        storage: Where to look; file systems by default.

    Raises:
        SavepointNotFoundError: Nothing complete is there.
        MetadataError: The metadata cannot be understood.
    """
    storage = storage or FileSystemStorage()
    directory = resolve_snapshot_path(storage, path)
    metadata = read_metadata(storage, directory)
    location = savepoint_location(directory)
    return {
        "path": directory,
        "format_version": metadata.format_version,
        "checkpoint_id": metadata.checkpoint_id,
        "type": "savepoint" if metadata.is_savepoint else "checkpoint",
        "timestamp": metadata.timestamp,
        "job_id": metadata.job_id,
        "job_name": metadata.job_name,
        "state_size": metadata.state_size,
        "properties": dict(metadata.properties),
        "sources": {uid: _readable(data) for uid, data in metadata.source_positions.items()},
        "sinks": {uid: _readable(data) for uid, data in metadata.sink_commits.items()},
        "operators": [_describe_operator(operator, storage, location) for operator in metadata.operators],
    }


def verify(
    path: str, storage: Storage | None = None, on_progress: Callable[[int, int], None] | None = None
) -> list[str]:
    """Check every byte a snapshot refers to; return what is wrong, an empty list if nothing is.

    Args:
        path: As for `describe`.
        storage: As for `describe`.
        on_progress: Called after each file with the bytes checked so far and those of all files.

    Raises:
        SavepointNotFoundError: Nothing complete is there.
    """
    storage = storage or FileSystemStorage()
    directory = resolve_snapshot_path(storage, path)
    try:
        metadata = read_metadata(storage, directory)
    except TidemarkError as exc:
        return [str(exc)]
    location = savepoint_location(directory)
    problems = []
    done, total = 0, sum(_file_sizes(metadata))
    report = on_progress or (lambda _done, _total: None)
    for uid, subtask in _subtasks(metadata):
        for table in subtask.tables:
            try:
                verify_table(table, storage, directory)
            except StorageError as exc:
                problems.append(f"{uid}[{subtask.index}] state '{table.meta.name}': {exc}")
            done += table.file_size
            report(done, total)
        for file in subtask.native.files if subtask.native is not None else ():
            try:
                verify_native(file, storage, directory, location.shared)
            except StorageError as exc:
                problems.append(f"{uid}[{subtask.index}] file '{file.name}': {exc}")
            done += file.size
            report(done, total)
    return problems


def _file_sizes(metadata: CheckpointMetadata) -> Iterator[int]:
    for _uid, subtask in _subtasks(metadata):
        yield from [table.file_size for table in subtask.tables]
        yield from [file.size for file in subtask.native.files] if subtask.native is not None else ()


def _subtasks(metadata: CheckpointMetadata) -> list[tuple[str, SubtaskState]]:
    return [(operator.uid, subtask) for operator in metadata.operators for subtask in operator.subtasks]


def _describe_operator(
    operator: OperatorState, storage: Storage, location: SnapshotLocation
) -> dict[str, Any]:
    return {
        "uid": operator.uid,
        "name": operator.name,
        "parallelism": operator.parallelism,
        "max_parallelism": operator.max_parallelism,
        "state_size": operator.state_size,
        "keyed_states": _keyed_states(operator, storage, location),
        "operator_states": _operator_states(operator),
        "subtasks": [
            {
                "index": subtask.index,
                "key_groups": list(subtask.key_groups) if subtask.key_groups is not None else None,
                "state_size": subtask.state_size,
                "native": subtask.native.kind if subtask.native is not None else None,
            }
            for subtask in operator.subtasks
        ],
    }


def _keyed_states(
    operator: OperatorState, storage: Storage, location: SnapshotLocation
) -> list[dict[str, Any]]:
    states: dict[tuple[str, str], dict[str, Any]] = {}
    for subtask in operator.subtasks:
        for table in subtask.tables:
            entry = _state_entry(states, table.meta)
            entry["rows"] = (entry["rows"] or 0) + table.rows
            entry["state_size"] = (entry["state_size"] or 0) + table.state_size
            if table.rows and entry["columns"] is None:
                schema = read_schema(table, storage, location.directory)
                entry["columns"] = {field.name: str(field.type) for field in schema}
        for meta in subtask.native.metas if subtask.native is not None else ():
            _state_entry(states, meta)
    return [states[key] for key in sorted(states)]


def _state_entry(states: dict[tuple[str, str], dict[str, Any]], meta: StateMeta) -> dict[str, Any]:
    return states.setdefault(
        (meta.kind.value, meta.name),
        {
            "name": meta.name,
            "kind": meta.kind.value,
            "namespace": meta.namespace.name.lower(),
            "ttl": meta.ttl,
            "key_serializer": stored_serializer_name(meta.key),
            "value_serializer": stored_serializer_name(meta.value),
            "map_key_serializer": stored_serializer_name(meta.map_key),
            # Native files do not tell rows of one state from another's.
            "rows": None,
            "state_size": None,
            "columns": None,
        },
    )


def _operator_states(operator: OperatorState) -> list[dict[str, Any]]:
    states: dict[str, dict[str, Any]] = {}
    for subtask in operator.subtasks:
        for part in subtask.operator:
            entry = states.setdefault(
                part.name,
                {
                    "name": part.name,
                    "mode": part.mode.value,
                    "serializer": stored_serializer_name(part.serializer),
                    "elements": 0,
                    "state_size": 0,
                },
            )
            entry["elements"] += len(part.elements)
            entry["state_size"] += sum(len(element) for element in part.elements)
    return [states[name] for name in sorted(states)]


def _readable(data: bytes) -> Any:
    """What bytes of a source or sink mean: MessagePack, which the runtime writes, else text, else digits."""
    try:
        return _plain(msgspec.msgpack.decode(data))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data.hex()
    return text if text.isprintable() or text.strip().isprintable() else data.hex()


def _plain(value: Any, depth: int = 0) -> Any:
    """The value as JSON has it, down to a depth that every renderer can follow.

    Raises:
        ValueError: It is nested deeper than any position is.
    """
    if depth > _DEEPEST:
        raise ValueError("too deep")
    if isinstance(value, dict):
        return {
            key if isinstance(key, str) else repr(key): _plain(inner, depth + 1)
            for key, inner in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_plain(inner, depth + 1) for inner in value]
    return value
