"""Where unix sockets live: private directories whose paths are short enough for them."""

from __future__ import annotations

import tempfile

from tidemark.scratch import ScratchDirectory, sweep_scratch

__all__ = ["socket_base", "socket_directory"]

_LONGEST_BASE = 50
"""A socket's path may have about 100 characters; names of our directories and sockets take up to 46 of them."""


def socket_base(longest: int = _LONGEST_BASE) -> str:
    """The directory for temporary files, or `/tmp` if its path is too long for sockets below it.

    Args:
        longest: So many characters it may have, where the names below it are not ours.
    """
    base = tempfile.gettempdir()
    return base if len(base) <= longest else "/tmp"


def socket_directory(job_id: str) -> ScratchDirectory:
    """A new directory for the sockets of a job's driver; those of drivers that were killed go on the way."""
    base = socket_base()
    sweep_scratch(base)
    return ScratchDirectory(f"tidemark-{job_id[:8]}-driver-", base)
