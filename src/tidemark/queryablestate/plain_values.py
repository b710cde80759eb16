"""From the text of a key, as people write it, to a key, and from a queried state to plain data."""

from __future__ import annotations

import ast
import json
import ssl
from typing import Any

from tidemark.errors import ConfigError, StateNotServedError
from tidemark.queryablestate.client import QueryableStateClient
from tidemark.queryablestate.describe import StateDescription
from tidemark.state.descriptors import StateKind
from tidemark.types.row import Row

__all__ = ["KEY_TYPES", "find_state", "parse_key", "plain_value", "query_plain"]

KEY_TYPES = ("auto", "string", "int", "float", "bool", "json")

_ANSWER_S = 10.0

_READ_AS = {
    "STRING": "string",
    "CHAR": "string",
    "LONG": "int",
    "INT": "int",
    "SHORT": "int",
    "BYTE": "int",
    "BIG_INT": "int",
    "FLOAT": "float",
    "DOUBLE": "float",
    "BOOLEAN": "bool",
}


def parse_key(text: str, job_type: str, key_type: str = "auto") -> Any:
    """The key behind a text.

    Args:
        text: What the user wrote.
        job_type: Type of the job's keys as the job describes it, such as `LONG` or `TUPLE(STRING, LONG)`.
        key_type: One of `KEY_TYPES`; "auto" goes by `job_type`. Keys without a declared type are read as a
            Python literal where the text is one, else as the text itself.

    Raises:
        ConfigError: The text is not a key of that type.
    """
    if key_type == "auto" and job_type == "PICKLED":
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError):
            return text
    kind = _READ_AS.get(job_type, "json") if key_type == "auto" else key_type
    try:
        return _read(text, kind, job_type)
    except ValueError as exc:
        raise ConfigError(
            f"'{text}' cannot be read as {kind}, but keys are {job_type}. Correct it or use --key-type."
        ) from exc


def _read(text: str, kind: str, job_type: str) -> Any:
    if kind == "string":
        return text
    if kind == "int":
        return int(text)
    if kind == "float":
        return float(text)
    if kind == "bool":
        if text.lower() not in ("true", "false"):
            raise ValueError(text)
        return text.lower() == "true"
    value = json.loads(text)
    if isinstance(value, list) and job_type.startswith(("TUPLE", "PICKLED")):
        return _tuples(value)
    if isinstance(value, list) and job_type.startswith("ROW"):
        return Row(*value)
    return value


def _tuples(value: Any) -> Any:
    return tuple([_tuples(element) for element in value]) if isinstance(value, list) else value


def plain_value(kind: StateKind, state: Any) -> Any:
    """The content of a queried state: a value, a list or a dict."""
    if kind is StateKind.MAP:
        return dict(state.items())
    if kind is StateKind.LIST:
        return list(state.get())
    return state.value() if kind is StateKind.VALUE else state.get()


def query_plain(
    host: str, port: int, token: bytes, job_id: str, name: str, key: Any, tls: ssl.SSLContext | None = None
) -> Any:
    """The value of a queryable state for a key, both plain data as JSON has them.

    Raises:
        QueryError: The state is not served, or the key has no value.
        ConfigError: The key does not have the type of the job's keys.
    """
    with QueryableStateClient(host, port, timeout=_ANSWER_S, token=token, tls=tls) as queries:
        found = find_state(queries, job_id, name)
        parsed = parse_key(key if isinstance(key, str) else json.dumps(key), found.key_type)
        state = queries.get_kv_state(
            job_id, name, parsed, found.key_serializer(), found.descriptor()
        ).result()
    return plain_value(found.kind, state)


def find_state(queries: QueryableStateClient, job_id: str, name: str) -> StateDescription:
    """The published state of that name.

    Raises:
        StateNotServedError: There is none; names those that are.
    """
    states: list[StateDescription] = queries.list_states(job_id).result()
    for state in states:
        if state.name == name:
            return state
    names = ", ".join([state.name for state in states]) or "none"
    raise StateNotServedError(f"Job {job_id} publishes no state as '{name}' (published: {names}).", name=name)
