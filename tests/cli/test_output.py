"""Golden text: what people see. Facts are made up, so every line is known."""

from __future__ import annotations

import json
import os
import pty
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tidemark.cli.output import JsonRenderer, TextRenderer
from tidemark.cli.text import columns, date_time, duration, size
from tidemark.errors import CheckpointError, FailureReason
from tidemark.state_processor.dry_run import CheckReport
from tidemark.state_processor.rewrite import ErasedKey
from tidemark.state_processor.state_check import StateVerdict, Verdict

JOB = "0123456789abcdef0123456789abcdef"


@pytest.fixture(autouse=True)
def _time_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def _summary(**other: Any) -> dict[str, Any]:
    facts = {
        "job_id": JOB,
        "name": "shop",
        "status": "RUNNING",
        "start_time": 0,
        "application_id": None,
        "pid": 7,
    }
    return {**facts, **other}


def test_jobs_are_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    TextRenderer().jobs([_summary(), _summary(job_id=JOB[::-1], name="two words", status="FAILED")])

    assert capsys.readouterr().out == (
        f"1970-01-01 00:00:00 : {JOB} : shop (RUNNING)\n"
        f"1970-01-01 00:00:00 : {JOB[::-1]} : two words (FAILED)\n"
    )


def test_no_jobs_are_said_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    TextRenderer().jobs([])

    assert capsys.readouterr().out == "There are no such jobs.\n"


def test_a_running_job_is_shown_with_its_plan(capsys: pytest.CaptureFixture[str]) -> None:
    TextRenderer().job(
        _summary(
            target="spark",
            parallelism=2,
            slots=2,
            mode="epochs",
            mode_reason="sink 'files' wants a DataFrame for each epoch",
            state_backend="HashMapStateBackend",
            savepoint_directory="/sp",
            started_from=None,
            control_address="tcp:127.0.0.1:4000",
            query_port=None,
            progress={
                "state_entries": 10,
                "attempt": 1,
                "epoch": 5,
                "records": 50,
                "failure": "slot 0 is gone",
            },
            checkpointing={
                "interval": 1000,
                "mode": "EXACTLY_ONCE",
                "completed": 2,
                "failed": 1,
                "restored": 1,
            },
            sinks=[{"id": 2, "guarantee": "exactly-once"}],
            nodes=[
                {"id": 1, "name": "numbers", "kind": "Data Source", "parallelism": 1, "inputs": []},
                {
                    "id": 2,
                    "name": "files",
                    "kind": "Data Sink",
                    "parallelism": 2,
                    "inputs": [{"id": 1, "ship_strategy": "REBALANCE"}],
                },
            ],
        )
    )

    assert (
        capsys.readouterr().out
        == f"""\
Job                shop
Id                 {JOB}
Status             RUNNING
Started            1970-01-01 00:00:00
Process            7
Spark application  -
Target             spark, parallelism 2, 2 slots
Mode               epochs: sink 'files' wants a DataFrame for each epoch
State backend      HashMapStateBackend
State entries      10
Attempt            1
Epoch              5
Records            50
Started from       -
Checkpointing      every 1000 ms, EXACTLY_ONCE
Checkpoints        2 completed, 1 failed, 1 restored
Savepoints go to   /sp
Control address    127.0.0.1:4000
Query port         -
Web page           -
Last failure       slot 0 is gone
Plan
  1  numbers  Data Source  x1
  2  files    Data Sink    x2  <- 1 REBALANCE  exactly-once
"""
    )


def test_an_ended_job_is_shown_by_what_is_left_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    TextRenderer().job(_summary(status="FAILED", end_time=60_000, failure="ValueError: boom"))

    assert (
        capsys.readouterr().out
        == f"""\
Job                shop
Id                 {JOB}
Status             FAILED
Started            1970-01-01 00:00:00
Ended              1970-01-01 00:01:00
Process            7
Spark application  -
Last failure       ValueError: boom
"""
    )


