"""Port options: `9123`, `50100-50200`, `50100-50200,50300-50400,51234`."""

from __future__ import annotations

import re

from tidemark.errors import ConfigError

__all__ = ["check_port", "parse_port_range"]

_PART = re.compile(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?\Z")
_LAST = 65535


def check_port(port: int, what: str = "port") -> int:
    """Return `port` if it is one.

    Raises:
        ConfigError: It is not an int in 0..65535.
    """
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= _LAST:
        raise ConfigError(f"The {what} must be an int in 0..{_LAST}, not {port!r}.")
    return port


def parse_port_range(text: str) -> list[int]:
    """The ports of a port option in the order in which they are tried, each once.

    Raises:
        ConfigError: The text is not a port, a range or a list of these.
    """
    ports: dict[int, None] = {}
    for part in str(text).split(","):
        match = _PART.match(part)
        if match is None:
            raise ConfigError(
                f"'{text}' is not a port option: '{part.strip()}' is neither a port nor a range. "
                "Write for example 9123, 50100-50200 or 50100-50200,51234."
            )
        first = check_port(int(match[1]))
        last = check_port(int(match[2])) if match[2] else first
        if last < first:
            raise ConfigError(f"'{text}' is not a port option: the range '{part.strip()}' runs backwards.")
        ports.update(dict.fromkeys(range(first, last + 1)))
    return list(ports)
