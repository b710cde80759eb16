"""Maps as configuration text: `k1:v1,k2:v2`, with what would be taken for a separator in single quotes.

map   := [ pair { "," pair } ]        pair := part ":" part
part  := plain | "'" { any character, "''" for a quote } "'"
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tidemark.errors import ConfigError

__all__ = ["map_text", "parse_map_text"]

_NEEDS_QUOTES = re.compile(r"[,:'\"]|^\s|\s\Z|^\Z")
_PART = r"\s*(?:'((?:[^']|'')*)'|([^',:]*))\s*"
_PAIR = re.compile(rf"{_PART}:{_PART}(?:,|\Z)")
# Values of hand-written maps often hold further colons, such as those of a URL; only a comma ends them.
_LOOSE_PAIR = re.compile(r"\s*([^',:]+):([^',][^,]*|)(?:,|\Z)")


def map_text(values: Mapping[str, str]) -> str:
    """Return the text that `parse_map_text` turns into `values`."""
    return ",".join(f"{_quoted(key)}:{_quoted(value)}" for key, value in values.items())


def parse_map_text(text: str) -> dict[str, str]:
    """Return the pairs written in `text`.

    Raises:
        ConfigError: It is not a map.
    """
    values: dict[str, str] = {}
    at = 0
    while text[at:].strip(" ,"):
        if pair := _PAIR.match(text, at):
            key, value = _content(pair[1], pair[2]), _content(pair[3], pair[4])
        elif pair := _LOOSE_PAIR.match(text, at):
            key, value = pair[1].strip(), pair[2].strip()
        else:
            raise ConfigError(f"{text!r} is not a map. Write it like 'k1:v1,k2:v2'.")
        values[key] = value
        at = pair.end()
    return values


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'" if _NEEDS_QUOTES.search(text) else text


def _content(quoted: str | None, plain: str) -> str:
    return plain.strip() if quoted is None else quoted.replace("''", "'")
