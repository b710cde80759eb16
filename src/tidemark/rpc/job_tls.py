"""Which TLS to speak to a job of another process."""

from __future__ import annotations

from dataclasses import replace

from tidemark.config import Options, effective_configuration
from tidemark.config.tls import internal_tls
from tidemark.jobs import JobRecord
from tidemark.tls import TlsFiles

__all__ = ["tls_towards"]


def tls_towards(record: JobRecord | None) -> TlsFiles | None:
    """The files of the client side: as this process is configured, else with the files that a job of this machine uses.

    The password of the job's key is not in its record: `security.ssl.internal.key-password` of this process tells it.

    Args:
        record: What the registry knows of the job; None if it runs elsewhere.

    Raises:
        ConfigError: The configuration of this process cannot be.
    """
    if record is not None and record.tls is None:
        return None
    configuration = effective_configuration()
    configured = internal_tls(configuration)
    if configured is not None or record is None or record.tls is None:
        return configured
    return replace(record.tls, password=configuration.get(Options.SSL_INTERNAL_KEY_PASSWORD))
