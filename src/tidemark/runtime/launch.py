"""Starts slot processes, detached, fresh interpreters, told by stdin: inside Spark tasks on the executors.

Where tasks run in the driver's own JVM, with the interpreter and the environment of the driver, the driver does it
itself: slots need no JVM, and are up before it is.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from ssl import SSLContext
from typing import Any

from tidemark.api.executor import PythonArtifacts
from tidemark.rpc import socket_base
from tidemark.scratch import ScratchDirectory, sweep_scratch
from tidemark.slot.allocator import FEW_ARENAS
from tidemark.tls import TlsFiles, client_side

__all__ = [
    "client_tls",
    "driver_launches",
    "launch_slots",
    "launch_slots_here",
    "shipped_files",
    "tls_on_worker",
]

_ALONE = ("spark.executorEnv.", "spark.executor.pyspark.memory", "spark.python.daemon.module")
"""What only Spark knows how to give to the processes of an executor."""


def launch_slots(settings: Iterator[dict[str, Any]]) -> Iterator[tuple[int, int, str]]:
    """Start one slot per settings; yields (slot, pid, log file). Runs in a Spark task."""
    for setting in settings:
        yield _launch(dict(setting), dict(os.environ))


def launch_slots_here(settings: list[dict[str, Any]]) -> list[tuple[int, int, str]]:
    """The same from the driver, with the environment that Spark gives to Python workers."""
    environment = {
        **os.environ,
        "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"),
        "PYTHONUNBUFFERED": "YES",
        # One task has one core: pools of threads of numpy would fight for those of the other slots.
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }
    return [_launch(dict(setting), environment) for setting in settings]


def driver_launches(spark: Mapping[str, str], artifacts: PythonArtifacts, pythons: Iterable[str]) -> bool:
    """Whether a slot that the driver starts is the same as one that a task in the driver's JVM starts.

    Args:
        spark: Settings of the Spark session.
        artifacts: What the job ships.
        pythons: Interpreters that were named for the workers.
    """
    told = any(key.startswith(_ALONE) for key in spark)
    return not told and artifacts == PythonArtifacts() and all(map(_is_this_interpreter, pythons))


def _is_this_interpreter(python: str) -> bool:
    found = shutil.which(python)
    # All environments of a Python link to the same file; the directory tells them apart.
    return (
        found is not None
        and os.path.dirname(os.path.abspath(found)) == os.path.dirname(os.path.abspath(sys.executable))
        and os.path.samefile(found, sys.executable)
    )


def _launch(setting: dict[str, Any], environment: dict[str, str]) -> tuple[int, int, str]:
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
                **environment,
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
