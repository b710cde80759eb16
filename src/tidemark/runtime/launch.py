"""Starts slot processes, detached, fresh interpreters, told by stdin: inside Spark tasks on the executors.

Where tasks run in the driver's own JVM, with the interpreter and the environment of the driver, the driver does it
itself: slots need no JVM, and are up before it is.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from ssl import SSLContext
from typing import Any

import psutil

from tidemark.api.executor import PythonArtifacts
from tidemark.rpc import socket_base
from tidemark.runtime.artifacts import wants_directory
from tidemark.scratch import ScratchDirectory, sweep_scratch
from tidemark.slot.allocator import FEW_ARENAS
from tidemark.tls import TlsFiles, client_side

__all__ = [
    "SpareSlots",
    "client_tls",
    "driver_launches",
    "launch_slots",
    "launch_slots_here",
    "shipped_files",
    "tls_on_worker",
]

_log = logging.getLogger(__name__)

_ALONE = ("spark.executorEnv.", "spark.executor.pyspark.memory", "spark.python.daemon.module")
"""What only Spark knows how to give to the processes of an executor."""


def launch_slots(settings: Iterator[dict[str, Any]]) -> Iterator[tuple[int, int, str]]:
    """Start one slot per settings; yields (slot, pid, log file). Runs in a Spark task."""
    for setting in settings:
        yield _launch(setting, dict(os.environ))


def launch_slots_here(
    settings: list[dict[str, Any]], spares: SpareSlots | None = None
) -> list[tuple[int, int, str]]:
    """The same from the driver, with the environment that Spark gives to Python workers; spares are used up first."""
    return [
        (None if spares is None else spares.become(setting)) or _launch(setting, _environment_here())
        for setting in settings
    ]


def _environment_here() -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"),
        "PYTHONUNBUFFERED": "YES",
        # One task has one core: pools of threads of numpy would fight for those of the other slots.
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }


class SpareSlots:
    """Slot processes of one job that are up and wait to be told which slot they are. Safe to use from any thread.

    One that waits ends by itself when its driver does: its standard input closes.
    """

    def __init__(self, job_id: str, count: int) -> None:
        """Have none yet.

        Args:
            job_id: The job.
            count: How many `keep` keeps.
        """
        self._job_id = job_id
        self._count = count
        self._waiting: list[_Process] = []
        self._told: dict[int, _Process] = {}
        """Those that were told which slot they are, by their pids."""
        self._lock = threading.Lock()
        self._closed = False

    def keep(self) -> None:
        """Have as many as are to be kept, without waiting until they are up; fewer if the system starts no more."""
        with self._lock:
            self._waiting = [process for process in self._waiting if process.is_alive]
            while len(self._waiting) < self._count and not self._closed:
                try:
                    self._waiting.append(_Process(self._job_id, "spare", _environment_here(), spare=True))
                except OSError as exc:
                    # The job does well without: no reason to fail it.
                    _log.warning("No spare slot could be started, until the next checkpoint: %s", exc)
                    return

    def pids(self) -> list[int]:
        """Those that wait."""
        with self._lock:
            return [process.pid for process in self._waiting]

    def become(self, setting: dict[str, Any]) -> tuple[int, int, str] | None:
        """Let one be this slot: (slot, pid, log file). None if there is none."""
        told = _completed(setting)
        with self._lock:
            self._told = {pid: process for pid, process in self._told.items() if process.is_alive}
            while self._waiting:
                process = self._waiting.pop(0)
                # One may have died since it was looked at; told or not, whoever waits for it to register sees that.
                if process.is_alive:
                    self._told[process.pid] = process
                    return process.become(told)
        return None

    def give_up(self, pid: int) -> bool:
        """End a spare that does not become the slot it was told to be: it was frozen. False if `pid` is of no spare."""
        with self._lock:
            process = self._told.pop(pid, None)
        if process is not None:
            process.end()
        return process is not None

    def close(self) -> None:
        """End those that wait, and keep none from now on."""
        with self._lock:
            self._closed = True
            waiting, self._waiting = self._waiting, []
        for process in waiting:
            process.end()


def driver_launches(spark: Mapping[str, str], artifacts: PythonArtifacts, pythons: Iterable[str]) -> bool:
    """Whether a slot that the driver starts is the same as one that a task in the driver's JVM starts.

    Args:
        spark: Settings of the Spark session.
        artifacts: What the job ships.
        pythons: Interpreters that were named for the workers.
    """
    told = any(key.startswith(_ALONE) for key in spark) or wants_directory(artifacts, spark)
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
    directory = shipped_files() if setting.get("shipped_files") else None
    told = _completed(setting)
    return _Process(setting["job_id"], setting["slot"], environment, directory).become(told)


def _completed(setting: dict[str, Any]) -> dict[str, Any]:
    """With what is known only on the machine of the slot."""
    completed = dict(setting)
    if setting.get("tls") is not None:
        files = tls_on_worker(TlsFiles(**setting["tls"]))
        # Here and not in the slot alone: a file that is missing fails the task, which tells, not a process in silence.
        files.server()
        completed["tls"] = asdict(files)
    if setting["bind"] is None:
        completed["bind"] = _own_address(setting["driver"])
    return completed


class _Process:
    """A fresh interpreter with a scratch directory, to be told which slot it is."""

    def __init__(
        self,
        job_id: str,
        name: object,
        environment: dict[str, str],
        directory: str | None = None,
        spare: bool = False,
    ) -> None:
        base = socket_base()
        sweep_scratch(base)
        scratch = ScratchDirectory(f"tidemark-{job_id[:8]}-{name}-", base)
        self._scratch = scratch.name
        self._log = os.path.join(scratch.name, "slot.log")
        with open(self._log, "wb") as stream:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tidemark.slot.server", *(["--spare"] if spare else [])],
                stdin=subprocess.PIPE,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
                pass_fds=(scratch.fileno(),),
                cwd=scratch.name if directory is None else directory,
                env={
                    **FEW_ARENAS,
                    **environment,
                    "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                },
            )
        scratch.hand_over()
        # Spark keeps this worker for later tasks; without somebody who waits, the ended slot would stay a zombie.
        threading.Thread(target=self._process.wait, name="slot-reaper", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        # `poll` knows nothing as long as the thread that reaps it waits, nor until that has run again.
        return self._process.poll() is None and psutil.pid_exists(self._process.pid)

    def become(self, setting: dict[str, Any]) -> tuple[int, int, str]:
        told = {**setting, "scratch": self._scratch, "sys_path": sys.path}
        assert self._process.stdin is not None
        with suppress(BrokenPipeError), self._process.stdin as stream:
            stream.write(json.dumps(told).encode() + b"\n")
        return told["slot"], self._process.pid, self._log

    def end(self) -> None:
        """End one that is no slot yet, and remove what it had."""
        self._process.kill()
        assert self._process.stdin is not None
        self._process.stdin.close()
        shutil.rmtree(self._scratch, ignore_errors=True)


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
