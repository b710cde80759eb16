"""What `security.ssl.*` may say, and which files are believed."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from tidemark.config import Configuration
from tidemark.config.tls import internal_tls, rest_tls
from tidemark.errors import ConfigError
from tidemark.tls import TlsFiles
from tidemark.tls.making import make_certificates

PREFIX = "security.ssl.internal."


def files_of(settings: dict[str, str], **changes: str) -> TlsFiles:
    changed = {PREFIX + name.replace("_", "-"): value for name, value in changes.items()}
    found = internal_tls(Configuration.from_dict({**settings, **changed}))
    assert found is not None
    return found


@pytest.fixture
def own(certificates: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """The same with a key that a test may spoil."""
    key = tmp_path / "own.key"
    shutil.copy(certificates[PREFIX + "key"], key)
    return {**certificates, PREFIX + "key": str(key)}


def test_nothing_is_encrypted_unless_asked_for() -> None:
    assert internal_tls(Configuration()) is None
    assert rest_tls(Configuration()) is None


def test_the_older_name_of_the_web_servers_certificate_turns_tls_on(certificates: dict[str, str]) -> None:
    older = Configuration.from_dict({"rest.ssl.certificate": certificates["security.ssl.rest.keystore"]})
    off = Configuration.from_dict({**older.to_dict(), "security.ssl.rest.enabled": "false"})

    assert rest_tls(older) is not None
    assert rest_tls(off) is None


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_key_that_others_may_read_is_refused(own: dict[str, str], mode: int) -> None:
    os.chmod(own[PREFIX + "key"], mode)
    if os.geteuid() == 0 and mode == 0o640:
        # Root may share its keys with a group: that is how containers get them.
        files_of(own).server()
        os.chown(own[PREFIX + "key"], 12345, 12345)

    with pytest.raises(ConfigError, match=r"security\.ssl\.internal\.key: .*others.*chmod 600"):
        files_of(own).server()


def test_a_key_in_the_file_of_the_certificate_is_looked_at_as_well(
    own: dict[str, str], tmp_path: Path
) -> None:
    both = tmp_path / "both.pem"
    both.write_text(Path(own.pop(PREFIX + "key")).read_text() + Path(own[PREFIX + "keystore"]).read_text())
    os.chmod(both, 0o600)

    files_of(own, keystore=str(both)).server()
    os.chmod(both, 0o644)

    with pytest.raises(ConfigError, match="keystore: the private key"):
        files_of(own, keystore=str(both)).client()


def test_an_encrypted_key_needs_its_password_and_nobody_is_asked_at_a_terminal(own: dict[str, str]) -> None:
    key = own[PREFIX + "key"]
    subprocess.run(
        ["openssl", "ec", "-aes128", "-in", key, "-out", key, "-passout", "pass:sesame"],
        check=True,
        capture_output=True,
    )

    with pytest.raises(ConfigError, match=r"encrypted. Set security\.ssl\.internal\.key-password"):
        files_of(own).server()
    with pytest.raises(ConfigError, match="a password must be the right one"):
        files_of(own, key_password="guess").server()
    files = files_of(own, keystore_password="guess", key_password="sesame")
    files.client()
    assert "sesame" not in repr(files)
    assert files.without_password().password is None


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("keystore", "", "names no PEM file"),
        ("truststore", "", "truststore must name a PEM file"),
        ("keystore_type", "PKCS12", "only PEM is read"),
        ("truststore_type", "jks", "only PEM is read"),
        ("keystore", "/nowhere/node.pem", "cannot be read on"),
        ("keystore", "{store}", "no PEM file, and Python reads no other"),
        ("truststore", "{store}", "no PEM file, and Python reads no other"),
        ("cert.fingerprint", "12:34", "40 or 64 hexadecimal digits"),
        ("cert.fingerprint", "x" * 40, "40 or 64 hexadecimal digits"),
    ],
)
def test_what_cannot_be_is_told_with_its_key(
    certificates: dict[str, str], tmp_path: Path, name: str, value: str, message: str
) -> None:
    store = tmp_path / "store.p12"
    store.write_bytes(b"\x30\x82" + bytes(1000))
    os.chmod(store, 0o600)

    with pytest.raises(ConfigError, match=message) as caught:
        files_of(certificates, **{name: value.format(store=store)}).server()

    assert str(caught.value.key).startswith(PREFIX)


def test_a_certificate_without_its_own_key_is_refused(certificates: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="cannot be used"):
        files_of(certificates, key=certificates["security.ssl.rest.key"]).server()


def test_protocol_and_algorithms_are_obeyed(certificates: dict[str, str]) -> None:
    suites = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, ECDHE-ECDSA-CHACHA20-POLY1305"
    wanted = {"security.ssl.protocol": "TLSv1.2", "security.ssl.algorithms": suites}
    context = files_of({**certificates, **wanted}).server()
    newest = files_of({**certificates, "security.ssl.protocol": "TLSv1.3"}).client()

    older = [c["name"] for c in context.get_ciphers() if c["protocol"] != "TLSv1.3"]
    assert older == ["ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"]
    assert newest.minimum_version is ssl.TLSVersion.TLSv1_3


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("protocol", "SSLv3"),
        ("protocol", "TLSv1.1"),
        ("algorithms", "no-such-suite"),
        ("algorithms", "TLS_AES_256_GCM_SHA384"),
    ],
)
def test_old_protocols_and_unknown_algorithms_are_refused(
    certificates: dict[str, str], key: str, value: str
) -> None:
    with pytest.raises(ConfigError, match=f"security.ssl.{key}"):
        files_of({**certificates, f"security.ssl.{key}": value}).server()


def test_relative_paths_are_found_where_they_are_said_to_be(certificates: dict[str, str]) -> None:
    names = {key: os.path.basename(value) for key, value in certificates.items()}
    files = files_of(names)

    assert not files.is_absolute
    below = files.below(os.path.dirname(certificates[PREFIX + "keystore"]))
    assert below.is_absolute
    assert below == files_of(certificates)


def test_certificates_are_made_for_their_owner_and_never_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    settings = make_certificates(str(folder), ["example.org", "10.1.2.3"])

    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert len(list(folder.iterdir())) == 10
    told = ssl._ssl._test_decode_cert(settings["security.ssl.rest.keystore"])  # type: ignore[attr-defined]
    assert {("DNS", "example.org"), ("IP Address", "10.1.2.3"), ("DNS", "localhost")} <= set(
        told["subjectAltName"]
    )
    with pytest.raises(ConfigError, match="is there already and not replaced"):
        make_certificates(str(folder))
    for host in ("", "a,DNS:b", "a\nb", "-x"):
        with pytest.raises(ConfigError, match="no name or address"):
            make_certificates(str(tmp_path / "other"), [host])
    assert not (tmp_path / "other").exists()


def test_without_openssl_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ConfigError, match="'openssl' is not installed"):
        make_certificates(str(tmp_path / "tls"))

    assert list((tmp_path / "tls").iterdir()) == []
