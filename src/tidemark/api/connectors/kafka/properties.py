"""Settings of a Kafka client: given in Java's words or librdkafka's, kept so that no secret of them is ever shown.

Programs written for PyFlink name properties of the Java client. Most are spelt as librdkafka spells them; others are
translated here, and those without a counterpart are refused by name, when the connector is built.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tidemark.errors import ConfigError

__all__ = ["ClientProperties"]

_RENAMED = {
    "max.request.size": "message.max.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "metadata.max.age.ms": "topic.metadata.refresh.interval.ms",
}
"""Java's name -> librdkafka's."""
_WITHOUT_MEANING = re.compile(
    r"(key|value)\.(de)?serializer|partitioner\.class|max\.poll\.records|auto\.offset\.reset"
)
"""What Java programs set though the connector decides it."""
_JAVA_ONLY = re.compile(
    r"ssl\.(key|trust)store\.(location|password|type)|.*\.class|.*\.classes|interceptor\..*|metric\.reporters"
)
_SECRET = re.compile(r"password|secret|jaas|token|credential|\bkey\.pem|\.pem$|ssl\.key", re.IGNORECASE)
"""Properties whose values appear nowhere."""
_JAAS = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\s;]+))""")
_JAAS_MODULES = ("PlainLoginModule", "ScramLoginModule")


class ClientProperties:
    """Properties of one client, immutable; `repr` and error texts show names, never values.

    Plain data that travels to tasks with the plan, over the job's authenticated channels only.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        """Keep properties as given.

        Raises:
            ConfigError: One is refused: not text, or of the Java client only.
        """
        self._values: dict[str, str] = {}
        for key, value in (values or {}).items():
            self._values[key] = _checked(key, value)
        self.client()

    def with_property(self, key: str, value: Any) -> ClientProperties:
        """The same with one more, or another value.

        Raises:
            ConfigError: It is refused.
        """
        return ClientProperties({**self._values, key: value})

    def get(self, key: str, default: str | None = None) -> str | None:
        """What was set, under the name it was set by."""
        return self._values.get(key, default)

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of brokers."""
        return self._values.get("bootstrap.servers", "")

    def client(self) -> dict[str, str]:
        """The properties in librdkafka's words.

        Raises:
            ConfigError: `sasl.jaas.config` has a form that only Java understands.
        """
        translated: dict[str, str] = {}
        for key, value in self._values.items():
            if key == "sasl.jaas.config":
                translated.update(_login(value))
            elif _WITHOUT_MEANING.fullmatch(key) is None:
                translated[_RENAMED.get(key, key)] = value
        return translated

    def redacted(self, text: str) -> str:
        """A text of the client's, without any secret of these properties."""
        secrets = [value for key, value in self._values.items() if _SECRET.search(key)]
        secrets += [value for key, value in self.client().items() if _SECRET.search(key)]
        for secret in sorted({one for one in secrets if one}, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClientProperties) and other._values == self._values

    def __hash__(self) -> int:
        return hash(tuple(sorted(self._values.items())))

    def __repr__(self) -> str:
        return f"ClientProperties({', '.join(sorted(self._values))})"


def _checked(key: Any, value: Any) -> str:
    if not isinstance(key, str) or not key:
        raise ConfigError(f"A Kafka property has a name, not {key!r}.")
    if isinstance(value, bool):
        value = str(value).lower()
    if isinstance(value, int | float):
        value = str(value)
    if not isinstance(value, str):
        raise ConfigError(
            f"The value of the Kafka property '{key}' must be text, not a {type(value).__name__}.", key=key
        )
    if _JAVA_ONLY.fullmatch(key) is not None and _WITHOUT_MEANING.fullmatch(key) is None:
        remedy = (
            "Use certificates in PEM files: ssl.ca.location, ssl.certificate.location, ssl.key.location"
            if key.startswith("ssl.")
            else "Leave it out"
        )
        raise ConfigError(f"The Kafka property '{key}' exists in the Java client only. {remedy}.", key=key)
    return value


def _login(jaas: str) -> dict[str, str]:
    """Name and password out of a JAAS line for PLAIN or SCRAM."""
    found = {name: first or second or third for name, first, second, third in _JAAS.findall(jaas)}
    if not any(module in jaas for module in _JAAS_MODULES) or not {"username", "password"} <= found.keys():
        raise ConfigError(
            "The Kafka property 'sasl.jaas.config' can be used for PLAIN and SCRAM with username and password. For "
            "other mechanisms set librdkafka's own properties (sasl.kerberos.*, sasl.oauthbearer.*).",
            key="sasl.jaas.config",
        )
    unescaped = {name: re.sub(r"\\(.)", r"\1", found[name]) for name in ("username", "password")}
    return {"sasl.username": unescaped["username"], "sasl.password": unescaped["password"]}
