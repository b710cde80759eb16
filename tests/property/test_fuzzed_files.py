"""Whatever is in a file that we read: a value, or an error of ours that says what is wrong. Nothing in it is run."""

from __future__ import annotations

import io
import os
import random
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import xxhash
from tests.campaign import seeds
from tests.property.hostile import mutated, nothing_is_unpickled

from tidemark.checkpoint.inspection import describe, verify
from tidemark.checkpoint.metadata import registry
from tidemark.checkpoint.metadata.registry import decode
from tidemark.config.loader import parse_conf
from tidemark.errors import TidemarkError
from tidemark.jobs import JobRecord, list_jobs, write_record
from tidemark.processes import process_started, this_machine
from tidemark.runtime import left_behind
from tidemark.runtime.archive import local_archive, read_archives
from tidemark.runtime.history import EndedJob, read_history, remember
from tidemark.runtime.places import open_place
from tidemark.runtime.sealed_notes import DamagedNote, seal, unseal
from tidemark.runtime.sinks.frontier import Frontier, read_frontier
from tidemark.runtime.sinks.kafka_commits import decode_groups, encode_groups
from tidemark.runtime.sinks.kafka_records import MAGIC, OutgoingRecords, encode_frame, read_staged
from tidemark.runtime.sinks.staged_files import StagedFile, decode_commits, encode_commits
from tidemark.state.serializers.compatibility import dump_serializer_snapshot, load_serializer_snapshot
from tidemark.state.serializers.registry import serializer_for
from tidemark.types.typeinfo import Types

GOLDEN = Path(__file__).parents[1] / "compat" / "v0_1"
JOB = "0123456789abcdef0123456789abcdef"
FILE = StagedFile("/out/.a.inprogress", "/out/a", 3, 100, "0" * 32)
SEEDS = seeds(60)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path / "home"))
    with nothing_is_unpickled():
        yield tmp_path / "home"


def fuzz(data: bytes, read: Callable[[bytes], Any]) -> int:
    """Let `read` have changed bytes, of every seed; how many it refused."""
    changes = [mutated(random.Random(seed), data) for seed in SEEDS]
    return sum(is_refused(partial(read, changed)) for changed in changes)


def is_refused(read: Callable[[], Any]) -> bool:
    """Whether it raises an error of ours; any other goes on."""
    try:
        read()
    except TidemarkError:
        return True
    return False


def resealed(payload: bytes) -> bytes:
    """A `_metadata` file whose author has made the checksum fit."""
    checksum = xxhash.xxh3_128_digest(payload)
    return registry._HEADER.pack(registry._MAGIC, 1, len(payload), checksum) + payload


@pytest.mark.parametrize("kind", ["heap-savepoint", "memory-checkpoint", "rocksdb-checkpoint"])
def test_metadata(kind: str) -> None:
    data = (GOLDEN / kind / "chk" / "_metadata").read_bytes()
    payload = data[registry._HEADER.size :]

    assert fuzz(data, decode) == sum(mutated(random.Random(seed), data) != data for seed in SEEDS)
    assert fuzz(payload, lambda changed: decode(resealed(changed))) > len(SEEDS) // 4


@pytest.mark.parametrize("kind", ["heap-savepoint", "rocksdb-checkpoint"])
def test_every_file_of_a_snapshot(kind: str, tmp_path: Path) -> None:
    """Damage of any byte is told; a file that fits a forged `_metadata` is read or refused, never more."""
    shutil.copytree(GOLDEN / kind, tmp_path / "s")
    files = sorted(path for path in (tmp_path / "s").rglob("*") if path.is_file())
    path = str(tmp_path / "s" / "chk")
    for seed in seeds(20):
        rng = random.Random(seed)
        victim = rng.choice(files)
        before = victim.read_bytes()
        changed = mutated(rng, before)
        victim.write_bytes(changed)
        assert bool(verify(path)) == (changed != before), f"{victim}, seed {seed}"
        is_refused(lambda: describe(path))
        victim.write_bytes(before)

    def describe_forged(payload: bytes) -> None:
        (tmp_path / "s" / "chk" / "_metadata").write_bytes(resealed(payload))
        describe(path)
        verify(path)

    whole = (GOLDEN / kind / "chk" / "_metadata").read_bytes()
    assert fuzz(whole[registry._HEADER.size :], describe_forged) > 0


