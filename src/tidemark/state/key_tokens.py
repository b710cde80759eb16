"""Tokens: what stands for a key inside a slot, and the ways between tokens, keys, bytes and columns.

The token of a key is the normalised key itself where Python equality and byte equality agree
(`TypeSerializer.identity_key`), else its canonical bytes; why is told in `docs/decisions/0002-keys-as-tokens.md`.
Map keys of map and broadcast state have tokens by the same rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidemark.state.serializers.registry import serializer_for
from tidemark.types.typeinfo import Types

if TYPE_CHECKING:
    from tidemark.state.serializers.base import TypeSerializer
    from tidemark.types.typeinfo import TypeInformation

__all__ = ["KeyTokens", "key_serializer_for"]


def key_serializer_for(key_type: TypeInformation | None) -> TypeSerializer[Any]:
    """Serializer of keys of a declared type; keys that have none are pickled."""
    return serializer_for(Types.PICKLED_BYTE_ARRAY() if key_type is None else key_type)


class KeyTokens:
    """The tokens of the keys one serializer writes. A function that would change nothing is None.

    Attributes:
        serializer: Writes the keys.
        are_keys: Whether tokens are (normalised) keys; else they are bytes.
        of_key: From a user's key to its token.
        to_key: From a token to the key.
        to_bytes: From a token to the canonical bytes of its key.
        from_bytes: From canonical bytes to the token.
    """

    __slots__ = ("are_keys", "from_bytes", "of_key", "serializer", "to_bytes", "to_key")

    of_key: Callable[[Any], Any] | None
    to_key: Callable[[Any], Any] | None
    to_bytes: Callable[[Any], bytes] | None
    from_bytes: Callable[[bytes], Any] | None

    def __init__(self, serializer: TypeSerializer[Any]) -> None:
        """Decide which form tokens have."""
        self.serializer = serializer
        self.are_keys = serializer.identity_key
        if self.are_keys:
            self.of_key, self.to_key = serializer.normalizer(), None
            self.to_bytes, self.from_bytes = serializer.key_bytes, serializer.from_bytes
        else:
            self.of_key, self.to_key = serializer.key_bytes, serializer.from_bytes
            self.to_bytes = self.from_bytes = None

    def __reduce__(self) -> tuple[type[KeyTokens], tuple[TypeSerializer[Any]]]:
        # The functions are derived, and normalizers are closures, which plain pickle refuses.
        return KeyTokens, (self.serializer,)

    def of(self, keys: list[Any]) -> list[Any]:
        """Tokens of users' keys."""
        return _each(self.of_key, keys)

    def of_stored(self, keys: list[Any]) -> list[Any]:
        """Tokens of keys that a serializer has returned: these are normalised already."""
        return keys if self.are_keys else _each(self.of_key, keys)

    def keys(self, tokens: Sequence[Any]) -> Sequence[Any]:
        """Keys behind tokens."""
        return tokens if self.to_key is None else list(map(self.to_key, tokens))

    def all_bytes(self, tokens: list[Any]) -> list[bytes]:
        """Canonical bytes of the keys behind tokens."""
        return _each(self.to_bytes, tokens)

    def arrow_type(self) -> pa.DataType:
        """Type of a column of tokens."""
        return self.serializer.arrow_type() if self.are_keys else pa.binary()

    def to_arrow(self, tokens: list[Any]) -> pa.Array:
        """Column of tokens."""
        return self.serializer.to_arrow(tokens) if self.are_keys else pa.array(tokens, pa.binary())

    def of_key_column(self, column: pa.Array) -> pa.Array:
        """Column of the tokens of a column of keys, as snapshots hold it."""
        if self.are_keys:
            return column.cast(self.arrow_type())
        return self.to_arrow(self.of_stored(self.serializer.from_arrow(column)))

    def key_column(self, column: pa.Array) -> pa.Array:
        """Column of the keys behind a column of tokens."""
        return column if self.are_keys else self.serializer.to_arrow(list(self.keys(column.to_pylist())))

    def from_arrow(self, column: pa.Array) -> list[Any]:
        """Tokens of a column that `to_arrow` made."""
        return self.serializer.from_arrow(column) if self.are_keys else column.to_pylist()


def _each(function: Callable[[Any], Any] | None, values: list[Any]) -> list[Any]:
    return values if function is None else list(map(function, values))
