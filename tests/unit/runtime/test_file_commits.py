"""The driver side of the file sink: what it publishes, takes back and refuses."""

from __future__ import annotations

import errno
import gc
import math
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import fsspec
import msgspec
import pytest
from fsspec import AbstractFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractBufferedFile

from tidemark.api.connectors.file_system import RollingPolicy
from tidemark.checkpoint.metadata.model import CheckpointMetadata
from tidemark.clock import ManualClock
from tidemark.errors import (
    ConfigError,
    ExecutionError,
    FencedError,
    MetadataError,
    RestoreError,
    StorageError,
)
from tidemark.protocol.failure import is_curable
from tidemark.protocol.reports import TaskReport
from tidemark.runtime.places import open_place
from tidemark.runtime.records import Records
from tidemark.runtime.sealed_notes import seal, unseal
from tidemark.runtime.sinks.file_driver import FilesSink
from tidemark.runtime.sinks.file_task import FileTaskSink, LineWriter, StagedOutput
from tidemark.runtime.sinks.frontier import Frontier
from tidemark.runtime.sinks.legacy import sweep_legacy
from tidemark.runtime.sinks.staged_files import StagedFile, claim_directory, decode_commits, encode_commits


def new_sink(base: Any, job: str = "first", restored: CheckpointMetadata | None = None) -> FilesSink:
    vertex: Any = SimpleNamespace(id=3, uid="out")
    sink = FilesSink(vertex, str(base), job)
    sink.claim("first", restored)
    return sink


def staged(sink: FilesSink, base: Any, *texts: str, bucket: str = "") -> list[StagedFile]:
    """What a task reports that wrote each text to a file of its own."""
    assert sink.staging is not None
    task = FileTaskSink(
        str(base),
        sink.staging,
        partial(LineWriter, str.encode),
        lambda _value, _now: bucket,
        "p",
        ".txt",
        RollingPolicy(1),
        "u",
        3,
        check_every_ms=60_000,
    )
    for text in texts:
        task.write(Records([text]))
    report = TaskReport(0, 0)
    task.close(report)
    return report.staged[3]


def visible(base: Any) -> list[str]:
    files = [path for path in Path(base).rglob("*") if path.is_file() and not path.name.startswith(".")]
    return sorted(path.read_text() for path in files)


def snapshot(job: str, checkpoint_id: int, lineage: str = "first") -> CheckpointMetadata:
    return CheckpointMetadata(checkpoint_id, 0, job, lineage=lineage)


def test_files_are_published_by_the_checkpoint_that_covers_them_and_only_once(tmp_path: Path) -> None:
    sink = new_sink(tmp_path)
    sink.restore(None, b"")
    sink.take([], staged(sink, tmp_path, "a", bucket="x/y"), 0)
    prepared = sink.prepare(1)

    assert visible(tmp_path) == []
    sink.commit(1)
    sink.commit(1)
    assert [path.read_text() for path in (tmp_path / "x/y").iterdir()] == ["a"]

    again = new_sink(tmp_path, "second", snapshot("first", 1))
    again.restore(1, prepared)
    assert visible(tmp_path) == ["a"]


def test_a_file_that_a_reader_has_fetched_is_not_missed(tmp_path: Path) -> None:
    sink = new_sink(tmp_path)
    sink.take([], staged(sink, tmp_path, "a"), 0)
    prepared = sink.prepare(1)
    sink.commit(1)
    next(tmp_path.glob("p-*")).unlink()

    new_sink(tmp_path, "second", snapshot("first", 1)).restore(1, prepared)

    assert visible(tmp_path) == []


def test_the_next_driver_publishes_what_the_dead_one_had_staged_and_sweeps_the_rest(tmp_path: Path) -> None:
    dead = new_sink(tmp_path)
    dead.take([], staged(dead, tmp_path, "a"), 0)
    prepared = dead.prepare(1)
    staged(dead, tmp_path, "of an epoch after the checkpoint")
    stranger = tmp_path / ".p-other.inprogress"
    stranger.touch()

    sink = new_sink(tmp_path, "second", snapshot("first", 1))
    sink.restore(1, prepared)

    assert visible(tmp_path) == ["a"]
    assert list(tmp_path.rglob("*.inprogress")) == [stranger]


def test_a_driver_that_lost_its_claim_publishes_nothing(tmp_path: Path) -> None:
    frozen = new_sink(tmp_path)
    frozen.take([], staged(frozen, tmp_path, "a"), 0)
    prepared = frozen.prepare(1)
    sink = new_sink(tmp_path, "second", snapshot("first", 1))

    for act in (frozen.verify_claim, lambda: frozen.commit(1), lambda: frozen.publish(frozen._prepared[1])):
        with pytest.raises(FencedError, match="Job second, started from a snapshot of the same lineage"):
            act()
    frozen.close()
    assert visible(tmp_path) == []
    sink.restore(1, prepared)
    assert visible(tmp_path) == ["a"]


def test_a_driver_that_lost_its_claim_before_its_first_note_is_told_so(tmp_path: Path) -> None:
    frozen = new_sink(tmp_path)
    sink = new_sink(tmp_path, "second", snapshot("first", 1))

    with pytest.raises(FencedError, match="Job second, started from a snapshot of the same lineage"):
        frozen.restore(None, b"")
    sink.verify_claim()


def test_a_task_of_a_driver_that_lost_its_claim_cannot_stage_files(tmp_path: Path) -> None:
    frozen = new_sink(tmp_path)
    new_sink(tmp_path, "second", snapshot("first", 1))

    with pytest.raises(StorageError, match="another driver may have taken the sink over"):
        staged(frozen, tmp_path, "late")


def test_attempts_of_one_driver_keep_its_claim(tmp_path: Path) -> None:
    sink = new_sink(tmp_path)
    sink.restore(None, b"")
    area = sink.staging
    sink.take([], staged(sink, tmp_path, "a"), 0)
    prepared = sink.prepare(1)
    staged(sink, tmp_path, "lost with the attempt")

    sink.claim("first", snapshot("first", 1))
    sink.restore(1, prepared)

    assert sink.staging == area
    assert visible(tmp_path) == ["a"]
    assert not list(tmp_path.rglob("*.inprogress"))


@pytest.mark.parametrize(
    ("point", "admitted"),
    [
        (("first", 1), False),
        (("first", 2), True),
        (("first", 3), True),
        (("second", 9), False),
        (None, False),
    ],
)
def test_a_driver_that_would_start_behind_what_is_published_is_refused(tmp_path, point, admitted) -> None:
    alive = new_sink(tmp_path)
    alive.restore(None, b"")
    for number in (1, 2):
        alive.take([], staged(alive, tmp_path, str(number)), 0)
        alive.prepare(number)
        alive.commit(number)
    restored = None if point is None else snapshot(*point)

    if admitted:
        new_sink(tmp_path, "third", restored)
        return
    with pytest.raises(FencedError, match="published up to checkpoint 2 of job first"):
        new_sink(tmp_path, "third", restored)
    alive.verify_claim()


