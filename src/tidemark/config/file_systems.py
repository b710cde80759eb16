"""What the configuration says of file systems that are reached through fsspec, in fsspec's words."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from tidemark.config.configuration import Configuration
from tidemark.config.options import Options
from tidemark.errors import ConfigError
from tidemark.redaction import without_secrets

__all__ = ["file_system_options"]

_RETRIES = {"mode": "standard", "max_attempts": 8}
"""Waits of up to 1, 2, 4 ... 20 s, about half a minute in all: longer than a server needs to come back."""


def file_system_options(configuration: Configuration) -> dict[str, dict[str, Any]]:
    """Scheme -> what its file system is made with, for `paths.use_file_systems`.

    Raises:
        ConfigError: One half of a pair of keys is missing, or an address is none.
    """
    return {**_s3(configuration), "hdfs": _hdfs(configuration)}


def _s3(configuration: Configuration) -> dict[str, dict[str, Any]]:
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


def _hdfs(configuration: Configuration) -> dict[str, Any]:
    listed = (configuration.get(Options.WEBHDFS_ADDRESS) or "").split(",")
    addresses = tuple(address.strip() for address in listed if address.strip())
    for address in addresses:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
            key = Options.WEBHDFS_ADDRESS.key
            raise ConfigError(
                f"{key} '{without_secrets(address)}' is no address of a server. Give the one of the name node's web "
                "server, such as http://namenode:9870; several for name nodes that stand in for each other.",
                key=key,
            )
    return {
        "addresses": addresses,
        "user": configuration.get(Options.WEBHDFS_USER),
        "token": configuration.get(Options.WEBHDFS_TOKEN),
    }
