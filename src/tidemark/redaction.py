"""Which settings are secrets: their values are shown to nobody, in no page, answer or log."""

from __future__ import annotations

import re

__all__ = ["is_secret", "shown_value", "without_secrets"]

_PARTS = (
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "api-key",
    "access-key",
    "accesskey",
    "account-key",
    "accountkey",
    "private-key",
    "auth-params",
    "service-key",
    "basic-auth",
    "jaas-config",
    "http-headers",
    "credential",
)
_HIDDEN = "******"
_IN_ADDRESS = re.compile(r"(://[^/@\s:]*):[^/@\s]+@")
"""`scheme://user:password@host`."""
_NAMES = (
    r"(?:password|passwd|passphrase|secret(?:[-_.]?key)?|token|api[-_.]?key|access[-_.]?key|account[-_.]?key)"
)
_IN_TEXT = re.compile(
    rf"({_NAMES}[\"']?\s*[=:]\s*[\"']?|\bpwd=|--?{_NAMES}\s+(?!-)|[?&](?:sig|x-amz-signature|x-amz-credential)="
    r"|\bauthorization[\"']?\s*[=:]\s*[\"']?(?:(?:basic|bearer|digest|negotiate)\s+)?)"
    r"[^\s\"'&;,)}\]]+",
    re.IGNORECASE,
)
"""`password=...`, as in addresses of databases, command lines, headers and configurations that are printed."""


def is_secret(key: str) -> bool:
    """Whether the name of a key says that its value is a secret."""
    plain = key.lower().replace(".", "-").replace("_", "-")
    return any(part in plain for part in _PARTS)


def shown_value(key: str, value: str) -> str:
    """The value, with stars in place of a secret."""
    return _HIDDEN if value and is_secret(key) else without_secrets(value)


def without_secrets(text: str) -> str:
    """A text with stars in place of the passwords that it names as such."""
    return _IN_TEXT.sub(rf"\1{_HIDDEN}", _IN_ADDRESS.sub(rf"\1:{_HIDDEN}@", text))