def test_a_job_that_was_restored_may_be_started_again_from_where_it_started(tmp_path: Path) -> None:
    new_sink(tmp_path, "first").restore(None, b"")
    new_sink(tmp_path, "second", snapshot("first", 4)).restore(4, b"")

    new_sink(tmp_path, "third", snapshot("first", 4)).restore(4, b"")
    fourth = snapshot("third", 5)
    new_sink(tmp_path, "fourth", fourth).restore(5, b"")
    with pytest.raises(FencedError, match="published up to checkpoint 5 of job third"):
        new_sink(tmp_path, "fifth", snapshot("first", 4))


@pytest.mark.parametrize("restorable", [True, False])
def test_what_was_published_stays_noted_while_there_are_snapshots_to_start_from(tmp_path, restorable) -> None:
    sink = new_sink(tmp_path)
    sink.take([], staged(sink, tmp_path, "a"), 0)
    sink.prepare(2)
    sink.commit(2)
    staged(sink, tmp_path, "never covered")
    sink.close(restorable=restorable)

    assert not list(tmp_path.rglob("*.inprogress"))
    if restorable:
        with pytest.raises(FencedError):
            new_sink(tmp_path, "second", snapshot("first", 1))
    else:
        assert not list(tmp_path.glob(".tidemark*"))


@pytest.mark.parametrize("withdraw", [True, False])
def test_what_is_published_behind_the_last_checkpoint_is_noted_and_cannot_be_taken_back(
    tmp_path: Path, withdraw: bool
) -> None:
    first = new_sink(tmp_path)
    first.restore(None, b"")
    first.take([], staged(first, tmp_path, "a"), 0)
    first.prepare(2)
    first.commit(2)
    first.take([], staged(first, tmp_path, "behind"), 1)
    first.finish()
    first.close(restorable=True)
    assert visible(tmp_path) == ["a", "behind"]

    vertex: Any = SimpleNamespace(id=3, uid="out")
    second = FilesSink(vertex, str(tmp_path), "second")
    following = (lambda _newest: []) if withdraw else None

    with pytest.raises(FencedError, match="published up to the end of job first"):
        second.claim("first", snapshot("first", 2), following=following)


def test_jobs_of_other_lineages_share_a_directory_undisturbed(tmp_path: Path) -> None:
    sink = new_sink(tmp_path)
    sink.take([], staged(sink, tmp_path, "a"), 0)
    sink.prepare(1)
    other = FilesSink(sink.vertex, str(tmp_path), "other")
    other.claim("other", None)
    other.restore(None, b"")

    sink.commit(1)
    other.verify_claim()
    assert visible(tmp_path) == ["a"]


def test_what_0_1_0_staged_is_published_and_its_leftovers_are_swept(tmp_path: Path) -> None:
    job = "0123456789abcdef"
    name = f"p-0-{job[:12]}-3-0-7-aaaaaaaa.txt"
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / f".{name}.inprogress").write_text("a")
    (tmp_path / "b" / f".p-1-{job[:12]}-3-0-9-bbbbbbbb.txt.inprogress").write_text("later")
    strangers = [
        tmp_path / ".p-1-999999999999-3-0-9-c.txt.inprogress",
        tmp_path / f".p-1-{job[:12]}-4-0-9-c.inprogress",
    ]
    for stranger in strangers:
        stranger.touch()
    file = StagedFile(f"{tmp_path}/b/.{name}.inprogress", f"{tmp_path}/b/{name}", 1, 1, "")

    vertex: Any = SimpleNamespace(id=3, uid="out")
    sink = FilesSink(vertex, str(tmp_path), "second")
    old = CheckpointMetadata(5, 0, job)
    sink.claim(old.lineage_id, old)
    sink.restore(5, encode_commits([file]))

    assert visible(tmp_path) == ["a"]
    assert sorted(tmp_path.rglob("*.inprogress")) == sorted(strangers)


def test_a_snapshot_of_0_1_0_cannot_name_files_that_no_sink_of_its_job_wrote(tmp_path: Path) -> None:
    old = CheckpointMetadata(5, 0, "0123456789abcdef")
    vertex: Any = SimpleNamespace(id=3, uid="out")
    for name in ("report.csv", "p-0-aaaaaaaaaaaa-3-0-7-aaaaaaaa.txt"):
        (tmp_path / f".{name}.inprogress").write_text("a")
        evil = StagedFile(f"{tmp_path}/.{name}.inprogress", f"{tmp_path}/{name}", 1, 1, "")
        sink = FilesSink(vertex, str(tmp_path), "second")
        sink.claim(old.lineage_id, old)
        with pytest.raises(MetadataError, match="Nothing was touched"):
            sink.restore(5, encode_commits([evil]))
        with pytest.raises(MetadataError, match="Nothing was touched"):
            sink.withdraw(encode_commits([evil]))
    assert visible(tmp_path) == []


def hostile(base: Path, victim: Path) -> dict[str, tuple[str, str]]:
    """Pairs of paths no sink has written, by what is wrong with them."""
    (base / ".x.inprogress").write_text("evil")
    (base / "published").write_text("good")
    (base / "link").symlink_to(victim)
    (victim / ".y.inprogress").write_text("secret")
    return {
        "final outside": (f"{base}/.x.inprogress", f"{victim}/x"),
        "staged outside": (f"{victim}/.y.inprogress", f"{base}/y"),
        "both outside": (f"{victim}/.y.inprogress", f"{victim}/y"),
        "dots in final": (f"{base}/../{victim.name}/.x.inprogress", f"{base}/../{victim.name}/x"),
        "dots elsewhere": (f"{victim}/../.x.inprogress", f"{victim}/../x"),
        "other name": (f"{base}/.x.inprogress", f"{base}/published"),
        "no staged file": (f"{base}/published", f"{base}/x"),
        "another claim": (f"{base}/.tidemark-0/.area-00000001-0000000000000000/.x.inprogress", f"{base}/x"),
        "a file of ours that we did not stage": (f"{base}/.x.inprogress", f"{base}/x"),
        "into a claim": (f"{base}/.tidemark-0/.x.inprogress", f"{base}/.tidemark-0/x"),
        "nul": (f"{base}/.x\0.inprogress", f"{base}/x\0"),
        "empty name": (f"{base}//.x.inprogress", f"{base}//x"),
    }


