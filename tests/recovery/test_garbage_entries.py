"""A snapshot whose checksums are right and whose content is garbage: the job fails at once and names the entry."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import msgspec
import pytest
from tests.recovery.local_jobs import DEADLINE, Count, Numbers, local_env, new_board

from tidemark import (
    ExternalizedCheckpointRetention,
    JobStatus,
    NumberSequenceSource,
    RestartStrategies,
    Types,
    WatermarkStrategy,
)
from tidemark.checkpoint.metadata import read_metadata
from tidemark.checkpoint.metadata.registry import write_metadata
from tidemark.checkpoint.storage import FileSystemStorage
from tidemark.state.serializers.streams import DataOutputView

PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])


def start(tmp_path, path=None):
    seen = new_board()
    settings = {"state.checkpoints.dir": str(tmp_path / "checkpoints")}
    if path is not None:
        settings["execution.savepoint.path"] = str(path)
    env = local_env(settings)
    env.enable_checkpointing(10)
    retention = ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    env.get_checkpoint_config().set_externalized_checkpoint_retention(retention)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(2**31 - 1, 1))
    numbers = env.add_source(Numbers(seen.name, bounded=False), type_info=Types.LONG()).uid("numbers")
    listed = env.from_collection([1, 2, 3], Types.LONG()).uid("listed")
    sequence = env.from_source(NumberSequenceSource(1, 3), WatermarkStrategy.no_watermarks(), "sequence").uid(
        "sequence"
    )
    keyed = numbers.union(listed, sequence).key_by(lambda n: n % 3, Types.LONG())
    keyed.process(Count(), PAIR).uid("count").print()
    return env.execute_async("garbage"), seen


def position(uid, data, metadata):
    return replace(metadata, source_positions={**metadata.source_positions, uid: data})


def subtasks(uid, change, metadata):
    """`metadata` with every subtask of an operator changed."""
    operators = [
        replace(o, subtasks=tuple(change(s) for s in o.subtasks)) if o.uid == uid else o
        for o in metadata.operators
    ]
    return replace(metadata, operators=tuple(operators))


def parts(change, metadata):
    """`metadata` with the source's own state changed."""
    made = partial(map, lambda part: replace(part, **change))
    return subtasks("numbers", lambda s: replace(s, operator=tuple(made(s.operator))), metadata)


def keyed_serializer(data, metadata):
    def change(subtask):
        tables = [replace(t, meta=replace(t.meta, value=data)) for t in subtask.tables]
        return replace(subtask, tables=tuple(tables))

    return subtasks("count", change, metadata)


def serializer_called(name):
    out = DataOutputView()
    out.write(b"\x01")
    out.write_utf(name)
    out.write_int(1)
    out.write_bytes(b"")
    return out.getvalue()


GARBAGE = {
    "position is no msgpack": (partial(position, "listed", b"\xc1"), "'listed'"),
    "position is nested": (partial(position, "listed", b"\x91" * 5000 + b"\x01"), "'listed'"),
    "position is no text": (partial(position, "listed", b"\xa2\xff\xfe"), "'listed'"),
    "position is text": (partial(position, "listed", msgspec.msgpack.encode("abc")), "'listed'"),
    "position is negative": (partial(position, "listed", msgspec.msgpack.encode(-5)), "'listed'"),
    "ranges are numbers": (partial(position, "sequence", msgspec.msgpack.encode([1, 2])), "'sequence'"),
    "operator state": (partial(parts, {"elements": (b"\x01",)}), "'offset'"),
    "serializer": (partial(parts, {"serializer": b"\x01\xff"}), "'offset'"),
    "no serializer": (partial(parts, {"serializer": b""}), "'offset'"),
    "serializer ..": (partial(parts, {"serializer": serializer_called("..")}), "'offset'"),
    "serializer .a": (partial(parts, {"serializer": serializer_called(".a.B")}), "'offset'"),
    "keyed serializer": (partial(keyed_serializer, b"\x01\xff"), "'count'"),
    "keyed serializer ..": (partial(keyed_serializer, serializer_called("...")), "'count'"),
}


@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_in_a_snapshot_ends_the_job_at_once_and_is_named(tmp_path, garbage):
    client, seen = start(tmp_path)
    seen.wait_set("emitted")
    client.cancel().result(DEADLINE)
    client.runner.join(DEADLINE)
    path = max(tmp_path.glob("checkpoints/*/chk-*"), key=lambda found: int(found.name[4:]))
    change, named = GARBAGE[garbage]
    storage = FileSystemStorage(sync=False)
    write_metadata(storage, str(path), change(read_metadata(storage, str(path))))

    client, _seen = start(tmp_path, path)

    error = client.get_job_execution_result().exception(DEADLINE)
    assert client.get_job_status().result() is JobStatus.FAILED
    assert client.runner.execution.attempt == 0, "another attempt cannot help"
    assert named in str(error)
