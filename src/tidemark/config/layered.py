"""What the live config objects of an environment have in common: setters laid over a configuration."""

from __future__ import annotations

from typing import Any, TypeVar

from tidemark.config.configuration import Configuration
from tidemark.config.option import ConfigOption
from tidemark.errors import ConfigError

__all__ = ["LayeredConfig"]

T = TypeVar("T")


class LayeredConfig:
    """Typed access to some options: what was set on this object, else the configuration, else the default."""

    _options: tuple[ConfigOption[Any], ...] = ()

    def __init__(self, configuration: Configuration | None = None) -> None:
        """Start with nothing set over `configuration` (file, variables and user configuration merged).

        Raises:
            ConfigError: A value in `configuration` does not fit its option.
        """
        self._base = Configuration(configuration)
        self._own = Configuration()
        self._check(self._base)

    @property
    def programmatic(self) -> Configuration:
        """What was set through this object, as the top layer of `effective_configuration`."""
        return Configuration(self._own)

    def configure(self, configuration: Configuration) -> None:
        """Apply the options present in `configuration`; others keep their value.

        Raises:
            ConfigError: A value does not fit; nothing was applied.
        """
        self._check(configuration)
        for option in self._options:
            if configuration.contains(option):
                self._own.set(option, configuration.get(option))

    def _check(self, configuration: Configuration) -> None:
        for option in self._options:
            configuration.get(option)

    def _get(self, option: ConfigOption[T]) -> T:
        return (self._own if self._own.contains(option) else self._base).get(option)

    def _set(self, option: ConfigOption[Any], value: Any) -> None:
        self._own.set(option, value)


def require_instance(value: object, kind: type, what: str) -> None:
    """Raise `TypeError` unless `value` is of `kind`."""
    if not isinstance(value, kind):
        raise TypeError(f"{what} must be a {kind.__name__}, got {value!r} ({type(value).__name__}).")


def require_whole(value: object, what: str, minimum: int, maximum: int | None = None) -> int:
    """Return `value` if it is a whole number within limits.

    Raises:
        TypeError: Not an `int`.
        ConfigError: Out of range.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} must be an int, got {value!r} ({type(value).__name__}).")
    if value < minimum or (maximum is not None and value > maximum):
        limit = f"between {minimum} and {maximum}" if maximum is not None else f"at least {minimum}"
        raise ConfigError(f"{what} must be {limit}, got {value}.")
    return value
