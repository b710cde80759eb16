"""Claims: the newest claimant owns the place, whoever races, stops or dies; everybody else can tell."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import msgspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from tests.full_disk import full_disk

from tidemark.errors import FencedError
from tidemark.runtime.claim import Claim, Holder
from tidemark.runtime.places import open_place
from tidemark.runtime.sealed_notes import seal, unseal


def acquire(base: Any, job: str = "job") -> Claim:
    return Claim.acquire(open_place(str(base)), ".claim", job, "The sink 'out'")


class Server(MemoryFileSystem):
    """Files in memory that answer one request at a time; `MemoryFileSystem` itself is not made for threads."""

    protocol = "serial"
    lock = threading.RLock()

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("serial://", "memory://")))

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in {
            "ls",
            "open",
            "makedirs",
            "exists",
            "info",
            "cat_file",
            "pipe_file",
            "mv",
            "rm",
            "rm_file",
        }:
            return found

        def one_at_a_time(*arguments: Any, **options: Any) -> Any:
            with Server.lock:
                return found(*arguments, **options)

        return one_at_a_time


@pytest.fixture(params=["disk", "fsspec"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    fsspec.register_implementation("serial", Server, clobber=True)
    return str(tmp_path) if request.param == "disk" else f"serial://claims-{tmp_path.name}"


def test_the_newest_claimant_owns_the_place_and_the_older_one_can_tell(base: str) -> None:
    first = acquire(base, "first")
    first.verify()
    second = acquire(base, "second")

    second.verify()
    with pytest.raises(FencedError, match=r"job first \(claim 1\) does not own it any more. Job second"):
        first.verify()
    assert second.generation == 2


def test_files_of_the_older_claimant_pass_to_the_newer_one_and_cannot_be_renamed_late(base: str) -> None:
    place = open_place(base)
    first = acquire(base)
    place.create(f"{first.area}/.a.inprogress", b"staged")
    place.create(f"{first.area}/.note", b"old")

    second = acquire(base)

    with pytest.raises(FileNotFoundError):
        place.move(f"{first.area}/.a.inprogress", "a")
    assert place.read(f"{second.area}/.a.inprogress") == b"staged"
    assert place.read(f"{second.area}/.note") == b"old"
    assert place.names("a") == []


def test_files_are_found_again_after_any_number_of_claimants_that_died_at_once(base: str) -> None:
    place = open_place(base)
    first = acquire(base)
    place.create(f"{first.area}/.a.inprogress", b"staged")

    for _ in range(5):
        last = acquire(base)

    assert place.read(f"{last.area}/.a.inprogress") == b"staged"
    assert len(place.names(".claim")) == 2, "one generation and one area are left"


def test_what_a_claimant_had_not_taken_over_when_it_died_is_taken_by_the_next(tmp_path: Path) -> None:
    first = acquire(tmp_path)
    (tmp_path / first.area / ".note").write_text("old")
    second = acquire(tmp_path)
    (tmp_path / second.area / ".note").write_text("new")
    half_taken = tmp_path / f"{second.area}.0123abcd"
    half_taken.mkdir()
    (half_taken / ".note").write_text("old")
    (half_taken / ".a.inprogress").write_text("staged")

    third = acquire(tmp_path)

    assert (tmp_path / third.area / ".a.inprogress").read_text() == "staged"
    assert (tmp_path / third.area / ".note").read_text() == "new"


def test_numbers_that_start_again_after_a_release_do_not_revive_an_old_claim(base: str) -> None:
    frozen = acquire(base)
    acquire(base).release()
    newest = acquire(base)

    assert newest.generation == frozen.generation
    newest.verify()
    with pytest.raises(FencedError):
        frozen.verify()


def test_a_release_leaves_nothing_behind_and_fences_off_who_was_frozen(base: str) -> None:
    frozen = acquire(base)
    acquire(base).release()

    assert open_place(base).names("") == []
    with pytest.raises(FencedError, match="has taken over and ended"):
        frozen.verify()
    frozen.release()
    assert open_place(base).names("") == []


def test_a_loser_leaves_the_files_that_the_winner_has_not_taken_yet(tmp_path: Path) -> None:
    loser = acquire(tmp_path)
    (tmp_path / loser.area / ".a.inprogress").write_text("staged")
    (tmp_path / ".claim" / ".generation-00000002").write_text("{}")

    loser.release()

    assert (tmp_path / loser.area / ".a.inprogress").read_text() == "staged"


def test_a_loser_removes_what_it_made_if_nothing_is_in_it(tmp_path: Path) -> None:
    loser = acquire(tmp_path)
    acquire(tmp_path).release()
    (tmp_path / loser.area).mkdir(parents=True)

    loser.release()

    assert os.listdir(tmp_path) == []


def test_only_who_knows_of_the_newest_claim_gets_in_behind_it(base: str) -> None:
    place = open_place(base)
    first = acquire(base)

    with pytest.raises(FencedError, match="somebody else has claimed it just now"):
        Claim.acquire(place, ".claim", "late", "The sink 'out'", behind=first.generation - 1)
    first.verify()

    second = Claim.acquire(place, ".claim", "in time", "The sink 'out'", behind=first.generation)
    second.verify()
    assert second.generation == first.generation + 1


class Overtaken:
    """A place where somebody else claims as soon as we have, and has not taken anything over yet."""

    def __init__(self, place: Any) -> None:
        self._place = place

    def __getattr__(self, name: str) -> Any:
        return getattr(self._place, name)

    def create(self, path: str, data: bytes) -> None:
        self._place.create(path, data)
        directory, _, number = path.rpartition("-")
        newer = Holder("newer", "The sink 'out'", "0" * 16)
        self._place.create(f"{directory}-{int(number) + 1:08d}", seal(newer))


def test_a_claimant_that_is_overtaken_at_once_takes_nothing_over(base: str) -> None:
    place = open_place(base)
    first = acquire(base)
    place.create(f"{first.area}/.a.inprogress", b"staged")
    overtaken: Any = Overtaken(place)

    with pytest.raises(FencedError, match="Job newer"):
        Claim.acquire(overtaken, ".claim", "overtaken", "The sink 'out'")

    assert place.read(f"{first.area}/.a.inprogress") == b"staged"


def test_of_many_threads_that_claim_at_once_exactly_one_owns_the_place_and_all_files(base: str) -> None:
    place = open_place(base)
    first = acquire(base)
    for number in range(20):
        place.create(f"{first.area}/.{number}.inprogress", b"x")
    gate = threading.Barrier(8)
    claims: list[Claim] = []

    def claim() -> None:
        gate.wait()
        with contextlib.suppress(FencedError):
            claims.append(acquire(base))

    threads = [threading.Thread(target=claim) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    owners = [claim for claim in claims if claim.is_held()]
    assert len({claim.generation for claim in claims}) == len(claims), "every generation has one claimant"
    assert len(owners) == 1
    if not base.startswith("serial"):
        assert len(os.listdir(f"{base}/{owners[0].area}")) == 20


def race(base: str) -> list[int]:
    """Claim again and again; the generations that were ours."""
    won = []
    for _ in range(25):
        with contextlib.suppress(FencedError):
            won.append(acquire(base).generation)
    return won


def test_of_many_processes_every_generation_has_at_most_one_owner(tmp_path: Path) -> None:
    with ProcessPoolExecutor(4, multiprocessing.get_context("spawn")) as pool:
        won = list(pool.map(race, [str(tmp_path)] * 4))

    generations = [generation for mine in won for generation in mine]
    assert generations
    assert len(generations) == len(set(generations))
    assert acquire(tmp_path).generation > max(generations)


def test_a_claim_directory_of_somebody_else_or_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".claim").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(PermissionError, match="no directory of the user this driver runs as"):
        acquire(tmp_path)
    assert os.listdir(tmp_path / "elsewhere") == []


def test_claims_and_areas_are_private(tmp_path: Path) -> None:
    claim = acquire(tmp_path)

    assert (tmp_path / ".claim").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / claim.area).stat().st_mode & 0o777 == 0o700
    assert (tmp_path / ".claim/.generation-00000001").stat().st_mode & 0o777 == 0o600


def test_a_claim_directory_that_was_opened_to_others_is_closed_again(tmp_path: Path) -> None:
    (tmp_path / ".claim").mkdir()
    (tmp_path / ".claim").chmod(0o777)

    acquire(tmp_path)

    assert (tmp_path / ".claim").stat().st_mode & 0o777 == 0o700


class NoExclusiveCreation(MemoryFileSystem):
    """Knows no mode `x`, as many drivers."""

    protocol = "plain"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("plain://", "memory://")))

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if "x" in mode:
            raise ValueError("unsupported mode")
        return super()._open(path, mode, **options)


def test_without_exclusive_creation_the_last_writer_of_a_generation_wins(tmp_path: Path) -> None:
    fsspec.register_implementation("plain", NoExclusiveCreation, clobber=True)
    base = f"plain://{tmp_path.name}"
    first = acquire(base)
    place = open_place(base)
    holder = unseal(place.read(".claim/.generation-00000001"), Holder)
    place.write(".claim/.generation-00000001", seal(msgspec.structs.replace(holder, job_id="jab")))

    with pytest.raises(FencedError, match="Job jab"):
        first.verify()
    with pytest.raises(FileExistsError):
        place.create(".claim/.generation-00000001", b"")


def test_a_claimant_without_room_on_the_disk_leaves_the_holder_and_its_notes_alone(tmp_path: Path) -> None:
    holder, place = acquire(tmp_path), open_place(str(tmp_path))
    place.write(f"{holder.area}/note", b"before")

    with full_disk():
        with pytest.raises(OSError, match="too large"):
            acquire(tmp_path, "late")
        with pytest.raises(OSError, match="too large"):
            place.write(f"{holder.area}/note", b"behind")

    holder.verify()
    assert place.names(holder.area) == ["note"]
    assert place.read(f"{holder.area}/note") == b"before"


def test_a_pipe_in_place_of_a_file_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pointer")

    with pytest.raises(OSError, match="is no regular file"):
        open_place(str(tmp_path)).read("pointer")
