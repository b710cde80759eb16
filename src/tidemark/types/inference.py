"""From Python annotations to type declarations, and back to a stable text.

`infer_type` chooses the type of a dataclass field from its annotation. `declared_name` writes an
annotation in one canonical form, so that `Optional[int]` and `int | None` compare as the same
declaration in every Python version; that text is stored with state and never changes its form.
A dataclass is known in state by its qualified name, or by the name `written_as` gave it.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import types
import typing
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from tidemark.errors import ConfigError
from tidemark.types.time import Instant

if TYPE_CHECKING:
    from tidemark.types.typeinfo import TypeInformation

__all__ = [
    "FieldDeclaration",
    "declared_fields",
    "declared_name",
    "infer_type",
    "qualified_name",
    "state_name",
    "written_as",
]

_C = TypeVar("_C")
_LISTS = (list, Sequence, MutableSequence)
_MAPS = (dict, Mapping, MutableMapping)
_UNRESOLVED = (NameError, AttributeError, TypeError)


def qualified_name(cls: type[Any]) -> str:
    """Return `module.QualName`, the name under which a class can be imported again."""
    return f"{cls.__module__}.{cls.__qualname__}"


def written_as(name: str) -> Callable[[type[_C]], type[_C]]:
    """Decorate a dataclass that is known in state by a name other than its own. Beyond Flink.

    A class that was renamed or moved keeps reading its old state under its old name, and goes on writing
    it. A class kept only to read an old form of another one (see `StateDescriptor.migrate_from`) has the
    other's name.

    Args:
        name: `module.QualName` as it stands in the state.

    Raises:
        ConfigError: The name is no dotted name.
    """
    if (
        not isinstance(name, str)
        or not all(part.isidentifier() for part in name.split("."))
        or "." not in name
    ):
        raise ConfigError(f"written_as needs the 'module.Class' a dataclass was written as, not {name!r}.")

    def mark(cls: type[_C]) -> type[_C]:
        cls.__tidemark_written_as__ = name  # type: ignore[attr-defined]
        return cls

    return mark


def state_name(cls: type[Any]) -> str:
    """Return the name of a dataclass in state: what `written_as` says, else the qualified name."""
    # Not inherited: a subclass is another class.
    name: str = vars(cls).get("__tidemark_written_as__") or qualified_name(cls)
    return name


@dataclass(frozen=True)
class FieldDeclaration:
    """One field of a dataclass: its name, its type and its annotation in canonical text."""

    name: str
    type_info: TypeInformation
    declared: str


def declared_fields(cls: type[Any]) -> tuple[FieldDeclaration, ...]:
    """Return the fields of a dataclass in order, with the types inferred from their annotations."""
    hints = _hints(cls)
    declarations = []
    for field in dataclasses.fields(cls):
        hint = hints.get(field.name, field.type)
        declarations.append(FieldDeclaration(field.name, infer_type(hint, owner=cls), declared_name(hint)))
    return tuple(declarations)


def _hints(cls: type[Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls, include_extras=True)
    except _UNRESOLVED:
        # A class that travelled by value has lost its module: evaluate what the usual imports explain,
        # field by field, and leave the rest as text (then pickled).
        return {field.name: _evaluate(field, cls) for field in dataclasses.fields(cls)}


def _evaluate(field: dataclasses.Field[Any], cls: type[Any]) -> Any:
    holder = type("holder", (), {"__annotations__": {field.name: field.type}})
    names: dict[str, Any] = {**vars(typing), **vars(datetime), **vars(decimal)}
    names.update(typing=typing, decimal=decimal, Instant=Instant)
    names[cls.__name__] = cls
    # "datetime" is either the module or the class in it, depending on how it was imported.
    for known in ({**names, "datetime": datetime}, names):
        try:
            return typing.get_type_hints(holder, known, include_extras=True)[field.name]
        except _UNRESOLVED:
            continue
    return field.type


def infer_type(hint: Any, owner: type[Any] | None = None) -> TypeInformation:
    """Return the type declaration for an annotation; what has none of its own is pickled.

    `Annotated[int, Types.INT()]` overrides the choice.

    Args:
        hint: The evaluated annotation.
        owner: The dataclass the annotation belongs to. A field that refers to its own class is pickled,
            because a type cannot contain itself.
    """
    from tidemark.types.typeinfo import TypeInformation, Types

    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        for note in hint.__metadata__:
            if isinstance(note, TypeInformation):
                return note
        return infer_type(hint.__origin__, owner)
    if isinstance(hint, typing.NewType):
        return infer_type(hint.__supertype__, owner)
    simple = _SIMPLE.get(hint) if isinstance(hint, type) else None
    if simple is not None:
        return typing.cast(TypeInformation, getattr(Types, simple)())
    if hint is bytes:
        return Types.PRIMITIVE_ARRAY(Types.BYTE())
    args = typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        # Every field may be None, so Optional[T] is stored as T.
        rest = [arg for arg in args if arg is not type(None)]
        if len(rest) == 1 and len(rest) < len(args):
            return infer_type(rest[0], owner)
        return Types.PICKLED_BYTE_ARRAY()
    if origin in _LISTS and len(args) == 1:
        return Types.LIST(infer_type(args[0], owner))
    if origin in _MAPS and len(args) == 2:
        return Types.MAP(infer_type(args[0], owner), infer_type(args[1], owner))
    if origin is tuple and args and Ellipsis not in args:
        return Types.TUPLE([infer_type(arg, owner) for arg in args])
    if _is_stateful_dataclass(hint) and hint is not owner and not _reaches(hint, owner):
        return Types.DATACLASS(hint)
    return Types.PICKLED_BYTE_ARRAY()


_SIMPLE: dict[Any, str] = {
    bool: "BOOLEAN",
    int: "LONG",
    float: "DOUBLE",
    str: "STRING",
    decimal.Decimal: "BIG_DEC",
    datetime.date: "SQL_DATE",
    datetime.time: "SQL_TIME",
    datetime.datetime: "SQL_TIMESTAMP",
    Instant: "INSTANT",
}


def _is_stateful_dataclass(hint: Any) -> bool:
    return (
        isinstance(hint, type)
        and dataclasses.is_dataclass(hint)
        and hint is not Instant
        and "<locals>" not in hint.__qualname__
    )


def _reaches(start: type[Any], target: type[Any] | None) -> bool:
    """Whether dataclass `start` refers, through any chain of fields, to `target`."""
    seen: set[Any] = {start}
    stack: list[Any] = list(_hints(start).values())
    while stack:
        hint = stack.pop()
        if hint is target and target is not None:
            return True
        stack.extend(typing.get_args(hint))
        if _is_stateful_dataclass(hint) and hint not in seen:
            seen.add(hint)
            stack.extend(_hints(hint).values())
    return False


def declared_name(hint: Any) -> str:
    """Return the canonical text of an annotation, equal for equal declarations."""
    if isinstance(hint, str):
        return hint
    if hint is None or hint is type(None):
        return "None"
    if hint is Ellipsis:
        return "..."
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        notes = ", ".join([repr(note) for note in hint.__metadata__])
        return f"Annotated[{declared_name(hint.__origin__)}, {notes}]"
    if origin in (typing.Union, types.UnionType):
        return " | ".join(sorted([declared_name(arg) for arg in args]))
    if origin is not None:
        name = origin.__qualname__ if isinstance(origin, type) else str(origin)
        shown = [declared_name(arg) if not isinstance(arg, list) else repr(arg) for arg in args]
        return f"{name}[{', '.join(shown)}]" if shown else name
    if isinstance(hint, type):
        return hint.__qualname__ if hint.__module__ == "builtins" else state_name(hint)
    return str(hint)
