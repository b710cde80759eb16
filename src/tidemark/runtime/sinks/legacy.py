"""Staged files as release 0.1.0 left them: beside their final names, known by a token in the name."""

from __future__ import annotations

import os

from tidemark.paths import is_local, local_path, name_of, remote

__all__ = ["sweep_legacy"]


def sweep_legacy(base_path: str, token: str) -> None:
    """Delete all staged files with that token under `base_path`; call it when none is wanted.

    Raises:
        OSError: The directory cannot be read or written.
    """
    if is_local(base_path):
        for folder, folders, names in os.walk(local_path(base_path)):
            # What is below a claim is a younger sink's.
            folders[:] = [name for name in folders if not name.startswith(".tidemark-")]
            for name in names:
                if _is_staged(name, token):
                    os.unlink(os.path.join(folder, name))
        return
    filesystem, base = remote(base_path)
    for path in filesystem.find(base):
        if _is_staged(name_of(path), token) and "/.tidemark-" not in path:
            filesystem.rm_file(path)


def _is_staged(name: str, token: str) -> bool:
    return name.startswith(".") and name.endswith(".inprogress") and f"-{token}-" in name