@pytest.mark.parametrize("kind", [
    "final outside", "staged outside", "both outside", "dots in final", "dots elsewhere", "other name",
    "no staged file", "another claim", "into a claim", "nul", "empty name", "a file of ours that we did not stage",
])  # fmt: skip
def test_a_snapshot_cannot_make_the_sink_touch_other_files(tmp_path: Path, kind: str) -> None:
    base, victim = tmp_path / "out", tmp_path / "victim"
    base.mkdir()
    victim.mkdir()
    evil, final = hostile(base, victim)[kind]
    dead = new_sink(base)
    good = staged(dead, base, "good")
    prepared = encode_commits([*good, StagedFile(evil, final, 1, 4, "")])
    sink = new_sink(base, "second", snapshot("first", 1))

    with pytest.raises(MetadataError) as caught:
        sink.restore(1, prepared)

    assert caught.value.path is not None
    assert repr(evil)[1:-1] in str(caught.value)
    assert list(Path(str(sink.staging)).glob("*.inprogress")), (
        "nothing is touched before everything is checked"
    )
    assert os.listdir(victim) == [".y.inprogress"]
    assert (base / "published").read_text() == "good"
    if kind != "both outside":
        with pytest.raises(MetadataError):
            sink.withdraw(prepared)
        assert (base / "published").exists()


def test_a_snapshot_that_is_refused_does_not_stop_the_driver_that_runs(tmp_path: Path) -> None:
    alive = new_sink(tmp_path)
    evil = encode_commits([StagedFile(f"{tmp_path}/.x.inprogress", "/etc/x", 1, 1, "")])

    with pytest.raises(MetadataError, match="/etc/x"):
        new_sink(
            tmp_path, "second", CheckpointMetadata(1, 0, "first", lineage="first", sink_commits={"out": evil})
        )
    alive.verify_claim()


def test_a_link_in_the_way_of_a_published_file_is_not_followed(tmp_path: Path) -> None:
    base, victim = tmp_path / "out", tmp_path / "victim"
    victim.mkdir()
    sink = new_sink(base)
    (base / "bucket").symlink_to(victim)
    sink.take([], staged(sink, base, "a", bucket="bucket"), 0)
    sink.prepare(1)

    with pytest.raises(StorageError, match="a symbolic link or a file is in the way"):
        sink.commit(1)
    assert os.listdir(victim) == []


