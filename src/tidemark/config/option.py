"""One configuration option (keys, type, default, meaning) and the builder that declares it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from typing import Any, Generic, TypeAlias, TypeVar

from tidemark.config.maps import map_text, parse_map_text
from tidemark.config.units import parse_bool, parse_duration, parse_memory_size
from tidemark.errors import ConfigError
from tidemark.types.time import to_millis

__all__ = ["ConfigOption", "ConfigOptions", "OptionBuilder", "TypedOptionBuilder", "to_text"]

T = TypeVar("T")
E = TypeVar("E", bound=Enum)


@dataclass(frozen=True, slots=True)
class ConfigOption(Generic[T]):
    """A typed key; `T` includes `None` when the option has no default.

    Attributes:
        key: The name used in documents.
        type_name: What the value is, for documents: `string`, `duration` and so on.
        parse_raw: Turns text (or an already typed value) into `T`; raises `ConfigError`.
        default: Value when no spelling of the key is set.
        default_text: The default as one would write it in a file; `None` without default.
        description: One line.
        synonyms: Newer spellings, oldest first; a newer spelling wins over an older one.
        minimum: Smallest legal number, if limited.
        maximum: Largest legal number, if limited.
        ineffective: Why setting the option changes nothing here; `None` for all that do something.
    """

    key: str
    type_name: str
    parse_raw: Callable[[Any], Any]
    default: T
    default_text: str | None = None
    description: str = ""
    synonyms: tuple[str, ...] = ()
    minimum: int | None = None
    maximum: int | None = None
    ineffective: str | None = None

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every accepted key, the one that wins first."""
        return (*reversed(self.synonyms), self.key)

    def has_default_value(self) -> bool:
        """Tell whether the option has a default."""
        return self.default is not None

    def with_description(self, description: str) -> ConfigOption[T]:
        """Return the option with a description."""
        return replace(self, description=description)

    def with_synonyms(self, *newer_keys: str) -> ConfigOption[T]:
        """Return the option with newer spellings, oldest first."""
        return replace(self, synonyms=newer_keys)

    def within(self, minimum: int | None = None, maximum: int | None = None) -> ConfigOption[T]:
        """Return the option with limits on its number."""
        return replace(self, minimum=minimum, maximum=maximum)

    def no_effect(self, reason: str) -> ConfigOption[T]:
        """Return the option marked as one that is known and checked, but changes nothing."""
        return replace(self, ineffective=reason)

    def parse(self, raw: Any) -> T:
        """Turn text or a typed value into a checked value.

        Raises:
            ConfigError: Wrong type or out of range; the message names the key.
        """
        try:
            value = self.parse_raw(raw)
        except ConfigError as exc:
            raise ConfigError(f"Option {self.key!r}: {exc.message}", key=self.key) from exc
        if self.minimum is not None and value < self.minimum:
            raise ConfigError(
                f"Option {self.key!r} must be at least {self.minimum}, got {raw!r}.", key=self.key
            )
        if self.maximum is not None and value > self.maximum:
            raise ConfigError(
                f"Option {self.key!r} must be at most {self.maximum}, got {raw!r}.", key=self.key
            )
        parsed: T = value
        return parsed


def to_text(value: object) -> str:
    """Return a value as it would be written in a configuration file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, bytes | bytearray):
        # Every byte sequence survives the way to text and back, and ASCII stays readable.
        return bytes(value).decode("utf-8", "surrogateescape")
    if isinstance(value, timedelta):
        return f"{to_millis(value)} ms"
    if isinstance(value, list | tuple | set | frozenset):
        return ",".join(to_text(v) for v in value)
    if isinstance(value, dict):
        return map_text({str(k): to_text(v) for k, v in value.items()})
    return str(value)


def parse_int(value: object) -> int:
    """Return a whole number from text or `int`."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ConfigError(f"{value!r} is not a whole number.")
    try:
        return int(value)
    except ValueError:
        raise ConfigError(f"{value!r} is not a whole number.") from None