def test_the_registry_of_jobs(home: Path) -> None:
    machine, started = this_machine(), process_started()
    path = write_record(JobRecord(JOB, "job", os.getpid(), "unix:/s", "00", 1, 2, started, machine))
    data = path.read_bytes()

    def read(changed: bytes) -> None:
        path.write_bytes(changed)
        list_jobs()

    assert fuzz(data, read) == 0
    path.write_bytes(b"[" * 100_000)
    assert list_jobs() == []


def test_the_history_and_archives(home: Path, tmp_path: Path) -> None:
    remember(EndedJob(JOB, "job", "FINISHED", 1, 2, 3))
    history = home / "history.jsonl"
    data = history.read_bytes()
    archive = (
        b'{"facts": {"job_id": "' + JOB.encode() + b'", "name": "n"}, "plan": {"nodes": []}, "samples": []}'
    )
    shared = tmp_path / "shared"
    shared.mkdir()

    def read(changed: bytes) -> None:
        history.write_bytes(changed)
        read_history()

    def read_archive(changed: bytes) -> None:
        (shared / f"{JOB}.json").write_bytes(changed)
        read_archives(str(shared), {})
        local_archive(JOB)

    assert fuzz(data * 3, read) == 0
    assert fuzz(archive, read_archive) == 0


def test_notes_of_where_jobs_leave_things(home: Path) -> None:
    note = {"job_id": JOB, "pid": 1, "since": 1, "started": 1.0, "machine": this_machine()}
    place = home / "places" / f"{JOB}.json"
    place.parent.mkdir(parents=True, mode=0o700)
    os.chmod(home, 0o700)

    def read(changed: bytes) -> None:
        place.write_bytes(changed)
        os.chmod(place, 0o600)
        list(left_behind._dead_notes())

    fuzz(msgspec.json.encode({**note, "staging": [], "checkpoints": None, "savepoints": []}), read)


def test_how_far_a_file_sink_has_published(tmp_path: Path) -> None:
    area = tmp_path / "claim" / ".area-1-0123456789abcdef"
    area.mkdir(parents=True)
    place = open_place(str(tmp_path))

    def read(changed: bytes) -> None:
        (area / ".frontier").write_bytes(changed)
        read_frontier(place, "claim")

    assert fuzz(seal(Frontier(JOB, 3, withdrawn=((1, 2),))), read) > 0


def test_every_flipped_bit_and_every_cut_of_a_note_that_the_next_driver_goes_by() -> None:
    note = Frontier(JOB, 3, withdrawn=((1, 2),))
    data = seal(note)
    flipped = [
        data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
        for at in range(len(data))
        for bit in range(8)
    ]

    assert unseal(data, Frontier) == note
    for changed in [*flipped, *(data[:end] for end in range(len(data))), data + b" "]:
        with pytest.raises(DamagedNote):
            unseal(changed, Frontier)


def test_lists_of_staged_files() -> None:
    assert fuzz(encode_commits([FILE] * 3), lambda changed: decode_commits(changed, "uid")) > 0
    assert fuzz(encode_groups({1: [FILE], 2: [FILE]}), lambda changed: decode_groups(changed, "uid")) > 0


def test_staged_records_of_kafka() -> None:
    frame = encode_frame(OutgoingRecords("topic", [b"value"] * 3, [b"key"] * 3))
    data = MAGIC + frame + frame

    def read(changed: bytes) -> None:
        file = StagedFile("/s", "/f", 6, len(changed), xxhash.xxh3_128_hexdigest(changed))
        list(read_staged(io.BytesIO(changed), file))

    read(data)
    assert fuzz(data, read) > len(SEEDS) // 2


def test_descriptions_of_serializers() -> None:
    row = Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.MAP(Types.STRING(), Types.DOUBLE())])
    data = dump_serializer_snapshot(serializer_for(row))

    assert fuzz(data, load_serializer_snapshot) > 0


def test_configuration_files() -> None:
    text = b"a: 1\nsecurity:\n  ssl:\n    internal.enabled: true # no\n  list: [a, b]\n- x\n"

    fuzz(text, lambda changed: parse_conf(changed.decode("utf-8", "replace")))
