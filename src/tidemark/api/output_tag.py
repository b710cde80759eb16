"""The name (and type) of a side output."""

from __future__ import annotations

from typing import Any

from tidemark.errors import ConfigError
from tidemark.types.typeinfo import TypeInformation, to_type_info

__all__ = ["OutputTag"]


class OutputTag:
    """Names a side output. Two tags are the same output exactly when their ids are equal."""

    __slots__ = ("tag_id", "type_info")

    def __init__(self, tag_id: str, type_info: Any = None) -> None:
        """Create a tag.

        Raises:
            ConfigError: The id is empty or None.
            TypeError: The id is no `str`, or `type_info` describes no type.
        """
        if not tag_id:
            raise ConfigError("An OutputTag needs a tag_id that is neither None nor empty.")
        if not isinstance(tag_id, str):
            raise TypeError(f"The tag_id of an OutputTag must be a str, not {type(tag_id).__name__}.")
        self.tag_id = tag_id
        self.type_info: TypeInformation | None = None if type_info is None else to_type_info(type_info)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OutputTag) and self.tag_id == other.tag_id

    def __hash__(self) -> int:
        return hash(self.tag_id)

    def __repr__(self) -> str:
        return f"OutputTag({self.tag_id!r})"
