"""From a user's key to the token that stands for it inside a slot."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidemark.state.serializers.registry import serializer_for
from tidemark.types.typeinfo import Types

if TYPE_CHECKING:
    from tidemark.state.serializers.base import TypeSerializer
    from tidemark.types.typeinfo import TypeInformation

__all__ = ["token_maker", "type_or_pickled"]


def type_or_pickled(type_info: TypeInformation | None) -> TypeSerializer[Any]:
    """Serializer of a declared type; what has none is pickled."""
    return serializer_for(Types.PICKLED_BYTE_ARRAY() if type_info is None else type_info)


def token_maker(serializer: TypeSerializer[Any]) -> Callable[[Any], Any]:
    """The function from key to token: the normalised key itself, or its canonical bytes."""
    if not serializer.identity_key:
        return serializer.key_bytes
    normalize = serializer.normalizer()
    return normalize if normalize is not None else _same


def _same(key: Any) -> Any:
    return key
