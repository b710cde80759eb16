"""Client side of queryable state under Flink's name (spec 16)."""

from tidemark.errors import (
    QueryError,
    UnknownKeyOrNamespaceException,
    UnknownKvStateError,
    UnknownKvStateIdException,
    UnknownKvStateLocation,
    UnsupportedOperationException,
)
from tidemark.queryable.client import QueryableStateClient
from tidemark.queryable.describe import StateDescription
from tidemark.queryable.ports import parse_port_range
from tidemark.queryable.proxy import QueryableStateClientProxy
from tidemark.queryable.server import QueryableStateServer

__all__ = [
    "QueryError",
    "QueryableStateClient",
    "QueryableStateClientProxy",
    "QueryableStateServer",
    "StateDescription",
    "UnknownKeyOrNamespaceException",
    "UnknownKvStateError",
    "UnknownKvStateIdException",
    "UnknownKvStateLocation",
    "UnsupportedOperationException",
    "parse_port_range",
]