@pytest.mark.parametrize(
    "data",
    [
        b"\xc1",
        msgspec.msgpack.encode({"a": 1}),
        msgspec.msgpack.encode([["a", "b", -1, 1, ""]]),
        msgspec.msgpack.encode([["a" * 10_000, "b", 1, 1, ""]]),
        msgspec.msgpack.encode([["a", "b", 1]]),
    ],
)
def test_a_list_that_is_none_is_refused_and_names_the_sink(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(MetadataError, match="entry for sink 'out' is no list of staged files"):
        new_sink(tmp_path).restore(1, data)


def test_a_sink_with_a_new_directory_leaves_what_the_old_one_published(tmp_path: Path) -> None:
    old = new_sink(tmp_path / "old")
    old.take([], staged(old, tmp_path / "old", "a"), 0)
    prepared = old.prepare(1)
    with pytest.raises(MetadataError, match="is not published yet and lies outside"):
        new_sink(tmp_path / "new", "second", snapshot("first", 1)).restore(1, prepared)
    old.commit(1)

    sink = new_sink(tmp_path / "new", "third", snapshot("first", 1))
    sink.restore(1, prepared)

    assert visible(tmp_path / "old") == ["a"]
    assert not sink.withdraw(prepared)
    old.verify_claim()


@pytest.mark.parametrize("settled", [True, False])
def test_files_at_a_former_directory_that_are_gone_count_as_published_only_if_that_is_noted(
    tmp_path: Path, settled: bool
) -> None:
    old = new_sink(tmp_path / "old")
    old.restore(None, b"")
    prepared = prepared_by(old, tmp_path / "old", 1, "a", "b")
    old.commit(1)
    for path in (tmp_path / "old").glob("p-*"):
        path.unlink()
    if not settled:
        shutil.rmtree(next((tmp_path / "old").glob(".tidemark-*")))
    restored = CheckpointMetadata(1, 0, "first", lineage="first", sink_commits={"out": prepared})

    if settled:
        new_sink(tmp_path / "new", "second", restored).restore(1, prepared)
        return
    with pytest.raises(MetadataError, match="nothing says that it was published") as caught:
        new_sink(tmp_path / "new", "second", restored)

    assert decode_commits(prepared, "out")[0].staged in str(caught.value)
    assert "another uid" in str(caught.value)
    assert not (tmp_path / "new").exists(), "it fails before anything is touched"


def test_files_that_are_visible_at_a_former_directory_are_published_though_no_note_is_left(
    tmp_path: Path,
) -> None:
    old = new_sink(tmp_path / "old")
    old.restore(None, b"")
    old.take([], staged(old, tmp_path / "old", "a", "b", bucket="x/y"), 0)
    prepared = old.prepare(1)
    old.commit(1)
    shutil.rmtree(next((tmp_path / "old").glob(".tidemark-*")))

    new_sink(tmp_path / "new", "second", snapshot("first", 1)).restore(1, prepared)


def test_a_former_directory_that_goes_while_the_job_runs_is_no_business_of_it(tmp_path: Path) -> None:
    old = new_sink(tmp_path / "old")
    old.restore(None, b"")
    prepared = prepared_by(old, tmp_path / "old", 1, "a")
    old.commit(1)
    sink = new_sink(tmp_path / "new", "second", snapshot("first", 1))
    sink.restore(1, prepared)

    shutil.rmtree(tmp_path / "old")

    sink.claim("first", snapshot("first", 1))
    sink.restore(1, prepared)


def test_a_list_of_files_in_two_directories_is_refused(tmp_path: Path) -> None:
    sinks = [new_sink(tmp_path / name) for name in ("old", "new")]
    files = [
        file
        for sink, name in zip(sinks, ("old", "new"), strict=True)
        for file in staged(sink, tmp_path / name, name)
    ]

    with pytest.raises(MetadataError, match="and others in it") as caught:
        new_sink(tmp_path / "new", "second", snapshot("first", 1)).restore(1, encode_commits(files))

    assert files[0].staged in str(caught.value)
    assert len(list(tmp_path.rglob("*.inprogress"))) == 2


def test_a_former_directory_is_read_once_however_many_files_are_listed() -> None:
    fsspec.register_implementation("counted", Counted, clobber=True)
    old, new = "counted://server/old", "counted://server/new"
    sink = new_sink(old)
    sink.restore(None, b"")
    prepared = prepared_by(sink, old, 1, *map(str, range(20)))
    sink.commit(1)
    open_place(old).remove_tree(claim_directory("first", "out"))
    later = new_sink(new, "second", snapshot("first", 1))
    Counted.listed.clear()

    later.restore(1, prepared)

    assert 0 < len([path for path in Counted.listed if "old" in path]) <= 6


def test_what_0_1_0_left_at_a_former_directory_must_be_visible_there(tmp_path: Path) -> None:
    job = "0123456789abcdef"
    name = f"p-0-{job[:12]}-3-0-7-aaaaaaaa.txt"
    old = tmp_path / "old" / "bucket"
    old.mkdir(parents=True)
    file = StagedFile(f"{old}/.{name}.inprogress", f"{old}/{name}", 1, 1, "")
    restored = CheckpointMetadata(5, 0, job, sink_commits={"out": encode_commits([file])})
    vertex: Any = SimpleNamespace(id=3, uid="out")
    sink = FilesSink(vertex, str(tmp_path / "new"), "second")

    with pytest.raises(MetadataError, match="nothing says that it was published"):
        sink.claim(restored.lineage_id, restored)
    (old / f".{name}.inprogress").write_text("a")
    with pytest.raises(MetadataError, match="is not published yet"):
        sink.claim(restored.lineage_id, restored)
    (old / f".{name}.inprogress").rename(old / name)
    sink.claim(restored.lineage_id, restored)


@pytest.mark.parametrize(
    "bucket",
    [
        "../x", "a/../../x", "/etc", "a//b", "a/", ".", "a\0b", ".tidemark-0", None, 7, b"x",
        "x" * 256, "\u00e4" * 128, "a/" + "x" * 256, "/".join(["x" * 200] * 20), "a\ud800", "file", "file/below",
    ],
)  # fmt: skip
def test_a_bucket_that_is_no_directory_below_the_base_path_is_refused(tmp_path: Path, bucket: Any) -> None:
    sink = new_sink(tmp_path / "out")
    (tmp_path / "out/file").touch()

    with pytest.raises(ConfigError, match="no directory below the sink's base path"):
        staged(sink, tmp_path / "out", "a", bucket=bucket)
    assert os.listdir(tmp_path) == ["out"]


def test_a_bucket_of_the_longest_name_is_published(tmp_path: Path) -> None:
    sink = new_sink(tmp_path)
    sink.restore(None, b"")
    sink.take([], staged(sink, tmp_path, "a", bucket="x" * 255), 0)
    sink.prepare(1)

    sink.commit(1)

    assert visible(tmp_path) == ["a"]


@pytest.mark.parametrize(("prefix", "suffix"), [("p" * 240, ""), ("p", "\u00e4" * 120), ("p\ud800", "")])
def test_a_prefix_or_suffix_that_makes_names_no_file_system_takes_is_named(
    tmp_path: Path, prefix: str, suffix: str
) -> None:
    sink = new_sink(tmp_path)
    task = FileTaskSink(
        str(tmp_path),
        str(sink.staging),
        str.encode,
        lambda _value, _now: "",
        prefix,
        suffix,
        RollingPolicy(1),
        "u",
        3,
        check_every_ms=60_000,
    )

    with pytest.raises(ConfigError, match="prefix or suffix") as caught:
        task.write(Records(["a"]))

    assert not is_curable(ExecutionError.from_cause("Job failed", caught.value))
    assert list(tmp_path.rglob("*.inprogress")) == []


class ShortNames(MemoryFileSystem):
    """A server that takes no name over 100 bytes."""

    protocol = "short"

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self._look(path)
        super().makedirs(path, exist_ok)

    def open(self, path: str, mode: str = "rb", *arguments: Any, **options: Any) -> Any:
        self._look(path)
        return super().open(path, mode, *arguments, **options)

    def _look(self, path: str) -> None:
        if max(map(len, path.split("/"))) > 100:
            raise OSError(errno.ENAMETOOLONG, "File name too long", path)


@pytest.mark.parametrize("restoring", [False, True])
def test_a_bucket_that_the_file_system_does_not_take_is_named_and_not_tried_again(restoring: bool) -> None:
    fsspec.register_implementation("short", ShortNames, clobber=True)
    base = f"short://server/{restoring}"
    sink = new_sink(base)
    sink.restore(None, b"")
    sink.take([], staged(sink, base, "a", bucket="b" * 101), 0)
    prepared = sink.prepare(1)

    with pytest.raises(ConfigError, match="the bucket 'bbbb") as caught:
        if restoring:
            new_sink(base, "second", snapshot("first", 1)).restore(1, prepared)
        else:
            sink.commit(1)

    assert "sink 'out'" in str(caught.value)
    assert "get_bucket_id" in str(caught.value)
    assert not is_curable(ExecutionError.from_cause("Job failed", caught.value))


def test_a_file_name_that_the_file_system_does_not_take_is_not_tried_again() -> None:
    fsspec.register_implementation("short", ShortNames, clobber=True)
    sink = new_sink("short://server/names")
    staging = str(sink.staging)
    task = FileTaskSink(
        "short://server/names",
        staging,
        str.encode,
        lambda _value, _now: "",
        "p" * 95,
        "",
        RollingPolicy(1),
        "u",
        3,
        check_every_ms=60_000,
    )

    with pytest.raises(ConfigError, match="Shorten the prefix or suffix"):
        task.write(Records(["a"]))


def test_a_prefix_with_a_separator_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be part of a file's name"):
        FileTaskSink(
            str(tmp_path),
            str(tmp_path),
            partial(LineWriter, str.encode),
            lambda _v, _n: "",
            "../p",
            "",
            RollingPolicy(1),
            "u",
            3,
            check_every_ms=60_000,
        )


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (RollingPolicy.default_rolling_policy(1_000, 100, 1_000), ["abcd", "ef"]),
        (RollingPolicy.default_rolling_policy(1_000, 1_000, 75), ["abcde", "f"]),
        (RollingPolicy.default_rolling_policy(3, 1_000, 1_000), ["abc", "def"]),
        (RollingPolicy.on_checkpoint_rolling_policy(), ["abcdef"]),
    ],
    ids=["too old", "idle", "large", "at checkpoints"],
)
def test_the_rolling_policy_says_when_a_file_ends(tmp_path: Path, policy: Any, expected: list[str]) -> None:
    """Letters come at 0, 10, 20, 30 ... and the last one after a pause; age and idleness are looked at each 50 ms."""
    sink, clock = new_sink(tmp_path), ManualClock()
    task = FileTaskSink(
        str(tmp_path), str(sink.staging), partial(LineWriter, str.encode), lambda _v, _n: "", "p", "", policy,
        "u", 3, check_every_ms=50, clock=clock,
    )  # fmt: skip
    for letter, at in zip("abcdef", (0, 10, 20, 30, 100, 175), strict=True):
        clock.set(at)
        task.write(Records([letter]))
    report = TaskReport(0, 0)
    task.close(report)

    sink.take([], report.staged[3], 0)
    sink.prepare(1)
    sink.commit(1)

    assert visible(tmp_path) == expected


