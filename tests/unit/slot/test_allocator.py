"""Slots give memory back that is free, and have few arenas to hold it in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.rpc.strangers import TOKEN

from tidemark.rpc import socket_directory
from tidemark.runtime.launch import launch_slots
from tidemark.runtime.slot_limits import SlotLimits
from tidemark.runtime.slot_manager import SlotManager
from tidemark.slot.allocator import FEW_ARENAS, FreeMemory

JOB = "0123456789abcdef" * 2
HOLES = """
import ctypes
from tidemark.slot.allocator import FreeMemory
from tidemark.slot.memory_watch import resident_bytes

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
memory = FreeMemory(iter(range(100)).__next__, every_s=0)
blocks = [libc.malloc(20_000) for _ in range(4000)]
for block in blocks:
    ctypes.memset(block, 1, 20_000)
for block in blocks[:-1]:  # the last one keeps the heap from shrinking by itself
    libc.free(block)
before = resident_bytes()
assert memory.give_back()
print(before - resident_bytes())
"""

BATCHES = """
import resource, sys
import numpy as np
import pyarrow as pa
from tidemark.slot.allocator import keep_batches

if sys.argv[1] == "kept":
    keep_batches()
for turn in range(200):
    if turn == 100:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    numbers = np.arange(1 << 17)
    columns = [numbers * factor for factor in range(8)]
    pa.record_batch([pa.array(column) for column in columns], names=list("abcdefgh")).serialize()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_free_memory_is_given_back_at_most_once_a_minute() -> None:
    now = [0.0]
    memory = FreeMemory(lambda: now[0])
    if memory._trim is None:
        pytest.skip("not on glibc")
    told = []
    for now[0] in (0.0, 59.0, 60.0, 61.0, 119.0, 120.0):
        told.append(memory.give_back())
    assert told == [False, False, True, False, False, True]


@pytest.mark.skipif(sys.platform != "linux" or not os.confstr("CS_GNU_LIBC_VERSION"), reason="not on glibc")
def test_what_was_freed_below_something_that_is_kept_goes_back_to_the_system() -> None:
    done = subprocess.run([sys.executable, "-c", HOLES], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 40 << 20


@pytest.mark.skipif(sys.platform != "linux" or not os.confstr("CS_GNU_LIBC_VERSION"), reason="not on glibc")
def test_memory_of_batches_is_not_fetched_anew_for_every_batch() -> None:
    faults = {}
    for way in ("kept", "as it is"):
        done = subprocess.run(
            [sys.executable, "-c", BATCHES, way], capture_output=True, text=True, check=True
        )
        faults[way] = int(done.stdout)
    # A column of a megabyte is 256 pages; there are nine a batch, and the bytes they become.
    assert faults["kept"] < 100 * 256
    assert faults["kept"] < faults["as it is"] / 4


def test_a_slot_has_few_arenas() -> None:
    with socket_directory(JOB) as directory:
        manager = SlotManager(
            JOB,
            TOKEN,
            f"unix:{directory}/slots.sock",
            lambda wanted: list(launch_slots(iter(wanted))),
            "127.0.0.1",
            [0],
            SlotLimits(),
        )
        try:
            manager.ensure(1)
            (pid,) = manager.pids().values()
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            name, most = next(iter(FEW_ARENAS.items()))
            assert f"{name}={os.environ.get(name, most)}".encode() in environment
        finally:
            manager.stop()
