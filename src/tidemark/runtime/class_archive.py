"""Classes of Spark kept between runs, in the form in which a JVM maps them (class data sharing).

Most of what a JVM does until Spark runs its first job is to read and verify some fifteen thousand classes. The first
session that we create on a machine writes them down when its JVM ends; later ones map that file. A JVM that finds it
made by another Java, for other jars or not complete goes on without it, so a file that is wrong costs time, not a job.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from tidemark.errors import ConfigError
from tidemark.private_files import private_directory

__all__ = ["CLASS_ARCHIVE", "class_archive_options"]

CLASS_ARCHIVE = "TIDEMARK_SPARK_CLASS_ARCHIVE"
"""A directory for the file, or `off`."""
_COMPLETE = (0xF00BABA8).to_bytes(4, "little")
"""How the file begins once it is whole: the JVM writes the header last."""
_SPACE = 2**30
"""Free bytes that are wanted before some 160 MB are written."""
_PATIENCE_S = 600.0
"""How old an incomplete file is before its JVM is taken for dead."""
_QUIET = "-Xshare:auto -Xlog:cds*=off -Xlog:class+path=off"


def class_archive_options(java: str, java_options: str, environ: Mapping[str, str]) -> str:
    """What a JVM of Spark is to be told in order to use the classes of an earlier one, or to write its own.

    Empty where the user has a say in it, or where it is not possible.

    Args:
        java: The command that starts it.
        java_options: What else it is told.
        environ: Of this process.
    """
    told = environ.get(CLASS_ARCHIVE, "")
    if told == "off" or "-Xshare" in java_options or "Archive" in java_options:
        return ""
    # Without the classes of Java itself a JVM can add none to them, and says so.
    home = Path(os.path.realpath(java)).parent.parent
    spark = find_spec("pyspark")
    if not (home / "lib" / "server" / "classes.jsa").exists() or spark is None or spark.origin is None:
        return ""
    try:
        folder = private_directory(told or _cache(environ) / "tidemark" / "classes")
        file = folder / f"spark-{_name(home, Path(spark.origin).parent)}.jsa"
        if _is_complete(file):
            return f'{_QUIET} "-XX:SharedArchiveFile={file}"'
        if _is_being_written(file) or shutil.disk_usage(folder).free < _SPACE:
            return ""
    except (OSError, ConfigError):
        # No home, or one that is not ours: not what somebody who starts a job wants to hear about.
        return ""
    return f'{_QUIET} "-XX:ArchiveClassesAtExit={file}"'


def _cache(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _name(*places: Path) -> str:
    """Differs where a JVM would refuse the file."""
    facts = [f"{place} {place.stat().st_mtime_ns}" for place in places]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]


def _is_complete(file: Path) -> bool:
    try:
        with file.open("rb") as stream:
            return stream.read(len(_COMPLETE)) == _COMPLETE
    except FileNotFoundError:
        return False


def _is_being_written(file: Path) -> bool:
    try:
        return time.time() - file.stat().st_mtime < _PATIENCE_S
    except FileNotFoundError:
        return False