def test_a_staged_file_of_another_size_is_not_published(tmp_path: Path) -> None:
    sink = new_sink(tmp_path)
    sink.take([], staged(sink, tmp_path, "abc"), 0)
    sink.prepare(1)
    next(tmp_path.rglob("*.inprogress")).write_text("abcde")

    with pytest.raises(StorageError, match="has 5 bytes instead of 3"):
        sink.commit(1)
    assert visible(tmp_path) == []


def test_published_files_are_withdrawn_unless_the_older_checkpoint_lists_them_too(tmp_path: Path) -> None:
    sink = new_sink(tmp_path)
    sink.take([], staged(sink, tmp_path, "a"), 0)
    kept = sink.prepare(1)
    sink.take([], staged(sink, tmp_path, "b"), 1)
    prepared = sink.prepare(2)
    sink.commit(2)
    assert visible(tmp_path) == ["a", "b"]
    sink.take([], staged(sink, tmp_path, "c"), 2)
    later = sink.prepare(3)

    assert sink.withdraw(b"")
    assert sink.withdraw(later, kept)
    assert not list(tmp_path.rglob("*.inprogress"))
    assert sink.withdraw(prepared, kept)
    assert sink.withdraw(prepared, kept)

    assert visible(tmp_path) == ["a"]
    assert sink.publishes


def test_only_the_owner_withdraws(tmp_path: Path) -> None:
    frozen = new_sink(tmp_path)
    frozen.take([], staged(frozen, tmp_path, "a"), 0)
    prepared = frozen.prepare(1)
    frozen.commit(1)
    new_sink(tmp_path, "second", snapshot("first", 1))

    with pytest.raises(FencedError):
        frozen.withdraw(prepared)
    assert visible(tmp_path) == ["a"]


def test_output_is_not_taken_for_published_when_the_staging_area_is_gone(tmp_path: Path) -> None:
    """Somebody deleted it; the claim still stands, so nothing says that the files are visible."""
    sink = new_sink(tmp_path)
    sink.restore(None, b"")
    sink.take([], staged(sink, tmp_path, "a"), 0)
    sink.prepare(1)
    shutil.rmtree(str(sink.staging))

    with pytest.raises(StorageError, match="cannot be published"):
        sink.commit(1)


def test_the_end_of_a_job_publishes_nothing_for_a_driver_that_lost_its_claim(tmp_path: Path) -> None:
    frozen = new_sink(tmp_path)
    frozen.take([], staged(frozen, tmp_path, "a"), 0)
    new_sink(tmp_path, "second", snapshot("first", 1))

    with pytest.raises(FencedError):
        frozen.finish()

    assert visible(tmp_path) == []


def test_a_job_that_goes_back_to_its_own_checkpoint_notes_how_far_it_has_published(tmp_path: Path) -> None:
    sink = new_sink(tmp_path)
    sink.restore(None, b"")
    for number in (1, 2):
        sink.take([], staged(sink, tmp_path, str(number)), 0)
        prepared = sink.prepare(number)
        sink.commit(number)

    sink.claim("first", snapshot("first", 2))
    sink.restore(2, prepared)

    with pytest.raises(FencedError, match="published up to checkpoint 2 of job first"):
        new_sink(tmp_path, "third", snapshot("first", 1))


def test_going_back_in_one_driver_commits_what_the_checkpoint_covers_though_it_lists_nothing(
    tmp_path: Path,
) -> None:
    sink = new_sink(tmp_path)
    sink.restore(None, b"")
    sink.take([], staged(sink, tmp_path, "a"), 0)
    sink.prepare(1)

    sink.claim("first", snapshot("first", 1))
    sink.restore(1, b"")

    assert visible(tmp_path) == ["a"]


def test_accepted_duplicates_are_said_in_the_log_and_the_driver_goes_on(tmp_path: Path, caplog) -> None:
    alive = new_sink(tmp_path)
    alive.restore(None, b"")
    alive.take([], staged(alive, tmp_path, "1"), 0)
    alive.prepare(1)
    alive.commit(1)
    vertex: Any = SimpleNamespace(id=3, uid="out")
    sink = FilesSink(vertex, str(tmp_path), "second")

    sink.claim("first", None, repeat=True)

    assert "writes records again" in caplog.text
    sink.verify_claim()
    with pytest.raises(FencedError):
        alive.verify_claim()


def prepared_by(sink: FilesSink, base: Any, checkpoint_id: int, *texts: str) -> bytes:
    """The list of a checkpoint that covers one file per text."""
    sink.take([], staged(sink, base, *texts), 0)
    return sink.prepare(checkpoint_id)


def test_a_staged_file_that_vanishes_before_its_commit_fails_the_job_and_publishes_nothing(
    tmp_path: Path,
) -> None:
    sink = new_sink(tmp_path)
    sink.restore(None, b"")
    first = prepared_by(sink, tmp_path, 1, "1")
    sink.commit(1)
    prepared = prepared_by(sink, tmp_path, 2, "a", "b")
    lost = sorted(tmp_path.rglob("*.inprogress"))[0]
    lost.unlink()

    with pytest.raises(
        StorageError, match=r"neither staged .* nor visible, so its 1 records are lost"
    ) as caught:
        sink.commit(2)

    assert lost.name[1:].removesuffix(".inprogress") in str(caught.value)
    assert visible(tmp_path) == ["1"]
    # The next attempt, and the next driver, find the same; the one before it can still be gone back to.
    sink.claim("first", snapshot("first", 2))
    with pytest.raises(RestoreError, match="at checkpoint 2 cannot be published"):
        sink.restore(2, prepared)
    with pytest.raises(RestoreError, match="checkpoint 2 of job first cannot be published"):
        new_sink(tmp_path, "second", snapshot("first", 2)).restore(2, prepared)
    new_sink(tmp_path, "third", snapshot("first", 1)).restore(1, first)
    assert visible(tmp_path) == ["1"]
    assert not list(tmp_path.rglob("*.inprogress"))


@pytest.mark.parametrize("deleted", [".tidemark-*", ".tidemark-*/.area-*/*.inprogress"])
def test_a_snapshot_whose_output_was_deleted_before_it_was_published_is_refused(
    tmp_path: Path, deleted: str
) -> None:
    dead = new_sink(tmp_path)
    dead.restore(None, b"")
    prepared = prepared_by(dead, tmp_path, 1, "a")
    for path in tmp_path.glob(deleted):
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    sink = new_sink(tmp_path, "second", snapshot("first", 1))
    for _ in range(2):
        with pytest.raises(RestoreError, match="checkpoint 1 of job first cannot be published"):
            sink.restore(1, prepared)


def test_files_swept_by_an_attempt_that_did_not_know_the_snapshot_are_missed(tmp_path: Path) -> None:
    """Its metadata was written, but reported as failed, and could not be deleted."""
    driver = new_sink(tmp_path)
    driver.restore(None, b"")
    phantom = prepared_by(driver, tmp_path, 1, "a")
    driver.claim("first", None)
    driver.restore(None, b"")

    with pytest.raises(RestoreError, match=r"neither staged .* nor visible"):
        new_sink(tmp_path, "second", snapshot("first", 1)).restore(1, phantom)


