from __future__ import annotations

import json
import os
import stat
import time
from dataclasses import replace

import pytest

from tidemark.errors import JobNotFoundError
from tidemark.jobs import (
    JobRecord,
    find_job,
    list_jobs,
    registry_directory,
    remove_record,
    token_bytes,
    write_record,
)
from tidemark.processes import process_started, this_machine


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def record(job_id, *, pid=None, start_time=None):
    now = int(time.time() * 1000)
    return JobRecord(job_id, "job", pid or os.getpid(), "unix:/x", "ab" * 16, 9069, start_time or now)


def test_without_a_directory_there_are_no_jobs(home):
    assert registry_directory() == home
    assert list_jobs() == []


def test_a_written_record_is_found_by_id_and_by_prefix_until_it_is_removed():
    first, second = record("aa11"), record("ab22")
    write_record(first)
    write_record(second)
    assert find_job("aa11") == first
    assert find_job("ab") == second
    assert {found.job_id for found in list_jobs()} == {"aa11", "ab22"}
    with pytest.raises(JobNotFoundError, match="start of several job ids"):
        find_job("a")
    remove_record("aa11")
    remove_record("aa11")
    with pytest.raises(JobNotFoundError, match="No job 'aa11'"):
        find_job("aa11")
    with pytest.raises(JobNotFoundError):
        find_job("")


def test_records_are_for_their_owner_only():
    path = write_record(record("aa11"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_jobs_are_listed_oldest_first():
    now = int(time.time() * 1000)
    write_record(record("b", start_time=now))
    write_record(record("a", start_time=now + 1))
    assert [found.job_id for found in list_jobs()] == ["b", "a"]


def test_a_record_whose_driver_is_gone_is_ignored_and_removed(home):
    write_record(record("dead", pid=2**22 + 1))
    write_record(record("reused", start_time=1))
    assert list_jobs() == []
    assert list(home.glob("*.json")) == []


def test_a_job_is_found_after_the_clock_was_set_forward():
    """The system then says that the driver began later than it wrote its record."""
    an_hour_ago = int(time.time() * 1000) - 3_600_000
    write_record(replace(record("a", start_time=an_hour_ago), started=process_started()))
    write_record(replace(record("reused"), started=process_started() + 60))

    assert [found.job_id for found in list_jobs()] == ["a"]


def test_a_job_of_another_machine_or_container_is_not_taken_for_dead(home):
    write_record(replace(record("a", pid=2**22 + 1), machine="another boot/4026531836"))
    write_record(replace(record("b"), machine=this_machine()))

    assert [found.job_id for found in list_jobs()] == ["b"]
    assert (home / "a.json").exists()


@pytest.mark.parametrize(
    "wrong",
    [{"pid": "1"}, {"pid": -1}, {"pid": 1 << 62}, {"start_time": None}, {"query_port": "x" * (2 << 20)}],
)
def test_a_record_that_makes_no_sense_is_no_job(home, wrong):
    path = write_record(record("a"))
    path.write_text(json.dumps({**json.loads(path.read_text()), **wrong}))

    assert list_jobs() == []


def test_files_that_are_no_records_are_left_alone(home):
    write_record(record("a"))
    (home / "other.json").write_text("{}")
    (home / "broken.json").write_text("{")
    (home / "deep.json").write_text("[" * 200_000)
    assert [found.job_id for found in list_jobs()] == ["a"]
    assert (home / "other.json").exists()


def test_token_text_is_hexadecimal_or_plain():
    assert token_bytes("00ff") == b"\x00\xff"
    assert token_bytes("secret") == b"secret"
