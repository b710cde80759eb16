"""Descriptions of native cuts: JSON with the number of its format, read as what somebody else may have written."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from tidemark.errors import RestoreError

__all__ = ["read_description"]

_Read = TypeVar("_Read")


def read_description(data: bytes, readable: int, what: str, parse: Callable[[Any], _Read]) -> _Read:
    """What a description says.

    Args:
        data: Its bytes.
        readable: The format that this release reads.
        what: It describes, for messages: "a native RocksDB snapshot".
        parse: Makes something of the fields; whatever it raises about them means damage.

    Raises:
        RestoreError: The bytes are of a newer format or damaged.
    """
    try:
        fields = json.loads(data)
        version = fields["format"]
        if version == readable:
            return parse(fields)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RestoreError(f"The description of {what} is damaged: {error}") from error
    raise RestoreError(
        f"{what[0].upper()}{what[1:]} has format {version}, this release reads {readable}. "
        "Restore with the release that wrote it, or from a savepoint."
    )
