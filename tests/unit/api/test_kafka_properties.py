"""Settings of Kafka clients: Java's words, and secrets that appear nowhere."""

from __future__ import annotations

import pickle

import pytest

from tidemark.api.connectors.kafka.properties import ClientProperties
from tidemark.errors import ConfigError


def test_words_of_the_java_client_are_translated() -> None:
    given = ClientProperties(
        {
            "bootstrap.servers": "a:1,b:2",
            "max.request.size": 2000000,
            "key.serializer": "org.apache.kafka.common.serialization.StringSerializer",
            "enable.auto.commit": False,
            "linger.ms": "7",
        }
    )

    assert given.client() == {
        "bootstrap.servers": "a:1,b:2",
        "message.max.bytes": "2000000",
        "enable.auto.commit": "false",
        "linger.ms": "7",
    }
    assert given.bootstrap_servers == "a:1,b:2"


@pytest.mark.parametrize("module", ["plain.PlainLoginModule", "scram.ScramLoginModule"])
def test_a_jaas_line_becomes_name_and_password(module: str) -> None:
    line = f'org.apache.kafka.common.security.{module} required username="ann" password="a\\"b;c=d";'

    client = ClientProperties({"sasl.jaas.config": line}).client()

    assert client == {"sasl.username": "ann", "sasl.password": 'a"b;c=d'}


@pytest.mark.parametrize(
    ("key", "value", "remedy"),
    [
        ("ssl.truststore.location", "/a.jks", "ssl.ca.location"),
        ("sasl.jaas.config", "com.sun.security.auth.module.Krb5LoginModule required;", "sasl.kerberos"),
        ("interceptor.classes", "x.Y", "Java client only"),
        ("linger.ms", None, "must be text"),
        ("", "x", "has a name"),
    ],
)
def test_what_only_java_has_is_refused_by_name(key: str, value: object, remedy: str) -> None:
    with pytest.raises(ConfigError, match=remedy):
        ClientProperties().with_property(key, value)


def test_no_secret_is_shown() -> None:
    secret = "s3cret,really"
    line = (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{secret}";'
    )
    given = ClientProperties({"sasl.jaas.config": line, "ssl.key.password": "another one", "client.id": "me"})

    assert secret not in repr(given)
    assert "another" not in repr(given)
    assert (
        given.redacted(f"the broker said {secret} and another one to me")
        == "the broker said *** and *** to me"
    )
    assert pickle.loads(pickle.dumps(given)) == given
