"""What the server says it is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

__all__ = ["REVISION", "VERSION"]

try:
    VERSION = version("tidemark")
except PackageNotFoundError:
    # Run from a source tree that was never installed.
    VERSION = "unknown"
REVISION = "tidemark"