def parse_float(value: object) -> float:
    """Return a number from text, `int` or `float`."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ConfigError(f"{value!r} is not a number.")
    try:
        return float(value)
    except ValueError:
        raise ConfigError(f"{value!r} is not a number.") from None


def _parse_enum(enum_class: type[E]) -> Callable[[Any], E]:
    def parse(value: Any) -> E:
        if isinstance(value, enum_class):
            return value
        name = to_text(value).strip().upper().replace("-", "_")
        if name not in enum_class.__members__:
            choices = ", ".join(enum_class.__members__)
            raise ConfigError(f"{value!r} is not one of {choices}.")
        return enum_class[name]

    return parse


def _parse_map(value: Any) -> dict[str, str]:
    if isinstance(value, dict):
        return {str(k): to_text(v) for k, v in value.items()}
    return parse_map_text(str(value))


@dataclass(frozen=True, slots=True)
class TypedOptionBuilder(Generic[T]):
    """Second step of a declaration: the type is known, the default is not."""

    key: str
    type_name: str
    parse_raw: Callable[[Any], T]

    def default_value(self, value: T | str) -> ConfigOption[T]:
        """Finish with a default, given as a value or as one would write it in a file."""
        parsed = self.parse_raw(value)
        return ConfigOption(self.key, self.type_name, self.parse_raw, parsed, to_text(value))

    def no_default_value(self) -> ConfigOption[T | None]:
        """Finish without a default; reading the option yields `None` when unset."""
        return ConfigOption(self.key, self.type_name, self.parse_raw, None)


@dataclass(frozen=True, slots=True)
class OptionBuilder:
    """First step of a declaration: only the key is known."""

    key: str

    def string_type(self) -> TypedOptionBuilder[str]:
        """Text."""
        return TypedOptionBuilder(self.key, "string", to_text)

    def boolean_type(self) -> TypedOptionBuilder[bool]:
        """`true` or `false`."""
        return TypedOptionBuilder(self.key, "boolean", parse_bool)

    def int_type(self) -> TypedOptionBuilder[int]:
        """A whole number."""
        return TypedOptionBuilder(self.key, "int", parse_int)

    def long_type(self) -> TypedOptionBuilder[int]:
        """A whole number."""
        return TypedOptionBuilder(self.key, "long", parse_int)

    def float_type(self) -> TypedOptionBuilder[float]:
        """A number."""
        return TypedOptionBuilder(self.key, "float", parse_float)

    def double_type(self) -> TypedOptionBuilder[float]:
        """A number."""
        return TypedOptionBuilder(self.key, "double", parse_float)

    def duration_type(self) -> TypedOptionBuilder[int]:
        """A length of time; the value is milliseconds."""
        return TypedOptionBuilder(self.key, "duration", parse_duration)

    def memory_type(self) -> TypedOptionBuilder[int]:
        """A size; the value is bytes."""
        return TypedOptionBuilder(self.key, "memory", parse_memory_size)

    def map_type(self) -> TypedOptionBuilder[dict[str, str]]:
        """Pairs, written `k1:v1,k2:v2`."""
        return TypedOptionBuilder(self.key, "map", _parse_map)

    def enum_type(self, enum_class: type[E]) -> TypedOptionBuilder[E]:
        """A member of `enum_class`, written by name; case and dashes do not matter."""
        return TypedOptionBuilder(self.key, "enum", _parse_enum(enum_class))


_Builder: TypeAlias = OptionBuilder  # the class below has an attribute of that name, which hides the type


class ConfigOptions:
    """Where the declaration of an option starts."""

    OptionBuilder = OptionBuilder
    TypedConfigOptionBuilder = TypedOptionBuilder

    @staticmethod
    def key(key: str) -> _Builder:
        """Start an option with this key.

        Raises:
            ConfigError: The key is empty.
        """
        if not key:
            raise ConfigError("A configuration key must not be empty.")
        return _Builder(key)