@pytest.mark.parametrize("lost", [("a",), ("a", "b")])
def test_files_that_are_gone_after_a_driver_died_amid_publishing_fail_the_job(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, lost: tuple[str, ...]
) -> None:
    dead = new_sink(tmp_path)
    dead.restore(None, b"")
    prepared = prepared_by(dead, tmp_path, 1, "a", "b")
    dead._note(Frontier("first", 1))
    files = decode_commits(prepared, "out")[: len(lost)]
    for file in files:
        Path(file.staged).unlink()

    second = new_sink(tmp_path, "second", snapshot("first", 1))
    with pytest.raises(RestoreError, match="RECORDS ARE LOST") as caught:
        second.restore(1, prepared)

    told = str(caught.value)
    assert "sink 'out' at checkpoint 1 of job first" in told
    assert all(file.final in told for file in files)
    assert "execution.checkpointing.allow-missing-output: true" in told
    assert visible(tmp_path) == []
    second.close(restorable=True)

    vertex: Any = SimpleNamespace(id=3, uid="out")
    third = FilesSink(vertex, str(tmp_path), "third", allow_missing=True)
    third.claim("first", snapshot("first", 1))
    third.restore(1, prepared)

    assert visible(tmp_path) == ["b"][len(lost) - 1 :]
    assert "RECORDS ARE LOST" in caplog.text
    assert files[0].final in caplog.text


def test_a_message_names_some_of_many_lost_files(tmp_path: Path) -> None:
    dead = new_sink(tmp_path)
    dead.restore(None, b"")
    prepared = prepared_by(dead, tmp_path, 1, *"abcdefg")
    dead._note(Frontier("first", 1))
    for path in list(tmp_path.rglob("*.inprogress")):
        path.unlink()

    with pytest.raises(RestoreError, match=r"7 output files .* and 2 more. .* their 7 RECORDS"):
        new_sink(tmp_path, "second", snapshot("first", 1)).restore(1, prepared)


def test_what_nobody_has_kept_notes_of_is_only_said_aloud(tmp_path: Path, caplog) -> None:
    job = "0123456789abcdef"
    name = f"p-0-{job[:12]}-3-0-7-aaaaaaaa.txt"
    file = StagedFile(f"{tmp_path}/.{name}.inprogress", f"{tmp_path}/{name}", 1, 1, "")
    vertex: Any = SimpleNamespace(id=3, uid="out")
    sink = FilesSink(vertex, str(tmp_path), "second")
    old = CheckpointMetadata(5, 0, job)
    sink.claim(old.lineage_id, old)

    sink.restore(5, encode_commits([file]))

    assert "RECORDS ARE LOST" in caplog.text


def test_a_publication_is_noted_as_begun_before_the_first_file_and_as_done_after_the_last(
    tmp_path: Path,
) -> None:
    sink = new_sink(tmp_path)
    sink.restore(None, b"")
    prepared_by(sink, tmp_path, 1, "a")
    area = Path(str(sink.staging))
    sink.commit(1)

    note = unseal((area / ".frontier").read_bytes(), Frontier)
    assert (note.published, note.settled) == (1, True)
    assert not msgspec.json.decode(b'{"job_id": "first", "published": 1}', type=Frontier).settled


class Dying(MemoryFileSystem):
    """A server that renames and deletes as many files as it is told, then none."""

    protocol = "dying"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    steps: ClassVar[float] = math.inf
    meanwhile: ClassVar[list[Callable[[], Any]]] = []
    """What others do while the next rename is on its way."""

    def mv(self, path1: str, path2: str, **options: Any) -> None:
        while self.meanwhile:
            self.meanwhile.pop()()
        self._step()
        super().mv(path1, path2, **options)

    def rm_file(self, path: str) -> None:
        self._step()
        super().rm_file(path)

    def _step(self) -> None:
        Dying.steps -= 1
        if Dying.steps < 0:
            raise OSError(errno.EIO, "the server is gone")


@pytest.fixture
def dying() -> Iterator[str]:
    """The base path of a sink there."""
    fsspec.register_implementation("dying", Dying, clobber=True)
    Dying.store.clear()
    yield "dying://server/out"
    Dying.steps = math.inf


def test_a_driver_that_dies_amid_its_renames_has_noted_that_it_began(dying: str) -> None:
    sink = new_sink(dying)
    sink.restore(None, b"")
    prepared_by(sink, dying, 1, "1")
    sink.commit(1)
    second = prepared_by(sink, dying, 2, "a", "b")
    # The memory file system deletes what it has copied.
    Dying.steps = 2
    with pytest.raises(StorageError, match="the server is gone"):
        sink.commit(2)
    Dying.steps = math.inf

    with pytest.raises(FencedError, match="checkpoint 2 of job first"):
        new_sink(dying, "behind", snapshot("first", 1))
    new_sink(dying, "second", snapshot("first", 2)).restore(2, second)
    assert len([path for path in Dying.store if "/." not in path]) == 3


def test_a_driver_that_is_overtaken_between_its_check_and_the_rename_is_told_so(dying: str) -> None:
    sink = new_sink(dying)
    sink.restore(None, b"")
    prepared_by(sink, dying, 1, "a")
    Dying.meanwhile.append(lambda: new_sink(dying, "second", snapshot("first", 1)))

    with pytest.raises(FencedError, match="Job second, started from a snapshot of the same lineage"):
        sink.commit(1)
    assert not [path for path in Dying.store if "/." not in path]


class Uploads(AbstractFileSystem):
    """An object store: a file is there once it has been uploaded."""

    protocol = "uploads"
    done: ClassVar[list[str]] = []

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        return Upload(self, path, mode, **options)


class Upload(AbstractBufferedFile):
    def _upload_chunk(self, final: bool = False) -> bool:
        Uploads.done.append(self.path)
        return True


def test_a_remote_file_that_a_failed_attempt_left_open_is_not_uploaded_by_the_garbage_collector() -> None:
    fsspec.register_implementation("uploads", Uploads, clobber=True)
    base = "uploads://server/out"
    left, finished = [StagedOutput(f"{base}/.claim/.area", base, name) for name in ("left", "finished")]
    for out in (left, finished):
        out.write(b"x")

    finished.close(1)
    del left, out
    gc.collect()

    assert [path.rpartition("/")[2] for path in Uploads.done] == [".finished.inprogress"]


def test_a_server_that_is_gone_while_a_snapshot_is_published_again_is_tried_again(dying: str) -> None:
    sink = new_sink(dying)
    sink.restore(None, b"")
    prepared = prepared_by(sink, dying, 1, "a")
    successor = new_sink(dying, "second", snapshot("first", 1))
    Dying.steps = 0

    with pytest.raises(StorageError, match="the server is gone") as caught:
        successor.restore(1, prepared)

    assert is_curable(caught.value)


