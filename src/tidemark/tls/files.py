"""Which files prove who we are and whom we believe, and the two sides of TLS made from them.

All files are PEM: that is what Python's `ssl` reads. A private key is used only if nobody else can read it.
"""

from __future__ import annotations

import hashlib
import os
import re
import ssl
import stat
from dataclasses import dataclass, field, replace
from typing import NoReturn

from tidemark.errors import ConfigError

__all__ = ["TlsContext", "TlsFiles", "check_peer", "client_side", "server_side"]

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_DIGESTS = {40: hashlib.sha1, 64: hashlib.sha256}
"""By the number of hexadecimal digits."""
_FOR_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class TlsContext(ssl.SSLContext):
    """One side of TLS; what it adds is `check_peer`'s."""

    fingerprints: tuple[str, ...] = ()
    """Of certificates that are believed; empty: all that the authorities signed."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where certificate, key and authorities lie, and what is spoken. Travels to tasks and slots as it is.

    Attributes:
        key_prefix: What the keys of the configuration begin with, for messages.
        certificate: PEM file with the certificate and what leads from it to an authority.
        key: PEM file with its private key; None if that is in `certificate`.
        authorities: PEM file with the certificates of those whose signatures are believed.
        password: Of the private key, if it is encrypted.
        fingerprints: SHA-1 or SHA-256 of the certificates that are believed, as hexadecimal digits; empty: all that
            an authority signed.
        minimum: The oldest version of TLS that is spoken.
        ciphers: Cipher suites of TLS 1.2, by OpenSSL's names; empty: Python's choice.
    """

    key_prefix: str
    certificate: str
    key: str | None = None
    authorities: str | None = None
    password: str | None = field(default=None, repr=False)
    fingerprints: tuple[str, ...] = ()
    minimum: str = "TLSv1.2"
    ciphers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.minimum not in _VERSIONS:
            raise ConfigError(
                f"security.ssl.protocol is '{self.minimum}', but must be one of {', '.join(_VERSIONS)}.",
                key="security.ssl.protocol",
            )
        for fingerprint in self.fingerprints:
            if len(fingerprint) not in _DIGESTS or not re.fullmatch("[0-9a-f]+", fingerprint):
                raise ConfigError(
                    f"{self.key_prefix}cert.fingerprint must be the SHA-1 or SHA-256 of a certificate: 40 or 64 "
                    "hexadecimal digits, with colons or without. 'openssl x509 -noout -fingerprint -sha256 -in FILE' "
                    "tells it.",
                    key=f"{self.key_prefix}cert.fingerprint",
                )

    def server(self, *, mutual: bool = True) -> TlsContext:
        """The side that is connected to; with `mutual` it wants a certificate of an authority from everybody.

        Raises:
            ConfigError: A file is missing, is not PEM, does not fit the others, or others may read the key.
        """
        context = self._context(ssl.PROTOCOL_TLS_SERVER)
        # A session that is resumed would not be worth what a ticket costs: connections last.
        context.num_tickets = 0
        if mutual:
            self._believe(context)
        return context

    def client(self) -> TlsContext:
        """The side that connects. Names of hosts are not compared: whoever has a certificate is one of us.

        Raises:
            ConfigError: As for `server`.
        """
        context = self._context(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        self._believe(context)
        return context

    @property
    def is_absolute(self) -> bool:
        """Whether no path depends on a working directory."""
        return all(os.path.isabs(path) for path in (self.certificate, self.key, self.authorities) if path)

    def without_password(self) -> TlsFiles:
        """The same for a file that says where things are."""
        return replace(self, password=None)

    def absolute(self) -> TlsFiles:
        """The same with paths that do not depend on the working directory."""
        return self.below(os.getcwd())

    def below(self, directory: str) -> TlsFiles:
        """The same, with relative paths taken to be below `directory`."""
        return replace(
            self,
            certificate=os.path.join(directory, self.certificate),
            key=None if self.key is None else os.path.join(directory, self.key),
            authorities=None if self.authorities is None else os.path.join(directory, self.authorities),
        )

    def _context(self, protocol: int) -> TlsContext:
        context = TlsContext(protocol)
        context.minimum_version = _VERSIONS[self.minimum]
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        context.fingerprints = self.fingerprints
        if self.ciphers:
            try:
                context.set_ciphers(":".join(self.ciphers))
            except ssl.SSLError as exc:
                raise ConfigError(
                    f"security.ssl.algorithms names no cipher suite that OpenSSL has here: {', '.join(self.ciphers)}.",
                    key="security.ssl.algorithms",
                ) from exc
        key = self.key or self.certificate
        self._check_pem(self.certificate, "keystore")
        if self.key is not None:
            self._check_pem(key, "key")
        self._check_private(key, "key" if self.key is not None else "keystore")
        try:
            context.load_cert_chain(self.certificate, key, self._tell_password)
        except (OSError, ValueError) as exc:
            where = "" if key == self.certificate else f" with the key in {key}"
            raise ConfigError(
                f"{self.key_prefix}keystore: the certificate in {self.certificate}{where} cannot be used: {exc}. It "
                "must be a PEM file with a certificate, its key must fit, and a password must be the right one.",
                key=f"{self.key_prefix}keystore",
            ) from exc
        return context

    def _believe(self, context: TlsContext) -> None:
        option = f"{self.key_prefix}truststore"
        if self.authorities is None:
            raise ConfigError(
                f"{option} must name a PEM file with the certificates of the authorities whose signatures are "
                "believed. 'tidemark security init DIR' makes one for trying it out.",
                key=option,
            )
        self._check_pem(self.authorities, "truststore")
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(self.authorities)
        except (OSError, ValueError) as exc:
            raise ConfigError(
                f"{option}: the certificates in {self.authorities} cannot be read: {exc}.", key=option
            ) from exc

    def _tell_password(self) -> str:
        if self.password is None:
            # Otherwise OpenSSL would ask at the terminal.
            raise ConfigError(
                f"The private key in {self.key or self.certificate} is encrypted. Set {self.key_prefix}key-password.",
                key=f"{self.key_prefix}key-password",
            )
        return self.password

    def _check_pem(self, path: str, name: str) -> None:
        option = f"{self.key_prefix}{name}"
        try:
            # Without O_NONBLOCK a pipe somebody put there would hold us for ever.
            with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as stream:
                is_file = stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
                is_pem = is_file and b"-----BEGIN " in stream.read(1 << 20)
        except OSError as exc:
            raise ConfigError(
                f"{option}: {path} cannot be read on {os.uname().nodename}: {exc.strerror}. Files of TLS must lie at "
                "the same path on every machine, or be shipped with Spark and named without a directory.",
                key=option,
            ) from exc
        if not is_pem:
            raise ConfigError(
                f"{option}: {path} is no PEM file, and Python reads no other (no JKS, no PKCS12). Convert it: 'openssl "
                "pkcs12 -in FILE -nodes -out FILE.pem', a JKS with 'keytool -importkeystore -deststoretype PKCS12' "
                "before.",
                key=option,
            )

    def _check_private(self, path: str, name: str) -> None:
        status = os.stat(path)
        mode = stat.S_IMODE(status.st_mode)
        if status.st_uid == os.geteuid() and not mode & _FOR_OTHERS:
            return
        # How secrets are given to containers: they are root's, and the group is that of the container.
        if status.st_uid == 0 and not mode & (stat.S_IRWXO | stat.S_IWGRP):
            return
        self._refuse(path, name, status.st_uid, mode)

    def _refuse(self, path: str, name: str, owner: int, mode: int) -> NoReturn:
        raise ConfigError(
            f"{self.key_prefix}{name}: the private key in {path} (mode {mode:04o}, of user {owner}) could be read or "
            f"replaced by others. It must belong to user {os.geteuid()}, who runs this, with mode 0600, or to root "
            f"with mode 0640 at most: 'chmod 600 {path}'.",
            key=f"{self.key_prefix}{name}",
        )


def server_side(files: TlsFiles | None) -> TlsContext | None:
    """The side that is connected to, where TLS may be off.

    Raises:
        ConfigError: The files cannot be used.
    """
    return None if files is None else files.server()


def client_side(files: TlsFiles | None) -> TlsContext | None:
    """The side that connects, where TLS may be off.

    Raises:
        ConfigError: The files cannot be used.
    """
    return None if files is None else files.client()


def check_peer(peer: ssl.SSLObject) -> None:
    """Make sure, behind its handshake, that the peer has one of the certificates that are believed.

    Raises:
        ConnectionError: It has another one.
    """
    context = peer.context
    if not isinstance(context, TlsContext) or not context.fingerprints:
        return
    certificate = peer.getpeercert(binary_form=True) or b""
    for fingerprint in context.fingerprints:
        if _DIGESTS[len(fingerprint)](certificate).hexdigest() == fingerprint:
            return
    raise ConnectionError("its certificate is not the one that cert.fingerprint names")
