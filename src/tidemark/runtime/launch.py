"""Starts slot processes, inside Spark tasks on the executors: detached, fresh interpreters, told by stdin."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

from tidemark.rpc import socket_base
from tidemark.scratch import ScratchDirectory, sweep_scratch

__all__ = ["launch_slots", "shipped_files"]


def launch_slots(settings: Iterator[dict[str, Any]]) -> Iterator[tuple[int, int, str]]:
    """Start one slot per settings; yields (slot, pid, log file). Runs in a Spark task."""
    for setting in settings:
        yield _launch(dict(setting))


def _launch(setting: dict[str, Any]) -> tuple[int, int, str]:
    base = socket_base()
    sweep_scratch(base)
    scratch = ScratchDirectory(f"tidemark-{setting['job_id'][:8]}-{setting['slot']}-", base)
    setting["scratch"] = scratch.name
    setting["sys_path"] = sys.path
    if setting["bind"] is None:
        setting["bind"] = _own_address(setting["driver"])
    log = os.path.join(scratch.name, "slot.log")
    with open(log, "wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "tidemark.slot.server"],
            stdin=subprocess.PIPE,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
            pass_fds=(scratch.fileno(),),
            cwd=shipped_files() if setting.pop("shipped_files", False) else scratch.name,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
    scratch.hand_over()
    assert process.stdin is not None
    process.stdin.write(json.dumps(setting).encode() + b"\n")
    process.stdin.close()
    # Spark keeps this worker for later tasks; without somebody who waits, the ended slot would stay a zombie.
    threading.Thread(target=process.wait, name="slot-reaper", daemon=True).start()
    return setting["slot"], process.pid, log


def shipped_files() -> str:
    """Where Spark puts shipped files on this executor."""
    from pyspark import SparkFiles

    return str(SparkFiles.getRootDirectory())


def _own_address(driver: str) -> str:
    """The address of this machine on the way to the driver."""
    host = driver.partition(":")[2].rpartition(":")[0]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))
        return str(probe.getsockname()[0])