def test_a_driver_that_dies_amid_taking_back_has_noted_that_it_began(dying: str) -> None:
    first, second, third = three_checkpoints(dying)
    sink = new_sink(dying, "first", third)
    Dying.steps = 1
    with pytest.raises(StorageError, match="the server is gone"):
        sink.go_back([third, second], first)
    Dying.steps = math.inf

    for newer in (second, third):
        with pytest.raises(FencedError, match="taken back"):
            new_sink(dying, "second", newer)


def test_a_file_fetched_early_is_not_missed_by_a_checkpoint_that_overlaps(tmp_path: Path) -> None:
    sink = new_sink(tmp_path)
    sink.restore(None, b"")
    prepared_by(sink, tmp_path, 1, "a")
    both = prepared_by(sink, tmp_path, 2, "b")
    sink.commit(1)
    next(tmp_path.glob("p-*")).unlink()

    new_sink(tmp_path, "second", snapshot("first", 2)).restore(2, both)

    assert visible(tmp_path) == ["b"]


@pytest.mark.parametrize("restoring", [False, True])
def test_a_staged_file_with_a_flipped_byte_is_not_published(tmp_path: Path, restoring: bool) -> None:
    sink = new_sink(tmp_path)
    sink.restore(None, b"")
    prepared = prepared_by(sink, tmp_path, 1, "abc")
    next(tmp_path.rglob("*.inprogress")).write_text("abX")

    if restoring:
        with pytest.raises(RestoreError, match="other bytes than were written"):
            new_sink(tmp_path, "second", snapshot("first", 1)).restore(1, prepared)
    else:
        with pytest.raises(StorageError, match="other bytes than were written"):
            sink.commit(1)
    assert visible(tmp_path) == []


def test_another_file_of_the_final_name_is_not_replaced(tmp_path: Path) -> None:
    sink = new_sink(tmp_path)
    sink.restore(None, b"")
    files = staged(sink, tmp_path, "abc")
    sink.take([], files, 0)
    sink.prepare(1)
    Path(files[0].final).write_text("xyz")

    with pytest.raises(StorageError, match="another file is at"):
        sink.commit(1)
    assert visible(tmp_path) == ["xyz"]
    # A copy that was not followed by its delete, as object stores rename, is the same file.
    Path(files[0].final).write_text("abc")
    sink.commit(1)
    assert visible(tmp_path) == ["abc"]


def test_files_that_could_not_be_published_stay_staged_for_the_next_driver(tmp_path: Path) -> None:
    dead = new_sink(tmp_path)
    dead.restore(None, b"")
    prepared = prepared_by(dead, tmp_path, 1, "a", "b")
    hidden = sorted(tmp_path.rglob("*.inprogress"))[0]
    text = hidden.read_text()
    hidden.unlink()
    second = new_sink(tmp_path, "second", snapshot("first", 1))
    with pytest.raises(RestoreError):
        second.restore(1, prepared)
    second.close(restorable=True)

    area = next(tmp_path.glob(".tidemark-*/.area-*"))
    (area / hidden.name).write_text(text)
    new_sink(tmp_path, "third", snapshot("first", 1)).restore(1, prepared)

    assert visible(tmp_path) == ["a", "b"]


def three_checkpoints(base: Any) -> list[CheckpointMetadata]:
    """Of a job that has published a file for each."""
    sink = new_sink(base)
    sink.restore(None, b"")
    found = []
    for number in (1, 2, 3):
        prepared = prepared_by(sink, base, number, str(number))
        sink.commit(number)
        found.append(CheckpointMetadata(number, 0, "first", lineage="first", sink_commits={"out": prepared}))
    return found


def test_a_driver_that_dies_amid_taking_back_is_followed_by_one_that_goes_on_with_it(tmp_path: Path) -> None:
    first, second, third = three_checkpoints(tmp_path)
    vertex: Any = SimpleNamespace(id=3, uid="out")
    fetched = next(path for path in tmp_path.glob("p-*") if path.read_text() == "1")
    fetched.unlink()
    area = next(tmp_path.glob(".tidemark-*/.area-*"))
    (area / ".frontier").write_bytes(seal(Frontier("first", 3)))
    next(path for path in tmp_path.glob("p-*") if path.read_text() == "3").unlink()

    sink = FilesSink(vertex, str(tmp_path), "second")
    asked = []
    sink.claim("first", first, following=lambda newest: asked.append(newest) or [second, third])
    sink.restore(1, first.sink_commits["out"])

    assert set(asked) == {3}
    assert visible(tmp_path) == []
    # From now on its own output counts, not that of the driver before it.
    with pytest.raises(FencedError, match="published up to checkpoint 1 of job first"):
        new_sink(tmp_path, "third", third)


def test_an_attempt_that_could_not_take_output_back_leaves_it_to_the_next(tmp_path: Path) -> None:
    first, second, third = three_checkpoints(tmp_path)
    vertex: Any = SimpleNamespace(id=3, uid="out")
    published = next(path for path in tmp_path.glob("p-*") if path.read_text() == "3")
    published.unlink()
    published.mkdir()
    sink = FilesSink(vertex, str(tmp_path), "second")
    with pytest.raises(StorageError, match="cannot be withdrawn"):
        sink.claim("first", first, following=lambda _newest: [second, third])
    published.rmdir()

    sink.claim("first", first)
    sink.restore(1, first.sink_commits["out"])

    assert visible(tmp_path) == ["1"]


class Counted(MemoryFileSystem):
    """A server that counts who lists what."""

    protocol = "counted"
    listed: ClassVar[list[str]] = []

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        self.listed.append(path)
        return super().ls(path, detail, **options)


class Tripwire(MemoryFileSystem):
    """A server that nobody may ask."""

    protocol = "tripwire"
    asked: ClassVar[list[str]] = []

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        self.asked.append(path)
        return []


def test_a_snapshot_cannot_make_the_driver_ask_another_server(tmp_path: Path) -> None:
    fsspec.register_implementation("tripwire", Tripwire, clobber=True)
    evil = encode_commits(
        [StagedFile("tripwire://u:p@host/.x.inprogress", "tripwire://u:p@host/x", 1, 1, "")]
    )

    with pytest.raises(MetadataError, match="is on another file system"):
        new_sink(tmp_path, "second", snapshot("first", 1)).restore(1, evil)
    assert Tripwire.asked == []


