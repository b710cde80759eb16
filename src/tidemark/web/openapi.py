"""The OpenAPI document, made from the routes themselves; a test compares it with the published file."""

from __future__ import annotations

import re
from typing import Any

from tidemark.web.application import ROUTES
from tidemark.web.calls import Route

__all__ = ["document"]

_ERRORS = {
    "400": "The request is malformed",
    "401": "The token is missing or wrong",
    "403": "A page of another site seems to have sent it",
    "404": "There is no such thing",
    "408": "The body did not come in time",
    "409": "The job is not in a state for that",
    "413": "The body is too large",
    "501": "It cannot be done this way; the message says how",
}
_ACTIONS = frozenset({"POST", "PATCH"})


def document() -> dict[str, Any]:
    """The whole document."""
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(f"/v1{route.path}", {})[route.method.lower()] = _operation(route)
    paths["/v1/events"] = {
        "get": _plain(
            "Server-sent events `overview` and, with `job`, `job` and `checkpoints`, each when it has changed",
            "text/event-stream",
            ("job",),
        )
    }
    paths["/metrics"] = {"get": _plain("All metrics for Prometheus", "text/plain")}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "tidemark",
            "version": "v1",
            "description": "Flink's REST paths and field names; every path also exists without /v1.",
        },
        "components": {
            "schemas": {
                "Errors": {
                    "type": "object",
                    "required": ["errors"],
                    "properties": {"errors": {"type": "array", "items": {"type": "string"}}},
                }
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
        "paths": dict(sorted(paths.items())),
    }


def _operation(route: Route) -> dict[str, Any]:
    kind = "text/plain" if route.path.endswith("/logs/{name}") else "application/json"
    operation = _plain(route.summary, kind, route.query, str(route.status))
    operation["operationId"] = _operation_id(route)
    names = re.findall(r"\{(\w+)\}", route.path)
    inside = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
    operation["parameters"] = [*inside, *operation["parameters"]]
    if route.method in _ACTIONS:
        header = {"name": "X-Tidemark-CSRF", "in": "header", "schema": {"type": "string"}}
        operation["parameters"].append(header)
    if route.body:
        properties: dict[str, Any] = {name: {} for name in route.body}
        schema = {"type": "object", "properties": properties, "additionalProperties": False}
        operation["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    return operation


def _plain(summary: str, kind: str, query: tuple[str, ...] = (), status: str = "200") -> dict[str, Any]:
    errors = {
        code: {
            "description": text,
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Errors"}}},
        }
        for code, text in _ERRORS.items()
    }
    return {
        "summary": summary,
        "parameters": [{"name": name, "in": "query", "schema": {"type": "string"}} for name in query],
        "responses": {status: {"description": "As asked", "content": {kind: {}}}, **errors},
    }


def _operation_id(route: Route) -> str:
    words = re.sub(r"[{}]", "", route.path).strip("/").replace("-", "/").split("/")
    return route.method.lower() + "".join([word.capitalize() for word in words])
