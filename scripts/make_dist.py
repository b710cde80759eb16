"""Builds wheel and source distribution into `dist/`, the same bytes whenever and wherever.

`python scripts/make_dist.py [DIRECTORY]`. The build sees a copy of the files that belong into a package and nothing
else. What still differs from machine to machine (times, owners, permissions, the order of entries, the header of gzip)
is set afterwards; times are `SOURCE_DATE_EPOCH`, by default the time of the last commit.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("src", "pyproject.toml", "MANIFEST.in", "README.md", "CHANGELOG.md", "LICENSE")
_EARLIEST_IN_ZIP = 315_532_800
"""1980-01-01: a zip file knows no time before."""


def build(directory: Path, epoch: int) -> list[Path]:
    """Build both into `directory` and return their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tidemark-dist-") as scratch:
        tree = Path(scratch, "tree")
        tree.mkdir()
        for name in SOURCES:
            _copy(ROOT / name, tree / name)
        # In a process of its own: the backend works in the current directory and keeps what it has imported.
        program = "from setuptools import build_meta as b; b.build_sdist('../out'); b.build_wheel('../out')"
        built_by = subprocess.run(
            [sys.executable, "-c", program], cwd=tree, capture_output=True, text=True, env=_environment(epoch)
        )
        if built_by.returncode:
            # Else it only warns of patterns that match nothing, because the copy holds nothing to leave out.
            sys.exit(built_by.stdout + built_by.stderr)
        made = []
        for built in sorted(Path(scratch, "out").iterdir()):
            normal = _normal_wheel if built.suffix == ".whl" else _normal_sdist
            target = directory / built.name
            target.write_bytes(normal(built, epoch))
            made.append(target)
    return made


def _environment(epoch: int) -> dict[str, str]:
    return {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PYTHONPATH": ""}


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(
            source, target, ignore=shutil.ignore_patterns("__pycache__", "*.py[cod]", "*.egg-info", ".*")
        )
    else:
        shutil.copyfile(source, target)


def _normal_wheel(path: Path, epoch: int) -> bytes:
    """The same entries in order, with one time and one permission; the list of hashes inside stays true."""
    moment = time.gmtime(max(epoch, _EARLIEST_IN_ZIP))[:6]
    written = io.BytesIO()
    with (
        zipfile.ZipFile(path) as old,
        zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as new,
    ):
        for name in sorted(old.namelist(), key=lambda name: (".dist-info/" in name, name)):
            entry = zipfile.ZipInfo(name, moment)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o100644 << 16
            entry.create_system = 3
            new.writestr(entry, old.read(name))
    return written.getvalue()


def _normal_sdist(path: Path, epoch: int) -> bytes:
    """The same entries in order, owned by nobody, with one time; nothing of the machine in the header of gzip."""
    written = io.BytesIO()
    with (
        tarfile.open(path) as old,
        gzip.GzipFile(filename="", mode="wb", fileobj=written, mtime=epoch, compresslevel=9) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for entry in sorted(old.getmembers(), key=lambda entry: entry.name):
            plain = tarfile.TarInfo(entry.name)
            plain.type, plain.size, plain.mtime = entry.type, entry.size, epoch
            plain.mode = 0o755 if entry.isdir() else 0o644
            new.addfile(plain, old.extractfile(entry) if entry.isfile() else None)
    return written.getvalue()


def epoch_of(environment: dict[str, str]) -> int:
    """`SOURCE_DATE_EPOCH`, else the time of the last commit, else, outside of a repository, the oldest a zip has."""
    if given := environment.get("SOURCE_DATE_EPOCH"):
        return int(given)
    asked = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True)
    return int(asked.stdout) if asked.returncode == 0 and asked.stdout.strip() else _EARLIEST_IN_ZIP


def main() -> None:
    """Build, and say what was built."""
    directory = Path(sys.argv[1]) if sys.argv[1:] else ROOT / "dist"
    for path in build(directory, epoch_of(dict(os.environ))):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        print(f"{digest}  {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")


if __name__ == "__main__":
    main()
