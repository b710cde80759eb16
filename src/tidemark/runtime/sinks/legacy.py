"""Staged files as release 0.1.0 left them: beside their final names, known by a token in the name."""

from __future__ import annotations

import os
from fnmatch import fnmatch

from tidemark.paths import is_local, local_path, name_of, remote

__all__ = ["sweep_legacy"]


def sweep_legacy(base_path: str, token: str) -> None:
    """Delete all staged files with that token under `base_path`; call it when none is wanted.

    Raises:
        OSError: The directory cannot be read or written.
    """
    pattern = f".*-{token}-*.inprogress"
    if is_local(base_path):
        for folder, _folders, names in os.walk(local_path(base_path)):
            for name in names:
                if fnmatch(name, pattern):
                    os.unlink(os.path.join(folder, name))
        return
    filesystem, base = remote(base_path)
    for path in filesystem.find(base):
        if fnmatch(name_of(path), pattern):
            filesystem.rm_file(path)