def test_checkpoints_are_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    completed = {
        "checkpoint_id": 12,
        "status": "completed",
        "type": "savepoint",
        "triggered_at": 0,
        "ended_at": 30,
        "duration_ms": 30,
        "slots": 2,
        "acknowledged": 2,
        "state_size": 1_234_567,
        "written_size": 2_000,
        "sync_ms": 1,
        "async_ms": 20,
        "directory": "/sp/x",
        "reason": None,
        "message": None,
        "discarded": False,
        "quarantined": False,
    }
    failed = {
        **completed,
        "checkpoint_id": 11,
        "type": "checkpoint",
        "status": "failed",
        "message": "expired",
    }
    damaged = {
        **completed,
        "checkpoint_id": 10,
        "quarantined": True,
        "message": "/sp/x is damaged",
    }
    running = {
        **completed,
        "checkpoint_id": 13,
        "status": "in-progress",
        "directory": None,
        "duration_ms": None,
    }

    TextRenderer().checkpoints([running, completed, failed, damaged])

    assert (
        capsys.readouterr().out
        == """\
ID  TYPE        STATUS                  TRIGGERED            DURATION  STATE   WRITTEN  SYNC  ASYNC  WHERE
13  savepoint   in-progress             1970-01-01 00:00:00  -         1.2 MB  2.0 kB   1 ms  20 ms  2/2 slots
12  savepoint   completed               1970-01-01 00:00:00  30 ms     1.2 MB  2.0 kB   1 ms  20 ms  /sp/x
11  checkpoint  failed                  1970-01-01 00:00:00  30 ms     1.2 MB  2.0 kB   1 ms  20 ms  expired
10  savepoint   completed, quarantined  1970-01-01 00:00:00  30 ms     1.2 MB  2.0 kB   1 ms  20 ms  /sp/x is damaged
"""
    )


def test_a_snapshot_is_described_operator_by_operator(capsys: pytest.CaptureFixture[str]) -> None:
    serializer = "tidemark.state.serializers.builtin."
    TextRenderer().snapshot(
        {
            "path": "/sp/x",
            "format_version": 1,
            "checkpoint_id": 3,
            "type": "savepoint",
            "timestamp": 0,
            "job_id": JOB,
            "job_name": "shop",
            "state_size": 2048,
            "properties": {},
            "sources": {"numbers": [[5, 9]]},
            "sinks": {},
            "operators": [
                {
                    "uid": "count",
                    "name": "Count",
                    "parallelism": 1,
                    "max_parallelism": 128,
                    "state_size": 2048,
                    "keyed_states": [
                        {
                            "name": "seen",
                            "kind": "map",
                            "namespace": "void",
                            "ttl": True,
                            "key_serializer": serializer + "LongSerializer",
                            "value_serializer": serializer + "StringSerializer",
                            "map_key_serializer": serializer + "IntSerializer",
                            "rows": 4,
                            "state_size": 64,
                            "columns": {"key_group": "uint16", "key": "int64"},
                        }
                    ],
                    "operator_states": [
                        {
                            "name": "buffer",
                            "mode": "union",
                            "serializer": serializer + "LongSerializer",
                            "elements": 2,
                            "state_size": 16,
                        }
                    ],
                    "subtasks": [
                        {"index": 0, "key_groups": [0, 127], "state_size": 2048, "native": "rocksdb"}
                    ],
                }
            ],
        }
    )

    assert (
        capsys.readouterr().out
        == f"""\
Savepoint       /sp/x
Number          3
Job             shop ({JOB})
Taken           1970-01-01 00:00:00
State size      2.0 kB
Format version  1
Source positions
  numbers  [[5, 9]]
Operator Count (uid count): parallelism 1, 128 key groups, 2.0 kB
  map state seen: 4 rows, 64 B, LongSerializer -> IntSerializer -> StringSerializer, time-to-live
    key_group uint16, key int64
  operator state buffer: union, 2 elements, 16 B, LongSerializer
  subtask 0  key groups 0-127  2.0 kB  rocksdb
"""
    )


def _positions(capsys: pytest.CaptureFixture[str], **sources: object) -> list[str]:
    TextRenderer().snapshot(
        {
            "path": "/sp/x",
            "type": "savepoint",
            "format_version": 1,
            "checkpoint_id": 3,
            "job_id": JOB,
            "job_name": "shop",
            "timestamp": 0,
            "state_size": 0,
            "sources": sources,
            "sinks": {},
            "operators": [],
        }
    )
    lines = capsys.readouterr().out.splitlines()
    return lines[lines.index("Source positions") + 1 :]


