"""Which settings are secrets: their values are shown to nobody, in no page, answer or log."""

from __future__ import annotations

__all__ = ["is_secret", "shown_value"]

_PARTS = (
    "password",
    "secret",
    "token",
    "apikey",
    "api-key",
    "access.key",
    "access-key",
    "account.key",
    "auth-params",
    "service-key",
    "basic-auth",
    "jaas.config",
    "http-headers",
    "credential",
)
_HIDDEN = "******"


def is_secret(key: str) -> bool:
    """Whether the name of a key says that its value is a secret."""
    lowered = key.lower()
    return any(part in lowered for part in _PARTS)


def shown_value(key: str, value: str) -> str:
    """The value, or stars in place of a secret."""
    return _HIDDEN if value and is_secret(key) else value
