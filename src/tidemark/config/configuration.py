"""A bag of settings: text keys, values typed or as text.

The bag knows nothing of layers; which file, variable or setter wins is decided in `loader`. Plain getters
look at exactly the key they are given; `get(option)` also looks at the option's other spellings.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from tidemark.config.option import ConfigOption, parse_float, parse_int, to_text
from tidemark.config.units import parse_bool, parse_duration, parse_memory_size
from tidemark.errors import ConfigError
from tidemark.redaction import shown_value

__all__ = ["Configuration"]

D = TypeVar("D")
T = TypeVar("T")

# Inside the class `set` is a method, so the builtin needs another name in annotations.
_Keys: TypeAlias = set[str]


def _whole_number(raw: Any) -> int:
    """Parse an int; text with a unit that only a size or only a duration has is accepted too."""
    try:
        return parse_int(raw)
    except ConfigError:
        readings = set()
        for parse in (parse_duration, parse_memory_size):
            try:
                readings.add(parse(raw))
            except ConfigError:
                continue
        if len(readings) != 1:
            raise
        return readings.pop()


class Configuration:
    """Settings by key; setters return the object, equality is by content as text."""

    def __init__(self, other: Configuration | None = None) -> None:
        """Start empty, or as a copy of `other`."""
        self._values: dict[str, Any] = dict(other._values) if other is not None else {}

    @staticmethod
    def from_dict(map: Mapping[str, Any]) -> Configuration:
        """Return a configuration with these settings."""
        configuration = Configuration()
        for key, value in map.items():
            configuration._put(key, value)
        return configuration

    @staticmethod
    def parse_list_value(value: str | None) -> list[Any]:
        """Return the items of a list, written as `[a, b]` or as `a;b`; without text there are none."""
        text = (value or "").strip()
        if not (text.startswith("[") and text.endswith("]")):
            return text.split(";") if text else []
        try:
            return list(json.loads(text))
        except ValueError:
            return [item.strip().strip("\"'") for item in text[1:-1].split(",") if item.strip()]

    def _put(self, key: str, value: Any) -> Configuration:
        if not isinstance(key, str) or not key:
            raise ConfigError(f"A configuration key must be non-empty text, got {key!r}.")
        if value is None:
            raise ConfigError(f"Option {key!r} cannot be None. Use remove_config() to unset it.", key=key)
        self._values[key] = value
        return self

    def _read(self, key: str, default: D, parse: Callable[[Any], T]) -> T | D:
        raw = self._values.get(key)
        if raw is None:
            return default
        try:
            return parse(raw)
        except ConfigError as exc:
            raise ConfigError(f"Option {key!r}: {exc.message}", key=key) from exc

    def get_string(self, key: str, default_value: D) -> str | D:
        """Return the setting as text, or the default when unset."""
        return self._read(key, default_value, to_text)

    def set_string(self, key: str, value: str) -> Configuration:
        """Set text."""
        return self._put(key, to_text(value))

    def get_integer(self, key: str, default_value: D) -> int | D:
        """Return the setting as a whole number (sizes in bytes, durations in ms), or the default.

        Raises:
            ConfigError: The setting is not a number.
        """
        return self._read(key, default_value, _whole_number)

    def set_integer(self, key: str, value: int) -> Configuration:
        """Set a whole number."""
        return self._put(key, parse_int(value))

    def get_boolean(self, key: str, default_value: D) -> bool | D:
        """Return the setting as a truth value, or the default.

        Raises:
            ConfigError: The setting is neither `true` nor `false`.
        """
        return self._read(key, default_value, parse_bool)

    def set_boolean(self, key: str, value: bool) -> Configuration:
        """Set a truth value."""
        return self._put(key, parse_bool(value))

    def get_float(self, key: str, default_value: D) -> float | D:
        """Return the setting as a float, or the default.

        Raises:
            ConfigError: The setting is not a number.
        """
        return self._read(key, default_value, parse_float)

    def set_float(self, key: str, value: float) -> Configuration:
        """Set a number."""
        return self._put(key, parse_float(value))

    def get_bytearray(self, key: str, default_value: D) -> bytearray | D:
        """Return the setting as bytes (text is encoded as UTF-8), or the default."""
        return self._read(key, default_value, _to_bytearray)

    def set_bytearray(self, key: str, value: bytes | bytearray) -> Configuration:
        """Set bytes."""
        return self._put(key, bytearray(value))

    def get(self, option: ConfigOption[T], default_value: T | None = None) -> T:
        """Return the value of an option, by its newest spelling that is set.

        Args:
            option: What to read.
            default_value: Replaces the option's own default, if given.

        Raises:
            ConfigError: The setting does not fit the option.
        """
        for key in option.spellings:
            if key in self._values:
                return option.parse(self._values[key])
        return option.default if default_value is None else default_value

    def set(self, option: ConfigOption[Any], value: Any) -> Configuration:
        """Set an option after checking the value; other spellings of it are removed."""
        option.parse(value)
        for key in option.spellings:
            self._values.pop(key, None)
        return self._put(option.key, value)

    def contains(self, option: ConfigOption[Any]) -> bool:
        """Tell whether any spelling of the option is set."""
        return any(key in self._values for key in option.spellings)

    def remove(self, option: ConfigOption[Any]) -> bool:
        """Unset every spelling of the option; tell whether one was set."""
        return any([self.remove_config(key) for key in option.spellings])

    def key_set(self) -> _Keys:
        """Return the keys that are set."""
        return set(self._values)

    def contains_key(self, key: str) -> bool:
        """Tell whether exactly this key is set."""
        return key in self._values

    def remove_config(self, key: str) -> bool:
        """Unset a key; tell whether it was set."""
        return self._values.pop(key, None) is not None

    def to_dict(self) -> dict[str, str]:
        """Return all settings as text."""
        return {key: to_text(value) for key, value in self._values.items()}

    def add_all_to_dict(self, target_dict: dict[str, Any]) -> None:
        """Copy all settings, typed as they were set, into `target_dict`."""
        target_dict.update(self._values)

    def add_all(self, other: Configuration, prefix: str | None = None) -> Configuration:
        """Copy all settings of `other` over ours, each key with `prefix` in front."""
        self._values.update({(prefix or "") + key: value for key, value in other._values.items()})
        return self

    def __eq__(self, other: object) -> bool:
        """Compare by content; `"1"` and `1` are the same setting."""
        return isinstance(other, Configuration) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        """Hash by content, as equality does; do not use a configuration you still change as a key."""
        return hash(frozenset(self.to_dict().items()))

    def __copy__(self) -> Configuration:
        """Return an independent copy."""
        return Configuration(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Configuration:
        """Return an independent copy."""
        return Configuration(self)

    def __len__(self) -> int:
        """Return the number of keys set."""
        return len(self._values)

    def __bool__(self) -> bool:
        """A configuration is an object, not a container that may be falsy."""
        return True

    def __str__(self) -> str:
        """Return the settings like `{a=1, b=2}`, sorted, those whose key looks secret masked."""
        return "{" + ", ".join([f"{key}={text}" for key, text in self._shown().items()]) + "}"

    def __repr__(self) -> str:
        """Return the settings as text, those whose key looks secret masked."""
        return f"Configuration({self._shown()})"

    def _shown(self) -> dict[str, str]:
        return {key: shown_value(key, text) for key, text in sorted(self.to_dict().items())}


def _to_bytearray(raw: Any) -> bytearray:
    if isinstance(raw, bytes | bytearray):
        return bytearray(raw)
    return bytearray(to_text(raw).encode("utf-8", "surrogateescape"))