def test_offsets_of_a_spark_query_are_shown_without_its_settings(capsys: pytest.CaptureFixture[str]) -> None:
    settings = json.dumps({"conf": {f"spark.sql.streaming.setting{n}": "true" for n in range(50)}})

    lines = _positions(
        capsys,
        one={"offsets": f'v1\n{settings}\n{{"offset":1450000}}', "sources": {}},
        two={"offsets": f"v1\n{settings}\n7\n-", "sources": {"0": {}}},
        zero={"offsets": None, "sources": {}},
    )

    assert lines == [
        '  one   {"offset":1450000}',
        "  two   7, -",
        "  zero  {'offsets': None, 'sources': {}}",
    ]


def test_a_long_position_is_cut_and_says_where_the_rest_is(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = _positions(capsys, numbers=list(range(1000)))

    assert line.startswith("  numbers  [0, 1, 2, ")
    assert line.endswith(" ... (4,890 characters, all of them with --json)")
    assert len(line) < 300


def test_problems_of_a_snapshot_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    TextRenderer().verified("/sp/x", ["count[0] state 'seen': gone"])
    TextRenderer().verified("/sp/y", [])

    assert capsys.readouterr().out == "count[0] state 'seen': gone\n/sp/x: 1 problem.\n/sp/y is intact.\n"


def test_an_error_as_json_carries_its_code_and_facts(capsys: pytest.CaptureFixture[str]) -> None:
    JsonRenderer().error(CheckpointError("too late", reason=FailureReason.EXPIRED, checkpoint_id=4))

    captured = capsys.readouterr()
    assert captured.out == ""
    assert json.loads(captured.err) == {
        "error": {"code": "CHECKPOINT", "message": "too late", "reason": "expired", "checkpoint_id": 4}
    }


def test_an_error_as_text_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    TextRenderer().error(CheckpointError("too late"))

    assert capsys.readouterr().err == "error: too late\n"


STEERING = "\x1b]0;owned\x07\x1b[2J\nJob all is well\u202e"


def test_what_strangers_named_or_wrote_does_not_steer_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = TextRenderer()
    text.jobs([_summary(name=STEERING), _summary(status=STEERING)])
    text.job({**_summary(name=STEERING, failure=STEERING), "end_time": 1})
    text.erased(ErasedKey("/new", {(STEERING, STEERING): 1}))
    text.check_report(CheckReport("/old", [StateVerdict(STEERING, STEERING, "value", Verdict.NEW, STEERING)]))
    text.log_files({STEERING: 1})
    shown = capsys.readouterr()
    assert "owned" in shown.out
    assert "owned" in shown.err
    lines = (shown.out + shown.err).splitlines()
    assert not any(line.startswith("Job all is well") for line in lines)
    assert all(line.isprintable() for line in lines)

    text.error(RuntimeError(STEERING + "\tat a.line"))
    text.program_failed(STEERING)
    text.failed_start("/log", STEERING)

    assert all(line.replace("\t", "").isprintable() for line in capsys.readouterr().err.splitlines())


def test_a_value_is_written_as_it_is_except_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    TextRenderer().query_result("s", 1, "\x07a\tb\nc")
    assert capsys.readouterr().out == "\x07a\tb\nc\n"
    ours, theirs = pty.openpty()
    with open(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        TextRenderer().query_result("s", 1, STEERING)
        monkeypatch.undo()
        seen = os.read(ours, 1000).decode()
    os.close(ours)

    assert [line.isprintable() for line in seen.splitlines()] == [True, True]
    assert "owned" in seen


def test_json_shows_bytes_as_digits_and_tuples_as_lists(capsys: pytest.CaptureFixture[str]) -> None:
    JsonRenderer().query_result("n", (1, "a"), b"\x01\xff")

    assert json.loads(capsys.readouterr().out) == {"name": "n", "key": [1, "a"], "value": "01ff"}


@pytest.mark.parametrize(
    ("count", "text"), [(None, "-"), (0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (10**13, "10.0 TB")]
)
def test_sizes_have_a_unit(count: int | None, text: str) -> None:
    assert size(count) == text


def test_times_and_rows_without_a_value_are_dashes() -> None:
    assert (date_time(None), duration(None), duration(12_345)) == ("-", "-", "12.3 s")
    assert columns([("a", None), ("bcd", 1)]) == ["a    -", "bcd  1"]
    assert columns([]) == []
