"""When a slot says how much memory it uses."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.unit.rpc.strangers import TOKEN, until

from tidemark.config import Configuration
from tidemark.config.memory import SlotMemory
from tidemark.errors import ConfigError
from tidemark.protocol.events import SlotLost, SlotMemoryUse
from tidemark.rpc import socket_directory
from tidemark.runtime.launch import launch_slots
from tidemark.runtime.slot_limits import SlotLimits
from tidemark.runtime.slot_manager import SlotManager
from tidemark.slot.memory_watch import MemoryWatch

MIB = 1 << 20


def test_it_tells_near_the_budget_beyond_it_and_every_step_behind_that() -> None:
    watch = MemoryWatch(1000)

    assert [used for used in range(0, 1300, 10) if watch.look(used)] == [
        900,
        950,
        1000,
        1050,
        1100,
        1150,
        1200,
        1250,
    ]


def test_it_tells_again_when_memory_was_given_back_between() -> None:
    watch = MemoryWatch(1000)

    assert [watch.look(used) for used in (980, 980, 1001, 900, 1001, 500, 899, 930)] == [
        True, False, True, False, False, False, False, True,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, SlotMemory(None, None)),
        ({"taskmanager.memory.process.size": "1 gb"}, SlotMemory(1 << 30, int((1 << 30) * 0.4))),
        (
            {"taskmanager.memory.process.size": "1 gb", "taskmanager.numberOfTaskSlots": "4"},
            SlotMemory(1 << 28, int((1 << 30) * 0.4) // 4),
        ),
        ({"taskmanager.memory.managed.size": "64 mb"}, SlotMemory(None, 64 * MIB)),
        (
            {"taskmanager.memory.process.size": "1 gb", "taskmanager.memory.managed.fraction": "0"},
            SlotMemory(1 << 30, None),
        ),
    ],
)
def test_sizes_of_a_task_manager_are_shared_by_its_slots(
    options: dict[str, str], expected: SlotMemory
) -> None:
    assert SlotMemory.of(Configuration.from_dict(options)) == expected


@pytest.mark.parametrize(
    "options",
    [
        {"taskmanager.memory.process.size": "64 mb", "taskmanager.memory.managed.size": "64 mb"},
        {"taskmanager.memory.managed.fraction": "1"},
    ],
)
def test_a_managed_part_that_is_none_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"taskmanager\.memory\.managed"):
        SlotLimits.of(Configuration.from_dict(options))


def test_a_slot_beyond_its_budget_reports_it_and_its_death_is_told_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket_directory("0123456789abcdef" * 2) as directory:
        manager = SlotManager(
            "0123456789abcdef" * 2,
            TOKEN,
            f"unix:{directory}/slots.sock",
            lambda wanted: list(launch_slots(iter(wanted))),
            "127.0.0.1",
            [0],
            # Any Python process is larger than that.
            SlotLimits(memory=8 * MIB),
        )
        try:
            manager.ensure(1)
            until(lambda: "taskmanager.memory.process.size" in caplog.text)
            assert "more than the 8 MiB" in caplog.text
            (pid,) = manager.pids().values()
            assert Path(f"/proc/{pid}").exists(), "it is told, not killed"
            os.kill(pid, signal.SIGKILL)
            lost: list[object] = []
            until(lambda: lost.extend(manager.events()) or lost)
            assert isinstance(lost[0], SlotLost)
            assert "more than the 8 MiB of taskmanager.memory.process.size" in lost[0].why
        finally:
            manager.stop()


def test_use_is_told_in_words() -> None:
    assert "95 % of the 100 MiB" in str(SlotMemoryUse(0, 95 * MIB, 100 * MIB))
