"""Names of side outputs."""

from __future__ import annotations

from tidemark.api.output_tag import OutputTag

__all__ = [
    "OutputTag",
]
