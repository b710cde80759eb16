"""What the configuration says of file systems that are reached through fsspec, in fsspec's words."""

from __future__ import annotations

from typing import Any

from tidemark.config.configuration import Configuration
from tidemark.config.options import Options
from tidemark.errors import ConfigError

__all__ = ["file_system_options"]

_RETRIES = {"mode": "standard", "max_attempts": 8}
"""Waits of up to 1, 2, 4 ... 20 s, about half a minute in all: longer than a server needs to come back."""


def file_system_options(configuration: Configuration) -> dict[str, dict[str, Any]]:
    """Scheme -> what its file system is made with, for `paths.use_file_systems`.

    Raises:
        ConfigError: One half of a pair of keys is missing.
    """
    key, secret = configuration.get(Options.S3_ACCESS_KEY), configuration.get(Options.S3_SECRET_KEY)
    if (key is None) != (secret is None):
        given, missing = Options.S3_ACCESS_KEY.key, Options.S3_SECRET_KEY.key
        if key is None:
            given, missing = missing, given
        raise ConfigError(
            f"{given} is set without {missing}. Set both, or none to use what the machine has.", key=missing
        )
    client: dict[str, Any] = {"retries": _RETRIES}
    if configuration.get(Options.S3_PATH_STYLE):
        client["s3"] = {"addressing_style": "path"}
    options: dict[str, Any] = {
        "key": key,
        "secret": secret,
        "endpoint_url": configuration.get(Options.S3_ENDPOINT),
        "client_kwargs": {"region_name": configuration.get(Options.S3_REGION)},
        "config_kwargs": client,
    }
    return dict.fromkeys(("s3", "s3a"), options)
