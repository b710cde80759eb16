"""Certificates for trying TLS out: two authorities, and what each of them signs, made by the `openssl` command.

The authority of internal connections signs nothing else: whoever has a certificate of it is one of the job's
processes. The one of the web server signs the server's and that of whoever may ask it.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import ip_address

from tidemark.errors import ConfigError
from tidemark.private_files import private_directory

__all__ = ["make_certificates"]

_CONFIG = """
[req]
distinguished_name = name
prompt = no
[name]
CN = {name}
[authority]
basicConstraints = critical, CA:TRUE, pathlen:0
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[leaf]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = {usage}
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
{names}
"""
_BOTH = "serverAuth, clientAuth"
_NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-sha256"]
_NAMES = [
    f"{name}.{kind}"
    for name in ("internal-ca", "internal", "rest-ca", "rest", "client")
    for kind in ("pem", "key")
]


def make_certificates(directory: str, hosts: Sequence[str] = (), days: int = 365) -> dict[str, str]:
    """Make authorities, certificates and keys in a directory that only this user may enter.

    Args:
        directory: Made if it is not there.
        hosts: Names and addresses of the web server, besides those of this machine.
        days: For how long the certificates hold.

    Returns:
        What to put into the configuration, for internal connections and the web server.

    Raises:
        ConfigError: There is no `openssl` command, it failed, or one of the files is there already.
    """
    here = ["localhost", socket.gethostname(), "127.0.0.1", "::1", *hosts]
    alternatives = [_alternative(host) for host in dict.fromkeys(here)]
    made = {name: os.path.join(os.path.abspath(directory), name) for name in _NAMES}
    for path in made.values():
        if os.path.lexists(path):
            raise ConfigError(
                f"{path} is there already and not replaced. Name another directory, or move it away."
            )
    private_directory(directory)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=directory) as scratch:
        maker = _Maker(scratch, days)
        maker.authority("tidemark internal", "internal-ca")
        maker.sign("tidemark", "internal", "internal-ca", _BOTH)
        maker.authority("tidemark web", "rest-ca")
        maker.sign("localhost", "rest", "rest-ca", "serverAuth", alternatives)
        maker.sign("client", "client", "rest-ca", "clientAuth")
        for name, path in made.items():
            os.rename(os.path.join(scratch, name), path)
    return {
        "security.ssl.internal.enabled": "true",
        "security.ssl.internal.keystore": made["internal.pem"],
        "security.ssl.internal.key": made["internal.key"],
        "security.ssl.internal.truststore": made["internal-ca.pem"],
        "security.ssl.rest.enabled": "true",
        "security.ssl.rest.authentication-enabled": "true",
        "security.ssl.rest.keystore": made["rest.pem"],
        "security.ssl.rest.key": made["rest.key"],
        "security.ssl.rest.truststore": made["rest-ca.pem"],
    }


class _Maker:
    """Runs `openssl` in a private directory, where it makes a `.pem` and a `.key` of each name."""

    def __init__(self, scratch: str, days: int) -> None:
        self._scratch = scratch
        self._days = ["-days", str(days)]

    def authority(self, subject: str, name: str) -> None:
        """Make one that believes in itself."""
        self._configure(subject, _BOTH, ())
        self._run("req", "-x509", *_NEW_KEY, *self._days, "-config", "config", "-extensions", "authority",
                  "-keyout", f"{name}.key", "-out", f"{name}.pem")  # fmt: skip

    def sign(
        self, subject: str, name: str, authority: str, usage: str, alternatives: Sequence[str] = ()
    ) -> None:
        """Make a key and a certificate of it that an authority signed."""
        self._configure(subject, usage, alternatives)
        self._run("req", "-new", *_NEW_KEY, "-config", "config", "-keyout", f"{name}.key", "-out", "request")
        self._run("x509", "-req", "-in", "request", "-CA", f"{authority}.pem", "-CAkey", f"{authority}.key",
                  "-set_serial", f"0x{secrets.token_hex(16)}", *self._days, "-sha256",
                  "-extfile", "config", "-extensions", "leaf", "-out", f"{name}.pem")  # fmt: skip

    def _configure(self, subject: str, usage: str, alternatives: Sequence[str]) -> None:
        names = f"subjectAltName = {','.join(alternatives)}" if alternatives else ""
        with open(os.path.join(self._scratch, "config"), "w", encoding="ascii") as stream:
            stream.write(_CONFIG.format(name=subject, usage=usage, names=names))

    def _run(self, *arguments: str) -> None:
        try:
            done = subprocess.run(
                ["openssl", *arguments],
                cwd=self._scratch,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                umask=0o077,
            )
        except FileNotFoundError:
            raise ConfigError(
                "The command 'openssl' is not installed, and certificates are made with it. Install it, or make them "
                "elsewhere."
            ) from None
        if done.returncode != 0:
            raise ConfigError(f"'openssl {arguments[0]}' failed: {done.stderr.strip()[-500:]}")


def _alternative(host: str) -> str:
    """A host as certificates name it.

    Raises:
        ConfigError: It is neither a name nor an address.
    """
    with suppress(ValueError):
        return f"IP:{ip_address(host)}"
    if re.fullmatch(r"(\*\.)?[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?", host):
        return f"DNS:{host}"
    raise ConfigError(f"'{host}' is no name or address of a machine.")
