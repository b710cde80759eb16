"""Shipping what user code needs to the workers, through Spark's own mechanisms."""

from __future__ import annotations

import logging
import os
import shutil
from typing import Any

from tidemark.api.executor import PythonArtifacts
from tidemark.errors import ConfigError
from tidemark.paths import is_local, local_path
from tidemark.scratch import scratch_for_life

__all__ = ["ship_artifacts"]

_log = logging.getLogger(__name__)


def ship_artifacts(context: Any, artifacts: PythonArtifacts) -> None:
    """Add files, archives and requirements of a job to a `SparkContext`.

    Raises:
        ConfigError: A file is not there.
    """
    for path in artifacts.files:
        context.addPyFile(_importable(_existing(path)))
    for path, target in artifacts.archives:
        archive = _existing(path)
        context.addArchive(archive if target is None else f"{archive}#{target}")
    for file in artifacts.cached_files:
        context.addFile(_existing(file.path))
    if artifacts.requirements is not None:
        # Nothing is downloaded at run time: the file travels along, installing it is up to the cluster's image.
        context.addFile(_existing(artifacts.requirements))
        _log.info("The packages in %s have to be installed on every worker.", artifacts.requirements)


def _existing(path: str) -> str:
    if is_local(path) and not os.path.exists(local_path(path)):
        raise ConfigError(f"'{path}' was to be shipped to the workers but does not exist.")
    return path


def _importable(path: str) -> str:
    """A package directory as a zip; anything else as it is."""
    if not os.path.isdir(path):
        return path
    folder = scratch_for_life("tidemark-ship-")
    name = os.path.basename(os.path.normpath(path))
    return shutil.make_archive(
        os.path.join(folder, name), "zip", os.path.dirname(os.path.abspath(path)), name
    )
