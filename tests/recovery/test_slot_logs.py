"""The log file of a slot process outlives it and says whose it is."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tidemark.runtime.driver_log import SlotLogging
from tidemark.runtime.launch import launch_slots
from tidemark.runtime.slot_manager import SlotManager

JOB = "1" * 32


@pytest.mark.parametrize("as_json", [False, True])
def test_what_a_slot_logs_is_there_when_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path / "home"))
    log = tmp_path / "home" / "logs" / JOB / "slot-0.log"
    manager = SlotManager(
        JOB,
        os.urandom(32),
        "tcp:127.0.0.1:0",
        lambda settings: list(launch_slots(iter(settings))),
        "127.0.0.1",
        [0],
        log=SlotLogging(as_json=as_json),
    )
    try:
        manager.ensure(1)
        # What a page on another machine is shown.
        line = json.dumps({"job": JOB, "slot": "0", "message": f"job={JOB} attempt=0 slot=0: hello"})
        with log.open("a") as file:
            file.write(line + "\n")
        assert manager.request(0, "log").result(60).endswith(line + "\n")
    finally:
        manager.stop()

    lines = log.read_text().splitlines()
    assert log.stat().st_mode & 0o077 == 0
    assert any("Slot 0 ends: " in line for line in lines)
    if as_json:
        assert {(told["job"], told["slot"]) for told in map(json.loads, lines)} == {(JOB, "0")}
    else:
        assert all(f"job={JOB} attempt=0 slot=0: " in line for line in lines)