def test_what_was_taken_back_is_not_taken_for_published_by_a_newer_checkpoint(tmp_path: Path) -> None:
    first, second, third = three_checkpoints(tmp_path)
    area = next(tmp_path.glob(".tidemark-*/.area-*"))

    for note in (Frontier("first", 3, withdrawn_to=1), Frontier("first", 1, withdrawn_to=1)):
        (area / ".frontier").write_bytes(seal(note))
        vertex: Any = SimpleNamespace(id=3, uid="out")
        for newer in (second, third):
            sink = FilesSink(vertex, str(tmp_path), "second")
            with pytest.raises(FencedError, match="taken back"):
                sink.claim("first", newer, repeat=True)

    new_sink(tmp_path, "second", first).restore(1, first.sink_commits["out"])


def test_a_driver_that_dies_after_it_went_back_is_followed_by_one_that_starts_there(tmp_path: Path) -> None:
    first, second, third = three_checkpoints(tmp_path)
    sink = new_sink(tmp_path, "first", third)
    sink.restore(3, third.sink_commits["out"])

    sink.go_back([third, second], first)

    assert visible(tmp_path) == ["1"]
    for newer in (second, third):
        with pytest.raises(FencedError, match="was published after checkpoint 1 of job first"):
            new_sink(tmp_path, "second", newer)
    again = new_sink(tmp_path, "second", first)
    again.restore(1, first.sink_commits["out"])
    assert visible(tmp_path) == ["1"]


@pytest.mark.parametrize("committed", [True, False])
def test_a_job_that_went_back_goes_on_and_its_new_checkpoints_can_be_started_from(
    tmp_path: Path, committed: bool
) -> None:
    first, second, third = three_checkpoints(tmp_path)
    sink = new_sink(tmp_path, "first", third)
    sink.restore(3, third.sink_commits["out"])
    sink.go_back([third, second], first)
    sink.claim("first", first)
    sink.restore(1, first.sink_commits["out"])
    prepared = prepared_by(sink, tmp_path, 4, "4")
    if committed:
        sink.commit(4)

    for gone in (second, third):
        with pytest.raises(FencedError, match="was published after checkpoint 1 of job first"):
            FilesSink(sink.vertex, str(tmp_path), "second").claim("first", gone, following=lambda _newest: [])
    fourth = CheckpointMetadata(4, 0, "first", lineage="first", sink_commits={"out": prepared})
    new_sink(tmp_path, "second", fourth).restore(4, prepared)

    assert visible(tmp_path) == ["1", "4"]


def test_a_job_that_went_back_to_the_snapshot_it_was_started_from_can_be_started_from_it_again(
    tmp_path: Path,
) -> None:
    first, _second, _third = three_checkpoints(tmp_path)
    origin = CheckpointMetadata(3, 0, "first", lineage="first")
    sink = new_sink(tmp_path, "second", origin)
    sink.restore(3, b"")
    prepared = prepared_by(sink, tmp_path, 4, "4")
    sink.commit(4)
    own = CheckpointMetadata(4, 0, "second", lineage="first", sink_commits={"out": prepared})

    sink.go_back([own], origin)

    assert visible(tmp_path) == ["1", "2", "3"]
    for other in (own, first):
        with pytest.raises(FencedError):
            new_sink(tmp_path, "third", other)
    new_sink(tmp_path, "third", origin).restore(3, b"")


def test_going_back_twice_is_going_back_once(tmp_path: Path) -> None:
    first, second, third = three_checkpoints(tmp_path)
    sink = new_sink(tmp_path, "first", third)
    sink.restore(3, third.sink_commits["out"])
    fetched = next(path for path in tmp_path.glob("p-*") if path.read_text() == "1")
    fetched.unlink()

    sink.go_back([third, second], first)
    sink.go_back([third, second], first)

    assert sink._frontier == Frontier("first", 1, settled=True, withdrawn=((1, 3),))
    # What a reader has fetched of the older one is not missed.
    new_sink(tmp_path, "second", first).restore(1, first.sink_commits["out"])
    assert visible(tmp_path) == []


@pytest.mark.parametrize("damage", [b"", b"{", b'{"job_id": "\xff"}'])
def test_a_damaged_note_of_what_is_published_is_no_permission(tmp_path: Path, damage: bytes) -> None:
    first, _second, _third = three_checkpoints(tmp_path)
    next(tmp_path.glob(".tidemark-*/.area-*/.frontier")).write_bytes(damage)

    with pytest.raises(StorageError, match="damaged"):
        new_sink(tmp_path, "second", first)


def test_a_file_behind_one_that_is_still_staged_was_never_published(tmp_path: Path) -> None:
    dead = new_sink(tmp_path)
    dead.restore(None, b"")
    files = staged(dead, tmp_path, "a", "b")
    dead.take([], files, 0)
    prepared = dead.prepare(1)
    dead._note(Frontier("first", 1))
    Path(files[1].staged).unlink()
    sink = new_sink(tmp_path, "second", snapshot("first", 1))

    with pytest.raises(RestoreError, match="never published"):
        sink.restore(1, prepared)

    assert visible(tmp_path) == []


def test_sweeping_what_an_old_release_left_touches_no_other_job(tmp_path: Path) -> None:
    mine = tmp_path / ".p-0-abcdefabcdef-3-0-0.inprogress"
    others = [
        tmp_path / ".p-0-123456123456-3-0-0.inprogress",
        tmp_path / ".tidemark-x" / ".p-0-abcdefabcdef-3-0-0.inprogress",
    ]
    for path in (mine, *others):
        path.parent.mkdir(exist_ok=True)
        path.touch()

    sweep_legacy(str(tmp_path), "*-3")
    sweep_legacy(str(tmp_path), "abcdefabcdef-3")

    assert not mine.exists()
    assert all(path.exists() for path in others)


def test_a_list_nested_too_deeply_is_refused() -> None:
    entry = b"\x97\xa1a\xa1b\x01\x01\xa1c\xc2" + b"\x91" * 200_000 + b"\xc0"

    with pytest.raises(MetadataError, match="no list of staged files: maximum recursion"):
        decode_commits(b"\x91" + entry, "out")


@pytest.mark.parametrize("level", ["claim", "area"])
def test_a_task_does_not_follow_a_link_to_where_it_stages(tmp_path: Path, level: str) -> None:
    base, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    base.mkdir()
    sink = new_sink(base)
    area = Path(str(sink.staging))
    replaced = area if level == "area" else area.parent
    replaced.rename(elsewhere)
    replaced.symlink_to(elsewhere)

    with pytest.raises(StorageError, match="symbolic link"):
        staged(sink, base, "a")

    assert list(elsewhere.rglob("*.inprogress")) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give directories to somebody else")
@pytest.mark.parametrize("level", ["claim", "area"])
def test_a_task_does_not_stage_in_somebody_elses_directory(tmp_path: Path, level: str) -> None:
    sink = new_sink(tmp_path)
    area = Path(str(sink.staging))
    os.chown(area if level == "area" else area.parent, 65534, 65534)

    with pytest.raises(StorageError, match="belongs to user 65534"):
        staged(sink, tmp_path, "a")

    assert list(tmp_path.rglob("*.inprogress")) == []
