"""What `security.ssl.*` asks for, as the files and rules of TLS."""

from __future__ import annotations

from tidemark.config.configuration import Configuration
from tidemark.config.option import ConfigOption
from tidemark.config.options import Options
from tidemark.errors import ConfigError
from tidemark.tls import TlsFiles

__all__ = ["internal_tls", "rest_tls"]


def internal_tls(configuration: Configuration) -> TlsFiles | None:
    """TLS between the processes of a job and those who ask them; None if it is off. Nothing is read yet.

    Raises:
        ConfigError: A file or rule is missing or cannot be.
    """
    if not configuration.get(Options.SSL_INTERNAL_ENABLED):
        return None
    _refuse_stores(configuration, Options.SSL_INTERNAL_KEYSTORE_TYPE, Options.SSL_INTERNAL_TRUSTSTORE_TYPE)
    return _files(
        configuration,
        "security.ssl.internal.",
        Options.SSL_INTERNAL_KEYSTORE,
        Options.SSL_INTERNAL_KEY,
        Options.SSL_INTERNAL_KEY_PASSWORD,
        Options.SSL_INTERNAL_TRUSTSTORE,
        Options.SSL_INTERNAL_FINGERPRINT,
    )


def rest_tls(configuration: Configuration) -> TlsFiles | None:
    """TLS of the web server; None if it is off. Nothing is read yet.

    Raises:
        ConfigError: A file or rule is missing or cannot be.
    """
    enabled = configuration.get(Options.SSL_REST_ENABLED)
    if not (enabled or (enabled is None and configuration.get(Options.SSL_REST_KEYSTORE))):
        return None
    _refuse_stores(configuration, Options.SSL_REST_KEYSTORE_TYPE, Options.SSL_REST_TRUSTSTORE_TYPE)
    return _files(
        configuration,
        "security.ssl.rest.",
        Options.SSL_REST_KEYSTORE,
        Options.SSL_REST_KEY,
        Options.SSL_REST_KEY_PASSWORD,
        Options.SSL_REST_TRUSTSTORE,
        Options.SSL_REST_FINGERPRINT,
    )


def _files(
    configuration: Configuration,
    prefix: str,
    keystore: ConfigOption[str | None],
    key: ConfigOption[str | None],
    password: ConfigOption[str | None],
    truststore: ConfigOption[str | None],
    fingerprint: ConfigOption[str | None],
) -> TlsFiles:
    certificate = configuration.get(keystore)
    if not certificate:
        raise ConfigError(
            f"{prefix}enabled is on, but {keystore.key} names no PEM file with a certificate. 'tidemark security init "
            "DIR' makes one for trying it out.",
            key=keystore.key,
        )
    return TlsFiles(
        prefix,
        certificate,
        configuration.get(key) or None,
        configuration.get(truststore) or None,
        configuration.get(password) or None,
        tuple(text.replace(":", "").lower() for text in _parts(configuration.get(fingerprint))),
        configuration.get(Options.SSL_PROTOCOL).strip(),
        tuple(_openssl_name(name) for name in _parts(configuration.get(Options.SSL_ALGORITHMS))),
    )


def _refuse_stores(configuration: Configuration, *options: ConfigOption[str]) -> None:
    for option in options:
        if configuration.get(option).strip().upper() != "PEM":
            raise ConfigError(
                f"{option.key} is '{configuration.get(option)}', but only PEM is read: Python knows neither JKS nor "
                "PKCS12. Convert the store with 'openssl pkcs12 -in FILE -nodes -out FILE.pem'.",
                key=option.key,
            )


def _parts(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _openssl_name(name: str) -> str:
    """OpenSSL's name of a cipher suite that may have its standard one, as Flink has it."""
    if not name.startswith("TLS_"):
        return name
    exchange, found, cipher = name.removeprefix("TLS_").partition("_WITH_")
    if not found:
        raise ConfigError(
            f"security.ssl.algorithms names {name}, a suite of TLS 1.3. These cannot be chosen in Python: all of them "
            "are offered. Leave it out.",
            key="security.ssl.algorithms",
        )
    cipher = cipher.replace("AES_", "AES").replace("_CBC", "")
    if "CHACHA20" in cipher:
        cipher = cipher.removesuffix("_SHA256")
    exchange = "" if exchange == "RSA" else exchange + "_"
    return (exchange + cipher).replace("_", "-")
