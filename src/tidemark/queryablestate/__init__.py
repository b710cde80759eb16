"""Reading the state of a running job from outside: servers in the slots, a proxy in the driver, a client."""

from tidemark.errors import (
    QueryError,
    UnknownKeyOrNamespaceException,
    UnknownKvStateError,
    UnknownKvStateIdException,
    UnknownKvStateLocation,
    UnsupportedOperationException,
)
from tidemark.ports import parse_port_range
from tidemark.queryablestate.client import QueryableStateClient
from tidemark.queryablestate.describe import StateDescription
from tidemark.queryablestate.proxy import QueryableStateClientProxy
from tidemark.queryablestate.server import QueryableStateServer

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
