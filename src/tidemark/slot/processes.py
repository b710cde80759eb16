"""Ends processes of this machine, and never the wrong one."""

from __future__ import annotations

import os
import socket
from typing import Any

import psutil

__all__ = ["kill_process", "process_figures", "process_started"]

_TOLERANCE_S = 2.0
"""The system derives start times from its clock, which may have been set since; a pid is not used again so soon."""


def process_started() -> float:
    """When this process began, in seconds since the epoch."""
    return float(psutil.Process().create_time())


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
    """Kill the process that has had this pid since `started`; False if it is gone or the pid is another's now.

    Works for a stopped process too. Does not wait for its end.
    """
    try:
        process = psutil.Process(pid)
        if abs(process.create_time() - started) > _TOLERANCE_S:
            return False
        process.kill()
    except psutil.Error:
        return False
    return True
