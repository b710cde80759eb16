"""`tidemark doctor`: whether this machine can run jobs, one finding per thing they need, each with its remedy.

Looking starts no JVM and changes nothing: what is written for a probe is deleted again.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import psutil

from tidemark.api.state_backends.selection import resolve_state_backend
from tidemark.checkpoint.storage.filesystem import FileSystemStorage
from tidemark.checkpoint.storage.probe import probe_directory
from tidemark.config import Configuration, Options
from tidemark.config.spelling import suspicious_keys, suspicious_variables
from tidemark.errors import ConfigError, TidemarkError
from tidemark.jobs import registry_directory
from tidemark.paths import absolute
from tidemark.ports import parse_port_range
from tidemark.private_files import private_directory
from tidemark.runtime.session import GET_JAVA, OLDEST_JAVA, java_command, java_version, no_java

__all__ = ["Finding", "Verdict", "examine"]

_ENOUGH_MEMORY = 2 << 30
_ENOUGH_DISK = 1 << 30
_CLOCK_TOLERANCE_S = 5.0


class Verdict(Enum):
    """What a finding means for jobs."""

    OK = "ok"
    WARNING = "warning"
    """Some jobs will not run, or not well."""
    PROBLEM = "problem"
    """Jobs will not run."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    subject: str
    verdict: Verdict
    said: str
    remedy: str = ""


def examine(configuration: Configuration) -> list[Finding]:
    """Look at everything a job with this configuration needs of this machine."""
    found: list[Finding] = []
    for look in (_python, _packages, _java, _home, _backend, _storage, _ports, _memory, _disk, _clock, _keys):
        try:
            found += look(configuration)
        except (OSError, TidemarkError) as exc:
            subject = look.__name__.removeprefix("_").capitalize()
            found.append(Finding(subject, Verdict.PROBLEM, str(exc)))
    return found


def _python(_configuration: Configuration) -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    fits = sys.version_info >= (3, 11)
    remedy = "" if fits else "Install Python 3.11 or newer."
    yield Finding("Python", Verdict.OK if fits else Verdict.PROBLEM, f"{version}, {sys.executable}", remedy)
    workers = os.environ.get("PYSPARK_PYTHON")
    if workers and shutil.which(workers) is None:
        yield Finding(
            "Spark workers",
            Verdict.PROBLEM,
            f"PYSPARK_PYTHON is {workers}, which is not there",
            "Unset it, or point it at an interpreter that has tidemark.",
        )


