"""Log files of jobs: whose lines go where, what a line says, and that the console is left alone."""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path

import pytest

from tidemark.job_logs import JobLog, LogOwner, bind_thread, list_logs, read_tail

LOG = logging.getLogger("tidemark.something")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_every_line_names_job_attempt_and_slot_those_of_a_traceback_too() -> None:
    log = JobLog(LogOwner("abc", lambda: 3, 7))
    try:
        raise ValueError("broken")
    except ValueError:
        LOG.warning("it failed", exc_info=True)
    log.close()

    lines = (read_tail("abc", "slot-7.log") or "").splitlines()
    assert len(lines) > 3
    assert all(" job=abc attempt=3 slot=7: " in line for line in lines)
    assert lines[-1].endswith("ValueError: broken")


def test_lines_may_be_json() -> None:
    log = JobLog(LogOwner("abc"), as_json=True)
    LOG.info("two\nlines with %s", '"quotes"')
    log.close()

    [line] = (read_tail("abc", "driver.log") or "").splitlines()
    told = json.loads(line)
    assert told["message"] == 'two\nlines with "quotes"'
    assert (told["job"], told["attempt"], told["slot"], told["level"]) == ("abc", 0, "driver", "INFO")


def test_a_thread_of_one_job_does_not_write_into_the_log_of_another() -> None:
    first, second = JobLog(LogOwner("one")), JobLog(LogOwner("two"))

    def work() -> None:
        bind_thread("one")
        LOG.info("of the first")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    LOG.info("of nobody")
    first.close()
    second.close()

    assert [line.rpartition(": ")[2] for line in (read_tail("one", "driver.log") or "").splitlines()] == [
        "of the first",
        "of nobody",
    ]
    assert "of the first" not in (read_tail("two", "driver.log") or "")


def test_the_console_sees_what_it_would_see_without_the_files(caplog: pytest.LogCaptureFixture) -> None:
    log = JobLog(LogOwner("abc"))
    LOG.info("not for the console")
    LOG.warning("for everybody")
    log.close()
    LOG.info("as before")

    assert [record.message for record in caplog.records] == ["for everybody"]
    assert logging.getLogger("tidemark").propagate
    assert logging.getLogger("tidemark").handlers == []


def test_a_level_somebody_chose_for_a_logger_still_counts(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="tidemark.something"):
        log = JobLog(LogOwner("abc"), level=logging.WARNING)
        LOG.debug("chosen")
        log.close()

    assert [record.message for record in caplog.records] == ["chosen"]
    assert read_tail("abc", "driver.log") == ""


def test_a_large_log_is_rotated_and_only_its_end_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.job_logs._MAX_BYTES", 20_000)
    log = JobLog(LogOwner("abc"))
    for number in range(2_000):
        LOG.info("line %s", number)
    log.close()

    sizes = list_logs("abc")
    assert set(sizes) == {"driver.log", "driver.log.1", "driver.log.2", "driver.log.3"}
    assert max(sizes.values()) <= 20_000
    assert "line 1999" in (read_tail("abc", "driver.log") or "")


@pytest.mark.parametrize("name", ["../history.jsonl", "/etc/passwd", "nothing.log", ""])
def test_only_log_files_of_the_job_are_read(home: Path, name: str) -> None:
    JobLog(LogOwner("abc")).close()
    (home / "history.jsonl").write_text("secret")

    assert read_tail("abc", name) is None
    assert list_logs("..") == {}


def test_the_logs_of_the_oldest_jobs_go(home: Path) -> None:
    for number in range(60):
        JobLog(LogOwner(f"job{number}")).close()

    assert len(list((home / "logs").iterdir())) <= 51


def test_a_place_that_cannot_be_written_costs_the_log_not_the_job(home: Path) -> None:
    home.mkdir()
    (home / "logs").write_text("in the way")

    log = JobLog(LogOwner("abc"))
    LOG.info("nowhere")
    log.close()

    assert list_logs("abc") == {}
