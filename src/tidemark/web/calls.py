"""What a route is: a method, a path and a function from a `Call` to plain data. No HTTP library is seen by routes.

Functions run in a thread of their own, so they may wait for a slot, never for a job. What they raise becomes
`{"errors": [...]}` with the status of the error's class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from tidemark.errors import (
    CheckpointError,
    ConfigError,
    IllegalStateError,
    JobNotFoundError,
    QueryError,
    RestoreError,
    StorageError,
    TidemarkError,
    UnsupportedOperationException,
)

if TYPE_CHECKING:
    from tidemark.web.facts import VertexFacts
    from tidemark.web.triggers import Triggers
    from tidemark.web.view import Jobs, JobView

__all__ = ["Answer", "ApiError", "Call", "Route", "Text", "encode", "error_message", "error_status"]

Body = TypeVar("Body")


class ApiError(Exception):
    """A request that cannot be answered, with the HTTP status that says why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Answer:
    """Plain data with a status other than 200."""

    content: Any
    status: int = 200


@dataclass(frozen=True, slots=True)
class Text:
    """An answer that is text, not JSON."""

    content: str
    media_type: str = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Call:
    """One request."""

    jobs: Jobs
    triggers: Triggers
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def job(self) -> JobView:
        """The job that the path names.

        Raises:
            ApiError: 404, there is none.
        """
        job_id = self.path["jobid"]
        view = self.jobs.find(job_id)
        if view is None:
            raise ApiError(404, f"Job {job_id} not found. GET /v1/jobs lists the jobs.")
        return view

    def vertex(self) -> VertexFacts:
        """The vertex that the path names.

        Raises:
            ApiError: 404, there is none.
        """
        wanted = self.path["vertexid"]
        for vertex in self.job().facts().vertices:
            if vertex.id == wanted:
                return vertex
        job_id = self.path["jobid"]
        raise ApiError(404, f"Job {job_id} has no vertex {wanted}. GET /v1/jobs/{job_id}/plan lists them.")

    def number(self, name: str) -> int:
        """A whole number in the path.

        Raises:
            ApiError: 400, it is none.
        """
        return _whole(name, self.path[name])

    def limit(self, name: str, default: int) -> int:
        """A whole number of 0 or more in the query string.

        Raises:
            ApiError: 400, it is none.
        """
        return _whole(name, self.query[name]) if name in self.query else default

    def parsed(self, kind: type[Body]) -> Body:
        """The body as that structure; an empty one is `{}`.

        Raises:
            ApiError: 400, it is no JSON, or does not fit.
        """
        try:
            return msgspec.json.decode(self.body or b"{}", type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
            raise ApiError(400, f"The request's body does not fit: {exc}.") from exc


def _whole(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise ApiError(400, f"'{name}' must be a whole number, got '{text[:40]}'.")
    return int(text)


@dataclass(frozen=True, slots=True)
class Route:
    """One thing the server can do."""

    method: str
    path: str
    """Flink's, with `{names}`; it is served with and without `/v1`."""
    handler: Callable[[Call], Any]
    summary: str
    query: tuple[str, ...] = ()
    """Names in the query string."""
    body: tuple[str, ...] = ()
    """Names in the JSON body."""
    status: int = 200
    """Of a good answer."""


_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (JobNotFoundError, 404),
    (QueryError, 404),
    (ConfigError, 400),
    (RestoreError, 400),
    (UnsupportedOperationException, 501),
    (IllegalStateError, 409),
    (CheckpointError, 409),
    (StorageError, 502),
)


def error_status(error: Exception) -> int:
    """The HTTP status of an error; 500 for what is nobody's fault but ours."""
    if isinstance(error, ApiError):
        return error.status
    found = next((status for kind, status in _STATUS if isinstance(error, kind)), None)
    return found or int(HTTPStatus.INTERNAL_SERVER_ERROR)


def error_message(error: Exception) -> str:
    """What the caller is told of an error."""
    if isinstance(error, ApiError | TidemarkError):
        return str(error)
    return f"{type(error).__name__}: {error}"


def _plain(value: Any) -> Any:
    """What JSON has no form for, as text."""
    return str(value)


_ENCODER = msgspec.json.Encoder(enc_hook=_plain)


def encode(content: Any) -> bytes:
    """Plain data as JSON."""
    return _ENCODER.encode(content)
