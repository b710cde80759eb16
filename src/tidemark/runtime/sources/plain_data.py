"""Data of users that snapshots store as it is: what they may be made of."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["plain"]

_SIMPLE = (bool, int, float, str, bytes)


def plain(value: Any, what: str) -> Any:
    """What a snapshot gives back of user data, so that nobody is surprised by it only after a failure.

    Raises:
        TypeError: It is no plain data; `what` names it.
    """
    _check_plain(value, what)
    try:
        return msgspec.msgpack.decode(msgspec.msgpack.encode(value))
    except (OverflowError, RecursionError) as exc:
        raise TypeError(f"{what} cannot be stored in a checkpoint: {exc}.") from exc


def _check_plain(value: Any, what: str) -> None:
    if value is None or isinstance(value, _SIMPLE):
        return
    if isinstance(value, list | tuple):
        for item in value:
            _check_plain(item, what)
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str | int):
                raise TypeError(f"{what} has a dict key {key!r}; keys are text or whole numbers.")
            _check_plain(item, what)
    else:
        raise TypeError(
            f"{what} holds a {type(value).__name__}, which a checkpoint does not store as it is. Use plain data: "
            "None, numbers, text, bytes, and lists and dicts of them."
        )
