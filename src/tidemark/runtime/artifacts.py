"""Files that user code needs where it runs: shipped by Spark's own mechanisms, or laid out for the local executor.

The rule is the same in both: Python files can be imported; archives (unpacked) and cached files are found by their
names, relative to the working directory of the function.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from contextlib import suppress
from importlib import invalidate_caches
from typing import Any

from tidemark.api.executor import CachedFile, PythonArtifacts
from tidemark.errors import ConfigError
from tidemark.paths import is_local, local_path
from tidemark.scratch import ScratchDirectory, scratch_for_life

__all__ = ["LocalArtifacts", "ship_artifacts", "wants_directory"]

_log = logging.getLogger(__name__)

_SHIPPED_BY_SPARK = ("spark.archives", "spark.files")
"""Settings with which Spark itself ships files: `--archives` and `--files` of `spark-submit`."""


def ship_artifacts(context: Any, artifacts: PythonArtifacts) -> None:
    """Add files, archives and requirements of a job to a `SparkContext`.

    Raises:
        ConfigError: A file is not there.
    """
    for path in artifacts.files:
        context.addPyFile(_importable(_existing(path), scratch_for_life("tidemark-ship-")))
    for path, target in artifacts.archives:
        archive = _existing(path)
        context.addArchive(archive if target is None else f"{archive}#{target}")
    for file in artifacts.cached_files:
        context.addFile(_under_its_name(file))
    if artifacts.requirements is not None and artifacts.requirements_cache is not None:
        installed = _installed(
            artifacts.requirements, artifacts.requirements_cache, scratch_for_life("tidemark-ship-")
        )
        context.addPyFile(_importable(installed, scratch_for_life("tidemark-ship-")))
    elif artifacts.requirements is not None:
        # Nothing is downloaded at run time: the file travels along, installing it is up to the cluster's image.
        context.addFile(_existing(artifacts.requirements))
        _log.info("The packages in %s have to be installed on every worker.", artifacts.requirements)


def wants_directory(artifacts: PythonArtifacts, spark: Mapping[str, str]) -> bool:
    """Whether functions have to run where Spark puts shipped files: the job's, or those of `spark-submit`."""
    return bool(
        artifacts.archives or artifacts.cached_files or any(spark.get(key) for key in _SHIPPED_BY_SPARK)
    )


class LocalArtifacts:
    """The files of one job of the local executor, from its submission to its end.

    Python files and packages come first on `sys.path`; modules imported from them are forgotten with the job, so
    that the next one finds its own. Archives and cached files are links in the working directory of this process,
    which user code shares.
    """

    def __init__(self, artifacts: PythonArtifacts) -> None:
        """Lay everything out.

        Raises:
            ConfigError: A file is not there or not local, an archive cannot be unpacked, or the working directory
                already has something of that name. Nothing stays behind.
        """
        self._scratch: ScratchDirectory | None = None
        self._links: list[str] = []
        self._paths: list[str] = []
        if artifacts.requirements is not None:
            _on_this_machine(artifacts.requirements)
        cached = artifacts.requirements_cache is not None
        if not (artifacts.files or artifacts.archives or artifacts.cached_files or cached):
            return
        self._scratch = ScratchDirectory("tidemark-files-")
        try:
            self._lay_out(artifacts, self._scratch.name)
        except BaseException:
            self.remove()
            raise

    def _lay_out(self, artifacts: PythonArtifacts, folder: str) -> None:
        modules = os.path.join(folder, "modules")
        os.mkdir(modules)
        for path in artifacts.files:
            importable = _importable(_on_this_machine(path), folder)
            if importable.endswith(".py"):
                shutil.copy(importable, modules)
            else:
                self._paths.append(importable)
        if artifacts.requirements is not None and artifacts.requirements_cache is not None:
            self._paths.append(_installed(artifacts.requirements, artifacts.requirements_cache, folder))
        self._paths.insert(0, modules)
        sys.path[:0] = self._paths
        invalidate_caches()
        for at, (path, target) in enumerate(artifacts.archives):
            unpacked = os.path.join(folder, f"archive-{at}")
            archive = _on_this_machine(path)
            _unpack(archive, unpacked)
            self._link(unpacked, target or os.path.basename(archive))
        for at, file in enumerate(artifacts.cached_files):
            source = os.path.abspath(_on_this_machine(file.path))
            if file.executable:
                copy = os.path.join(folder, f"file-{at}")
                source = shutil.copy(source, copy)
                os.chmod(source, 0o700)
            self._link(source, file.name)

    def _link(self, source: str, name: str) -> None:
        link = os.path.abspath(_safe_name(name))
        if os.path.islink(link) and not os.path.exists(link):
            # Of a process that was killed: what it pointed to is swept.
            os.unlink(link)
        try:
            os.symlink(source, link)
        except OSError as exc:
            raise ConfigError(
                f"'{name}' cannot be put into the working directory {os.getcwd()}: {exc.strerror}. "
                "Choose another name or target directory, or run the program elsewhere."
            ) from exc
        self._links.append(link)

    def remove(self) -> None:
        """Take everything away again. Nothing happens a second time."""
        for link in self._links:
            with suppress(OSError):
                os.unlink(link)
        for path in self._paths:
            with suppress(ValueError):
                sys.path.remove(path)
        prefixes = tuple(self._paths)
        # A copy in one step: other threads import meanwhile.
        for name, module in sys.modules.copy().items() if prefixes else ():
            if (getattr(module, "__file__", None) or "").startswith(prefixes):
                sys.modules.pop(name, None)
        self._links, self._paths = [], []
        if self._scratch is not None:
            self._scratch.cleanup()


