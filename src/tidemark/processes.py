"""Which process a number means: numbers are used again, and clocks are set.

Where the system says it (Linux), a process is known by when it began in seconds since the boot, which no change of the
clock moves: a driver must not be taken for dead, and cleaned up behind, because the clock was set forward under it.
"""

from __future__ import annotations

import os
import socket
from typing import Any

import psutil

__all__ = ["is_process_alive", "kill_process", "process_figures", "process_started", "this_machine"]

_TOLERANCE_S = 2.0
"""Where start times are derived from the clock, it may have been set since; a pid is not used again so soon."""


def process_started(pid: int | None = None) -> float:
    """When a process began, this one unless told otherwise: seconds since the boot, or else since the epoch.

    Raises:
        psutil.Error: There is none, or nothing is said about it.
    """
    try:
        with open(f"/proc/{pid or os.getpid()}/stat", "rb") as file:
            # The second field is the program's name, which may hold anything; the 22nd is in clock ticks.
            fields = file.read().rpartition(b")")[2].split()
        return int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return float(psutil.Process(pid).create_time())


def is_process_alive(pid: int, since: int, started: float = 0.0) -> bool:
    """Whether a process that was seen on this machine is still there.

    Args:
        pid: Its number.
        since: When it had that number, in milliseconds since the epoch; counts if `started` is not known.
        started: What `process_started` said of it; 0 if nobody asked.
    """
    try:
        process = psutil.Process(pid)
        if started:
            same = abs(process_started(pid) - started) <= _TOLERANCE_S
        else:
            # A process that began later is another one that got the same number.
            same = process.create_time() <= since / 1000 + _TOLERANCE_S
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.AccessDenied:
        return True
    except (psutil.Error, ValueError, OverflowError):
        # Gone, or a number no process has: whoever asks may have read it anywhere.
        return False


def this_machine() -> str:
    """Names the system that process numbers belong to, differently after every boot and in every container.

    Empty where the system does not tell.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def process_figures() -> dict[str, Any]:
    """What displays show of this process: `pid`, `host`, `rss` (bytes) and `cpu_s` (processor time so far)."""
    process = psutil.Process()
    with process.oneshot():
        times = process.cpu_times()
        return {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "rss": int(process.memory_info().rss),
            "cpu_s": round(times.user + times.system, 2),
        }


def kill_process(pid: int, started: float) -> bool:
    """Kill the process of which `process_started` said this; False if it is gone or the pid is another's now.

    Works for a stopped process too. Does not wait for its end.
    """
    try:
        process = psutil.Process(pid)
        if abs(process_started(pid) - started) > _TOLERANCE_S:
            return False
        process.kill()
    except psutil.Error:
        return False
    return True
