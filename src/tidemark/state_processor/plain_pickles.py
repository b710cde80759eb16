"""Pickles of plain data, read without running anything.

A pickle is a program that may call whatever can be imported. One of plain data (numbers, text, bytes, None and
tuples, lists, dictionaries and sets of them) calls nothing: it can be read safely from anybody. A pickle that
names any class or function is not read; all that is said of it are its bytes.
"""

from __future__ import annotations

import io
import pickle
from typing import Any, NoReturn

__all__ = ["StoredPickle", "plain_or_bytes"]

_SETS = {("builtins", "set"): set, ("builtins", "frozenset"): frozenset}
"""Keys have sets as calls of these, see `tidemark.state.serializers.pickled`."""


class StoredPickle:
    """A pickled value to compare: equal if the bytes are, or both are equal plain data."""

    __slots__ = ("_data",)

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StoredPickle):
            return NotImplemented
        return self._data == other._data or _same_plain(self._data, other._data)

    __hash__ = None  # type: ignore[assignment]


def plain_or_bytes(data: bytes) -> Any:
    """The value, if it is plain data, else the pickle as it is."""
    try:
        return _Plain(io.BytesIO(data)).load()
    except Exception:
        # A class is needed, or the bytes are damaged: damaged pickles raise anything.
        return data


def _same_plain(left: bytes, right: bytes) -> bool:
    try:
        return bool(plain_or_bytes(left) == plain_or_bytes(right))
    except RecursionError:
        return False


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _SETS:
            return _SETS[module, name]
        raise pickle.UnpicklingError(f"{module}.{name} is no plain data")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise pickle.UnpicklingError("a reference is no plain data")