def _installed(requirements: str, cache: str, folder: str) -> str:
    """A directory with the packages that a requirements file names, installed from those in `cache`.

    Raises:
        ConfigError: A package is not there or cannot be installed; says what pip said.
    """
    target = os.path.join(folder, "requirements")
    # -P: no module of the current directory is taken for pip or one of its modules.
    command = [sys.executable, "-P", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += [
        "--no-index",
        "--no-build-isolation",
        "--find-links",
        _on_this_machine(cache),
        "--target",
        target,
    ]
    run = subprocess.run(
        [*command, "-r", _on_this_machine(requirements)], capture_output=True, text=True, check=False
    )
    if run.returncode:
        lines = [line for line in run.stderr.splitlines() if line.strip()]
        raise ConfigError(
            f"The packages of '{requirements}' cannot be installed from '{cache}': {' '.join(lines[-3:])} "
            "Fill the directory with `pip download -d DIRECTORY -r FILE`."
        )
    return target


def _existing(path: str) -> str:
    if is_local(path) and not os.path.exists(local_path(path)):
        raise ConfigError(f"'{path}' was to be shipped to the workers but does not exist.")
    return path


def _on_this_machine(path: str) -> str:
    if not is_local(path):
        raise ConfigError(
            f"'{path}' is not on this machine: the local executor takes files of local disks only."
        )
    return local_path(_existing(path))


def _safe_name(name: str) -> str:
    if not name or os.path.basename(name) != name or name in (os.curdir, os.pardir):
        raise ConfigError(
            f"'{name}' cannot name a shipped file: it must be a plain name without directories."
        )
    return name


def _under_its_name(file: CachedFile) -> str:
    """A path whose last part is the name of the cached file."""
    path, name = _existing(file.path), _safe_name(file.name)
    if os.path.basename(path) == name and not file.executable:
        return path
    if not is_local(path):
        raise ConfigError(
            f"The cached file '{path}' is not on a local disk and can be shipped under its own name only, "
            f"without permission to execute it, not as '{name}'."
        )
    copy = os.path.join(scratch_for_life("tidemark-ship-"), name)
    shutil.copy(local_path(path), copy)
    if file.executable:
        os.chmod(copy, 0o755)
    return copy


def _importable(path: str, folder: str) -> str:
    """A directory as a zip in `folder`, of the package it is and of the modules it has; anything else as it is."""
    if not os.path.isdir(path):
        return path
    name = os.path.basename(os.path.normpath(path))
    staged = os.path.join(folder, f"{name}.contents")
    shutil.copytree(path, staged)
    shutil.copytree(path, os.path.join(staged, name), dirs_exist_ok=True)
    archive = shutil.make_archive(os.path.join(folder, name), "zip", staged)
    shutil.rmtree(staged)
    return archive


def _unpack(archive: str, folder: str) -> None:
    form = "zip" if archive.endswith((".zip", ".jar", ".whl", ".egg")) else None
    try:
        if form is None:
            _unpack_tar(archive, folder)
        else:
            shutil.unpack_archive(archive, folder, form)
    except (shutil.ReadError, tarfile.TarError, OSError, EOFError) as exc:
        raise ConfigError(f"'{archive}' cannot be unpacked: {exc}") from exc


def _unpack_tar(archive: str, folder: str) -> None:
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "data_filter"):
            tar.extractall(folder, filter="data")
        else:
            # Python before 3.11.4 has no filters; the archive is the job's own.
            tar.extractall(folder)
