"""How far random tests search: a fixed stretch in `make test`, a long one from a new seed in `make chaos`.

`make test` must give the same verdict on the same tree every time, so nothing there may depend on a seed that
changes or on how many examples fit into some time. The search itself is a campaign: `make chaos` sets
``TIDEMARK_CHAOS`` to its seed, which `make chaos SEED=...` replays; what it finds becomes an `@example`.
"""

from __future__ import annotations

import os

SEED = int(os.environ.get("TIDEMARK_CHAOS", "0"))
"""Where the campaign starts; 0 outside of one."""

_FACTOR = int(os.environ.get("TIDEMARK_CHAOS_FACTOR", "10")) if SEED else 1


def examples(usual: int) -> int:
    """How many examples a property gets that usually has so many."""
    return usual * _FACTOR


def seeds(usual: int, campaign: int = 0) -> range:
    """The seeds of a test that usually runs those from 0 to `usual`, and at least `campaign` in a campaign."""
    return range(SEED, SEED + max(usual * _FACTOR, campaign if SEED else 0))