def _packages(_configuration: Configuration) -> Iterator[Finding]:
    for name in ("pyspark", "pyarrow", "rocksdict"):
        try:
            yield Finding(name, Verdict.OK, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            remedy = f"Install it: pip install {name}."
            yield Finding(name, Verdict.PROBLEM, "not installed", remedy)


def _java(_configuration: Configuration) -> Iterator[Finding]:
    command = java_command(os.environ)
    if command is None:
        told = f"{no_java(os.environ)}; jobs on Spark do not start"
        yield Finding("Java", Verdict.PROBLEM, told, GET_JAVA)
        return
    version = java_version(command)
    if version < OLDEST_JAVA:
        yield Finding("Java", Verdict.PROBLEM, f"{command} is {version}, too old for Spark", GET_JAVA)
    else:
        yield Finding(
            "Java", Verdict.OK, f"{version if version < sys.maxsize else 'version unknown'}, {command}"
        )


def _home(_configuration: Configuration) -> Iterator[Finding]:
    directory = registry_directory()
    try:
        private_directory(directory)
    except ConfigError as exc:
        yield Finding("Home", Verdict.PROBLEM, str(exc), "Point TIDEMARK_HOME at a directory of your own.")
    else:
        yield Finding("Home", Verdict.OK, f"{directory} is yours alone")


def _backend(configuration: Configuration) -> Iterator[Finding]:
    option = Options.STATE_BACKEND
    checkpoints = (configuration.get(Options.CHECKPOINTING_INTERVAL) or 0) > 0
    elsewhere = bool(configuration.get(Options.CHECKPOINTING_STORAGE))
    try:
        backend = resolve_state_backend(configuration, None, needs_directory=checkpoints and not elsewhere)
    except ConfigError as exc:
        yield Finding(
            option.key, Verdict.PROBLEM, str(exc), "Correct it, or let the program choose a backend."
        )
    else:
        yield Finding(option.key, Verdict.OK, type(backend).__name__)


def _storage(configuration: Configuration) -> Iterator[Finding]:
    for option in (Options.CHECKPOINTS_DIR, Options.SAVEPOINTS_DIR):
        directory = configuration.get(option)
        if not directory:
            said = (
                "not set: checkpoints stay in the driver's memory"
                if option is Options.CHECKPOINTS_DIR
                else "not set"
            )
            remedy = f"Set {option.key} to keep them." if option is Options.CHECKPOINTS_DIR else ""
            verdict = Verdict.WARNING if option is Options.CHECKPOINTS_DIR else Verdict.OK
            yield Finding(option.key, verdict, said, remedy)
            continue
        started = time.perf_counter()
        try:
            probe_directory(FileSystemStorage(), absolute(directory))
        except TidemarkError as exc:
            yield Finding(option.key, Verdict.PROBLEM, str(exc), "Name a directory that you may write to.")
            continue
        took = (time.perf_counter() - started) * 1000
        yield Finding(option.key, Verdict.OK, f"{directory}: written, read and deleted in {took:.0f} ms")


def _ports(configuration: Configuration) -> Iterator[Finding]:
    if not configuration.get(Options.REST_ENABLED):
        yield Finding("Web page", Verdict.OK, "switched off (rest.enabled)")
        return
    host = str(configuration.get(Options.REST_BIND_ADDRESS))
    named = configuration.get(Options.REST_BIND_PORT) or str(configuration.get(Options.REST_PORT))
    ports = parse_port_range(named)
    free = next((port for port in ports if _is_free(host, port)), None)
    if free is not None:
        yield Finding("Web page", Verdict.OK, f"port {free} of {host} is free")
    else:
        said = f"no port of {named} is free at {host}"
        yield Finding(
            "Web page",
            Verdict.WARNING,
            said,
            "Jobs take the next free one; or set rest.port or rest.bind-port.",
        )


def _is_free(host: str, port: int) -> bool:
    try:
        with socket.create_server((host, port)):
            return True
    except OSError:
        return False


def _memory(_configuration: Configuration) -> Iterator[Finding]:
    free = psutil.virtual_memory().available
    said = f"{free / 2**30:.1f} GiB available, {os.cpu_count()} cores"
    enough = free >= _ENOUGH_MEMORY
    remedy = (
        ""
        if enough
        else "Spark and a slot need about 2 GiB; stop something, or run with execution.target=local."
    )
    yield Finding("Memory", Verdict.OK if enough else Verdict.WARNING, said, remedy)


def _disk(_configuration: Configuration) -> Iterator[Finding]:
    directory = tempfile.gettempdir()
    free = shutil.disk_usage(directory).free
    enough = free >= _ENOUGH_DISK
    remedy = "" if enough else "RocksDB and Spark work there; make room or set TMPDIR."
    said = f"{free / 2**30:.1f} GiB free in {directory}"
    yield Finding("Disk", Verdict.OK if enough else Verdict.WARNING, said, remedy)


def _clock(_configuration: Configuration) -> Iterator[Finding]:
    with tempfile.NamedTemporaryFile() as file:
        apart = abs(Path(file.name).stat().st_mtime - time.time())
    if apart > _CLOCK_TOLERANCE_S:
        said = f"the clock and that of {tempfile.gettempdir()} are {apart:.0f} s apart"
        remedy = "Synchronise the clocks (NTP): timers and TTL follow them."
        yield Finding("Clock", Verdict.WARNING, said, remedy)
    else:
        yield Finding("Clock", Verdict.OK, time.strftime("%Y-%m-%d %H:%M:%S %Z"))


def _keys(configuration: Configuration) -> Iterator[Finding]:
    for key, nearest in suspicious_keys(configuration.key_set()).items():
        remedy = f"Did you mean '{nearest}'?" if nearest else "Remove it, or look it up in the reference."
        yield Finding("Configuration", Verdict.WARNING, f"no option is called '{key}'", remedy)
    for name, meant in suspicious_variables().items():
        yield Finding(
            "Environment", Verdict.WARNING, f"no option has the variable {name}", f"Did you mean {meant}?"
        )
