"""High availability without a job: who leads, who waits, who is refused, and what the next one finds."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import msgspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tidemark.api.executor import JobSettings
from tidemark.checkpoint.completed import CompletedSnapshot, Origin
from tidemark.checkpoint.messages import JobEnd
from tidemark.checkpoint.storage.filesystem import FileSystemStorage
from tidemark.checkpoint.storage.memory import MemoryStorage
from tidemark.config import CheckpointSettings, Configuration
from tidemark.errors import ConfigError, FencedError, IllegalStateError, StorageError
from tidemark.protocol.deployment import StorageChoice
from tidemark.runtime import leadership as under_test
from tidemark.runtime.claim import Holder, areas_of
from tidemark.runtime.leadership import Leadership, job_id_of, lead
from tidemark.runtime.sealed_notes import seal, unseal
from tidemark.runtime.storage_plan import StoragePlan

DEADLINE = 60
LEASE_MS = 300
PATIENT = {"high-availability.lease-duration": "3 s"}
"""Of who must not lose the job, although a busy machine holds its heart up."""
FILES = FileSystemStorage()
DURABLE = StoragePlan(FILES, FILES, "/nowhere", StorageChoice())


class OwnFiles(MemoryFileSystem):  # type: ignore[misc]
    """Like an object store: no directories, no exclusive creation."""

    protocol = "leading"
    store: dict[str, Any] = {}
    pseudo_dirs = [""]


@pytest.fixture(params=["disk", "remote"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "disk":
        yield str(tmp_path / "ha")
        return
    fsspec.register_implementation("leading", OwnFiles, clobber=True)
    OwnFiles.store.clear()
    yield "leading://bucket/ha"


@pytest.fixture
def settings(root: str) -> JobSettings:
    options = {
        "high-availability.type": "filesystem",
        "high-availability.storageDir": root,
        "high-availability.lease-duration": f"{LEASE_MS} ms",
    }
    return JobSettings(
        "counting",
        configuration=Configuration.from_dict(options),
        checkpointing=CheckpointSettings(interval=100),
    )


def with_options(settings: JobSettings, **options: str) -> JobSettings:
    merged = {**settings.configuration.to_dict(), **{k.replace("_", "-"): v for k, v in options.items()}}
    return replace(settings, configuration=Configuration.from_dict(merged))


@pytest.fixture
def leader(settings: JobSettings) -> Iterator[Callable[..., Leadership]]:
    made: list[Leadership] = []

    def new(given: JobSettings = settings) -> Leadership:
        found = lead(given, DURABLE)
        assert found is not None
        made.append(found)
        return found

    yield new
    for one in made:
        one.release()


def snapshot(number: int, directory: str = "/checkpoints") -> CompletedSnapshot:
    return CompletedSnapshot(
        number, f"{directory}/chk-{number}", Origin.CHECKPOINT, number * 10, digest=b"d%d" % number
    )


def is_silent(one: Leadership) -> None:
    """Stop its heart, as a frozen process does."""
    one._released.set()
    one._heart.join(DEADLINE)


def test_the_next_driver_finds_the_snapshots_newest_first(leader: Callable[..., Leadership]) -> None:
    first = leader()
    assert first.recovered == ()
    first.point_to([snapshot(1)])
    first.point_to([snapshot(1), snapshot(2)])
    first.release()

    second = leader()

    assert [s.directory for s in second.recovered] == ["/checkpoints/chk-2", "/checkpoints/chk-1"]
    assert [s.digest for s in second.recovered] == [b"d2", b"d1"]
    assert (second.job_id, second.run) != (first.job_id, first.run)
    assert second.job_id == first.job_id == job_id_of(second)


def test_a_silent_driver_is_replaced_after_its_lease_and_can_complete_nothing(
    leader: Callable[..., Leadership],
) -> None:
    frozen = leader()
    frozen.point_to([snapshot(1)])
    is_silent(frozen)
    since = time.monotonic()

    successor = leader()

    assert time.monotonic() - since >= LEASE_MS / 1000
    assert [s.checkpoint_id for s in successor.recovered] == [1]
    with pytest.raises(FencedError, match="has taken over"):
        frozen.verify()
    with pytest.raises(FencedError):
        frozen.point_to([snapshot(2)])
    with pytest.raises(FencedError):
        frozen.end(JobEnd.FINISHED, restorable=False)
    frozen._released.clear()
    frozen.release()
    successor.verify()
    successor.point_to([snapshot(7)])
    successor.release()
    assert [s.checkpoint_id for s in leader().recovered] == [7]


def test_a_living_driver_is_waited_for(leader: Callable[..., Leadership], settings: JobSettings) -> None:
    patient = with_options(settings, **PATIENT)
    first = leader(patient)
    found: list[Leadership] = []
    waiting = threading.Thread(target=lambda: found.append(leader(patient)))
    waiting.start()
    waiting.join(4)
    assert waiting.is_alive(), "for longer than a lease the first one gave signs of life"
    first.verify()

    first.release()
    waiting.join(DEADLINE)

    assert found[0].recovered == ()
    found[0].verify()


def test_a_driver_that_is_not_to_wait_is_refused(
    leader: Callable[..., Leadership], settings: JobSettings
) -> None:
    leader()
    refusing = with_options(settings, **{"high-availability.standby": "REFUSE"})

    with pytest.raises(IllegalStateError, match=f"process {os.getpid()} on"):
        lead(refusing, DURABLE)


def test_of_many_that_wait_one_at_a_time_leads(
    leader: Callable[..., Leadership], settings: JobSettings
) -> None:
    patient = with_options(settings, **PATIENT)
    frozen = leader(patient)
    is_silent(frozen)
    order: list[str] = []
    leading = threading.Lock()

    def stand_by(name: str) -> None:
        one = leader(patient)
        assert leading.acquire(blocking=False), "two lead at once"
        for _ in range(3):
            one.verify()
        order.append(name)
        leading.release()
        one.release()

    standbys = [threading.Thread(target=stand_by, args=(str(n),)) for n in range(4)]
    for thread in standbys:
        thread.start()
    for thread in standbys:
        thread.join(DEADLINE)

    assert sorted(order) == ["0", "1", "2", "3"]


def test_a_driver_whose_process_is_gone_is_not_waited_for(
    leader: Callable[..., Leadership], settings: JobSettings
) -> None:
    first = leader()
    is_silent(first)
    gone = subprocess.Popen(["true"])
    gone.wait(DEADLINE)
    path = f"{first.job_id}/.generation-{first._claim.generation:08d}"
    holder = unseal(first._place.read(path), Holder)
    first._place.write(path, seal(msgspec.structs.replace(holder, pid=gone.pid)))

    leader(with_options(settings, **{"high-availability.lease-duration": "1 h"}))


def test_a_driver_of_another_boot_or_container_is_waited_for(
    leader: Callable[..., Leadership], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = leader()
    is_silent(first)
    monkeypatch.setattr(under_test, "this_machine", lambda: "elsewhere/1")
    since = time.monotonic()
    leader()
    assert time.monotonic() - since >= LEASE_MS / 1000


@pytest.mark.parametrize("how", [JobEnd.FINISHED, JobEnd.CANCELED])
def test_an_ended_job_is_not_started_again(leader: Callable[..., Leadership], how: JobEnd) -> None:
    first = leader()
    first.point_to([snapshot(3)])
    first.end(how, restorable=True)
    first.release()

    for _ in range(2):
        with pytest.raises(IllegalStateError, match=f"it is {how.name}, and is not started again"):
            leader()


def test_an_ended_job_starts_anew_from_another_savepoint_than_it_began_with(
    leader: Callable[..., Leadership], settings: JobSettings
) -> None:
    first = leader(replace(settings, savepoint_path="/savepoints/one"))
    first.point_to([snapshot(3)])
    first.release()
    # The same command after a crash, and another one: what was completed since goes first.
    for path in ("/savepoints/one", "/savepoints/two"):
        again = leader(replace(settings, savepoint_path=path))
        assert [s.checkpoint_id for s in again.recovered] == [3]
        again.release()
    last = leader(replace(settings, savepoint_path="/savepoints/one"))
    last.end(JobEnd.FINISHED, restorable=False)
    last.release()

    with pytest.raises(IllegalStateError, match="FINISHED"):
        leader(replace(settings, savepoint_path="/savepoints/one"))
    anew = leader(replace(settings, savepoint_path="/savepoints/two"))
    assert anew.recovered == ()


def test_a_failed_job_goes_on_if_its_checkpoints_were_kept(leader: Callable[..., Leadership]) -> None:
    first = leader()
    first.point_to([snapshot(3)])
    first.end(JobEnd.FAILED, restorable=True)
    first.release()
    second = leader()
    assert [s.checkpoint_id for s in second.recovered] == [3]
    second.end(JobEnd.FAILED, restorable=False)
    second.release()

    with pytest.raises(IllegalStateError, match="FAILED"):
        leader()


def test_a_damaged_pointer_is_not_guessed_at(leader: Callable[..., Leadership], root: str) -> None:
    first = leader()
    first.point_to([snapshot(3)])
    area, place = first._claim.area, first._place
    first.release()
    written = place.read(f"{area}/pointer")

    for damage in (b"", written[:-1], written.replace(b'"checkpoint_id":3', b'"checkpoint_id":2')):
        place.write(f"{area}/pointer", damage)
        with pytest.raises(StorageError, match="pointer in the directory of high availability is damaged"):
            leader()
        # The next one's area is where it is now, as it was.
        (area,) = [f"{first.job_id}/{name}" for name in areas_of(place, str(first.job_id))]
    place.write(f"{area}/pointer", written)
    assert [s.checkpoint_id for s in leader().recovered] == [3]


def test_a_lost_pointer_is_not_taken_for_a_job_that_has_just_begun(leader: Callable[..., Leadership]) -> None:
    first = leader()
    place = first._place
    first.release()
    # One that died in front of its first checkpoint: the next one begins where it began.
    second = leader()
    assert second.recovered == ()
    second.point_to([snapshot(3)])
    area = second._claim.area
    second.release()
    place.remove(f"{area}/pointer")

    for _ in range(2):
        with pytest.raises(StorageError, match="pointer in the directory of high availability is gone"):
            leader()


def test_a_job_that_failed_begins_anew_from_another_savepoint(
    leader: Callable[..., Leadership], settings: JobSettings
) -> None:
    first = leader()
    first.point_to([snapshot(3)])
    first.end(JobEnd.FAILED, restorable=True)
    first.release()

    assert leader(replace(settings, savepoint_path="/savepoints/two")).recovered == ()


def test_damage_to_the_record_of_the_end_does_not_start_a_job_again(
    leader: Callable[..., Leadership], root: str
) -> None:
    first = leader()
    first.end(JobEnd.FAILED, restorable=False)
    place, path = first._place, f"{first.job_id}/ended"
    first.release()
    place.write(path, place.read(path).replace(b'"restorable":false', b'"restorable":true '))

    with pytest.raises(StorageError, match="ended in the directory of high availability is damaged"):
        leader()


def test_a_damaged_claim_makes_nobody_take_its_living_holder_for_dead(
    leader: Callable[..., Leadership], settings: JobSettings
) -> None:
    first = leader()
    path = f"{first.job_id}/.generation-{first._claim.generation:08d}"
    pid = b'"pid":%d' % os.getpid()
    gone = subprocess.Popen(["true"])
    gone.wait(DEADLINE)
    first._place.write(path, first._place.read(path).replace(pid, b'"pid":%d' % gone.pid))

    with pytest.raises(FencedError, match="damaged"):
        first.verify()
    since = time.monotonic()
    leader()
    assert time.monotonic() - since >= LEASE_MS / 1000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"high-availability.storageDir": ""}, "storageDir is not set"),
        ({"execution.job-id": "counting"}, "not a job id"),
        ({"high-availability.type": "NONE", "execution.job-id": "ab" * 16}, "Set both or none"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    settings: JobSettings, options: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        lead(with_options(settings, **options), DURABLE)


def test_a_job_without_a_name_without_checkpoints_or_with_some_in_memory_is_refused(
    settings: JobSettings,
) -> None:
    memory = StoragePlan(MemoryStorage(), FILES, "/memory", StorageChoice())
    with pytest.raises(ConfigError, match="a name of its own"):
        lead(replace(settings, job_name=JobSettings().job_name), DURABLE)
    with pytest.raises(ConfigError, match=r"execution\.checkpointing\.interval"):
        lead(replace(settings, checkpointing=CheckpointSettings()), DURABLE)
    with pytest.raises(ConfigError, match=r"state\.checkpoints\.dir"):
        lead(settings, memory)


def test_without_high_availability_nobody_leads(settings: JobSettings) -> None:
    assert lead(with_options(settings, **{"high-availability.type": "NONE"}), DURABLE) is None
    assert lead(replace(settings, batch_mode=True), DURABLE) is None


def test_the_directory_of_drivers_is_private_whatever_the_umask_is(
    tmp_path: Path, settings: JobSettings
) -> None:
    root = tmp_path / "shared" / "ha"
    before = os.umask(0)
    try:
        found = lead(with_options(settings, **{"high-availability.storageDir": str(root)}), DURABLE)
    finally:
        os.umask(before)
    assert found is not None
    found.release()

    assert [path.stat().st_mode & 0o777 for path in (root.parent, root)] == [0o700, 0o700]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give directories to somebody else")
def test_nobody_waits_for_a_driver_that_somebody_else_has_made_up(
    tmp_path: Path, settings: JobSettings, caplog: pytest.LogCaptureFixture
) -> None:
    root, job_id = tmp_path / "ha", "0123456789abcdef" * 2
    options = {"high-availability.storageDir": str(root), "execution.job-id": job_id}
    job = root / job_id
    job.mkdir(parents=True)
    elsewhere = Holder("x", "x", "0" * 16, "far-away", 1, 0, "another machine")
    (job / ".generation-00000001").write_bytes(seal(elsewhere))
    for path in (job, *job.iterdir()):
        os.chown(path, 65534, 65534)

    with pytest.raises(StorageError, match="no directory of the user this driver runs as"):
        lead(with_options(settings, **options), DURABLE)

    assert "waits for its turn" not in caplog.text
