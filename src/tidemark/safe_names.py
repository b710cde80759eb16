"""Names and paths out of files that somebody else may have written: whether they stay where they belong.

A snapshot is data, and may come from a stranger. What it says about files is joined to directories of ours, so
each such text passes through here before it is used. Nothing is repaired: a text is fine as it is, or refused.
"""

from __future__ import annotations

__all__ = ["inner_path", "plain_name"]

_LONGEST_NAME = 255
_LONGEST_PATH = 4096


def plain_name(text: str) -> str:
    """`text`, if it names something directly inside a directory, whichever that is.

    Raises:
        ValueError: It is empty, too long, `.` or `..`, or has separators, control characters or lone surrogates.
    """
    if text in ("", ".", ".."):
        raise ValueError(f"{text!r} is no name of a file")
    if "/" in text or "\\" in text:
        raise ValueError(f"{text[:200]!r} is a path where a plain name belongs")
    if any(not char.isprintable() for char in text):
        raise ValueError(f"{text[:200]!r} has characters that no name of ours has")
    if len(text.encode()) > _LONGEST_NAME:
        raise ValueError(f"{text[:40]!r}... is longer than {_LONGEST_NAME} bytes")
    return text


def inner_path(text: str) -> str:
    """`text`, if it is a relative path with `/` that cannot leave the directory it is joined to.

    Raises:
        ValueError: It is absolute or a URI, has empty, `.` or `..` parts, or parts that are no plain names.
    """
    if len(text) > _LONGEST_PATH:
        raise ValueError(f"{text[:40]!r}... is longer than {_LONGEST_PATH} characters")
    for part in text.split("/"):
        try:
            plain_name(part)
        except ValueError as exc:
            raise ValueError(f"{text[:200]!r} is no path inside of a directory: {exc}") from exc
    return text
