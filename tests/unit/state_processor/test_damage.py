"""One flipped bit or one lost byte anywhere in any file of a snapshot is found, and nothing is restored from it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.campaign import SEED
from tests.unit.state_processor import jobs

from tidemark.checkpoint.inspection import verify
from tidemark.errors import TidemarkError

REGIONS = 1 << 30 if SEED else 24
"""Of each file; `make chaos` goes through every byte."""


@pytest.fixture(params=["savepoint", "rocksdb_savepoint", "incremental", "chains"])
def copied(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A snapshot of its own for this test, with the files it shares with others."""
    original = Path(request.getfixturevalue(request.param))
    root = original.parent
    shutil.copytree(root, tmp_path / root.name)
    return tmp_path / root.name / original.name


@pytest.fixture(scope="session")
def rocksdb_savepoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    elements = [(f"k{number % 20}", number) for number in range(200)]
    return jobs.take_savepoint(tmp_path_factory.mktemp("savepoint"), elements, rocksdb=True)


def files_of(snapshot: Path) -> list[Path]:
    """Its files: those in its directory, and shared ones that are missed."""
    found = [path for path in snapshot.rglob("*") if path.is_file()]
    for path in (snapshot.parent / "shared").rglob("*"):
        with without(path):
            if verify(str(snapshot)):
                found.append(path)
    return found


@contextmanager
def without(path: Path) -> Iterator[None]:
    """A file is away for a while."""
    away = path.rename(path.with_suffix(".away"))
    yield
    away.rename(path)


def damages(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The file with one bit flipped in each region, cut off at each, and with a byte too many."""
    step = max(1, len(data) // REGIONS)
    for at in {*range(0, len(data), step), len(data) - 1}:
        flipped = bytearray(data)
        flipped[at] ^= 1 << at % 8
        yield f"bit {at % 8} of byte {at} flipped", bytes(flipped)
        yield f"cut off at {at}", data[:at]
    yield "a byte too many", data + b"\0"


def test_no_damage_goes_unnoticed(copied: Path) -> None:
    assert verify(str(copied)) == []
    unnoticed: list[str] = []
    tried = 0
    for path in files_of(copied):
        data = path.read_bytes()
        for what, damaged in damages(data):
            path.write_bytes(damaged)
            tried += 1
            if not found_damaged(copied):
                unnoticed.append(f"{path.name}: {what}")
        path.write_bytes(data)

    print(f"{tried} damages in {copied.name}")
    assert unnoticed == []
    assert tried > 100
    assert verify(str(copied)) == []


def found_damaged(snapshot: Path) -> bool:
    try:
        return bool(verify(str(snapshot)))
    except TidemarkError:
        # The metadata itself, without which nothing else can be looked at.
        return True


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("damage", [flip, cut])
def test_a_job_restores_nothing_from_a_damaged_file(copied: Path, damage: Callable[[Path], None]) -> None:
    rocksdb = copied.name.startswith("chk-") and any((copied.parent / "shared").glob("*.sst"))
    for path in files_of(copied):
        data = path.read_bytes()
        damage(path)

        with pytest.raises(TidemarkError) as caught:
            jobs.continue_job(str(copied), [("k1", 1)], rocksdb=rocksdb)

        assert path.name in str(caught.value), f"{path.name} is not named in: {caught.value}"
        path.write_bytes(data)
