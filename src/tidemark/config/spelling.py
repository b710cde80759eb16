"""Which keys nobody knows, and what was probably meant.

A key that no option has may still be meant for somebody: keys of Spark, and keys that a user's own functions
read from the global configuration. Those are told from misspelt ones by their first part: `state.backnd`
begins like an option of the table, `shop.currency` does not.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from functools import cache

from tidemark.config.loader import environment_variable
from tidemark.config.options import all_options, find_option

__all__ = ["nearest_key", "suspicious_keys", "suspicious_variables"]

# Below this two keys share little more than their first part; found by trying one and two typing errors per key.
_CLOSE = 0.75
_CLOSE_ACROSS_FAMILIES = 0.9
_PREFIX = environment_variable("")


@cache
def _spellings() -> tuple[str, ...]:
    return tuple(key for option in all_options() for key in option.spellings)


@cache
def _families() -> frozenset[str]:
    return frozenset(key.partition(".")[0] for key in _spellings() if "." in key)


def nearest_key(key: str) -> str | None:
    """The known key that is most like this one, if any is."""
    cutoff = _CLOSE if key.partition(".")[0] in _families() else _CLOSE_ACROSS_FAMILIES
    found = difflib.get_close_matches(key, _spellings(), n=1, cutoff=cutoff)
    return found[0] if found else None


def suspicious_keys(keys: Iterable[str]) -> dict[str, str | None]:
    """The keys that look like options and are none, each with the nearest one that exists.

    Keys of Spark and keys with a first part of the user's own are left out, unless they are one slip away from
    an option.
    """
    found: dict[str, str | None] = {}
    for key in sorted(keys):
        if find_option(key) is not None or key.startswith("spark."):
            continue
        nearest = nearest_key(key)
        if nearest is not None or key.partition(".")[0] in _families():
            found[key] = nearest
    return found


def suspicious_variables(names: Iterable[str] | None = None) -> dict[str, str]:
    """Environment variables that are one slip away from that of an option, each with the one that was meant.

    Args:
        names: Stand in for those of the process.
    """
    known = {environment_variable(key).removeprefix(_PREFIX) for key in _spellings()}
    found: dict[str, str] = {}
    for name in sorted(os.environ if names is None else names):
        told = name.removeprefix(_PREFIX)
        if told == name or told in known:
            continue
        near = difflib.get_close_matches(told, known, n=1, cutoff=_CLOSE_ACROSS_FAMILIES)
        if near:
            found[name] = _PREFIX + near[0]
    return found
