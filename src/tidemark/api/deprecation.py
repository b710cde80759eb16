"""How names of older releases are accepted: with a warning that says what to use instead."""

from __future__ import annotations

import warnings

__all__ = ["deprecated"]


def deprecated(name: str, instead: str) -> None:
    """Warn the caller of the function that calls this one."""
    warnings.warn(f"{name} is deprecated; {instead}.", DeprecationWarning, stacklevel=3)
