"""What is a secret, by its name and inside of texts."""

from __future__ import annotations

import pytest

from tidemark.redaction import is_secret, shown_value, without_secrets


@pytest.mark.parametrize(
    "key",
    [
        "my.password",
        "DB_PASSWD",
        "rest.token",
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.s3a.access.key",
        "fs.azure.account.key.store.blob.core.windows.net",
        "kafka.sasl.jaas.config",
        "ssl.key.passphrase",
        "service_api_key",
        "tls.private.key",
        "AWS_SECRET_ACCESS_KEY",
    ],
)
def test_names_of_secrets_hide_their_values(key: str) -> None:
    assert is_secret(key)
    assert shown_value(key, "hunter2") == "******"
    assert shown_value(key, "") == "", "nothing is set, and everybody may know"


@pytest.mark.parametrize("key", ["rest.port", "state.checkpoints.dir", "rest.ssl.key", "pipeline.name"])
def test_other_values_are_shown(key: str) -> None:
    assert shown_value(key, "/some/where") == "/some/where"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("jdbc:postgresql://app:hunter2@db/x", "jdbc:postgresql://app:******@db/x"),
        ("jdbc:mysql://db/x?user=a&password=hunter2&ssl=1", "jdbc:mysql://db/x?user=a&password=******&ssl=1"),
        ("AccountKey=hunter2;Endpoint=https://a", "AccountKey=******;Endpoint=https://a"),
        ("{'sasl.password': 'hunter2', 'a': 'b'}", "{'sasl.password': '******', 'a': 'b'}"),
        ('token: "hunter2"', 'token: "******"'),
        ("http://127.0.0.1:8081/v1/jobs", "http://127.0.0.1:8081/v1/jobs"),
        ("file:///tmp/a@b/chk-1", "file:///tmp/a@b/chk-1"),
        ("the password is wrong", "the password is wrong"),
        ('{"secret_key": "hunter2", "n": 1}', '{"secret_key": "******", "n": 1}'),
        ("Authorization: Bearer hunter2", "Authorization: Bearer ******"),
        ("{'Authorization': 'Basic hunter2'}", "{'Authorization': 'Basic ******'}"),
        ("authorization=hunter2", "authorization=******"),
        ("psql --password hunter2 -h db", "psql --password ****** -h db"),
        ("psql --password --host db", "psql --password --host db"),
        ("Driver=x;UID=a;PWD=hunter2;", "Driver=x;UID=a;PWD=******;"),
        ("https://a/b?sv=1&sig=hunter2&x=1", "https://a/b?sv=1&sig=******&x=1"),
        ("https://a/b?X-Amz-Signature=hunter2", "https://a/b?X-Amz-Signature=******"),
        ("authorization failed, signal=9", "authorization failed, signal=9"),
    ],
)
def test_passwords_inside_of_texts_are_hidden(text: str, shown: str) -> None:
    assert without_secrets(text) == shown
