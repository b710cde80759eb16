"""Starts slot processes, inside Spark tasks on the executors: detached, fresh interpreters, told by stdin."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict
from ssl import SSLContext
from typing import Any

from tidemark.rpc import socket_base
from tidemark.scratch import ScratchDirectory, sweep_scratch
from tidemark.slot.allocator import FEW_ARENAS
from tidemark.tls import TlsFiles, client_side

__all__ = ["client_tls", "launch_slots", "shipped_files", "tls_on_worker"]


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
    if setting.get("tls") is not None:
        files = tls_on_worker(TlsFiles(**setting["tls"]))
        # Here and not in the slot alone: a file that is missing fails the task, which tells, not a process in silence.
        files.server()
        setting["tls"] = asdict(files)
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
            env={
                **FEW_ARENAS,
                **os.environ,
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            },
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


def tls_on_worker(files: TlsFiles) -> TlsFiles:
    """Files of TLS as they are found here: with a relative path, where Spark puts shipped files."""
    return files if files.is_absolute else files.below(shipped_files())


def client_tls(files: TlsFiles | None) -> SSLContext | None:
    """The client side of TLS on a worker, if there is to be any.

    Raises:
        ConfigError: The files are not here, or cannot be used.
    """
    return client_side(None if files is None else tls_on_worker(files))


def _own_address(driver: str) -> str:
    """The address of this machine on the way to the driver."""
    host = driver.partition(":")[2].rpartition(":")[0]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))
        return str(probe.getsockname()[0])
