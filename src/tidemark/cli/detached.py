"""`run -d`: the program in a background process of its own; its output goes to a log in `TIDEMARK_HOME`."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tidemark.cli.program import ProgramSettings
from tidemark.jobs import list_jobs, registry_directory
from tidemark.private_files import private_directory
from tidemark.runtime.history import read_history

__all__ = ["StartedProgram", "run_command", "run_detached"]

_POLL_S = 0.05
_TAIL = 4000


@dataclass(frozen=True, slots=True)
class StartedProgram:
    """A detached program that has registered a job, or that ended before it could."""

    pid: int
    log: str
    job_id: str | None = None
    exit_code: int = 0
    log_tail: str = ""
    """End of the log, if the program failed before it registered a job."""


def run_command(program: str, arguments: Sequence[str], settings: ProgramSettings, *flags: str) -> list[str]:
    """The command that runs a program, with the same settings, in a process of its own."""
    defines = [part for key, value in settings.values for part in ("-D", f"{key}={value}")]
    # -P: what lies in the current directory, which may be /tmp, is not imported in the place of our modules.
    return [sys.executable, "-P", "-m", "tidemark.cli", "run", *flags, *defines, program, *arguments]


def run_detached(
    program: str, arguments: Sequence[str], settings: ProgramSettings, *, supervise: bool = False
) -> StartedProgram:
    """Start the program, or its supervisor, and return as soon as its first job is registered."""
    private_directory(registry_directory())
    directory = private_directory(registry_directory() / "logs")
    stamp = time.strftime("%Y%m%d-%H%M%S")
    handle, log = tempfile.mkstemp(prefix=f"run-{stamp}-", suffix=".log", dir=directory)
    started = round(time.time() * 1000)
    command = run_command(program, arguments, settings, *(["--supervise"] if supervise else []))
    with os.fdopen(handle, "wb") as stream:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        return _await_job(process, log, started)
    except KeyboardInterrupt:
        process.terminate()
        raise


def _await_job(process: subprocess.Popen[bytes], log: str, started: int) -> StartedProgram:
    while True:
        code = process.poll()
        for record in list_jobs():
            if record.pid == process.pid or _is_child(record.pid, process.pid):
                # From here on nobody waits for it; it belongs to init, or to whoever adopts orphans.
                process.returncode = 0
                return StartedProgram(process.pid, log, record.job_id)
        if code is not None:
            # A short job may have come and gone between two looks.
            mine = [job for job in read_history() if job.pid == process.pid and job.start_time >= started]
            job_id = mine[-1].job_id if mine else None
            tail = "" if code == 0 else _tail(log)
            # A negative code is the signal that killed it; shells say 128 + signal.
            return StartedProgram(process.pid, log, job_id, code if code >= 0 else 128 - code, tail)
        time.sleep(_POLL_S)


def _is_child(pid: int, of: int) -> bool:
    """Whether a driver is that of a supervisor."""
    import psutil

    try:
        return bool(psutil.Process(pid).ppid() == of)
    except psutil.Error:
        return False


def _tail(log: str) -> str:
    with contextlib.suppress(OSError):
        return Path(log).read_bytes()[-_TAIL:].decode(errors="replace").strip() or "The program said nothing."
    return "Its log cannot be read."
