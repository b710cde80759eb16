"""The application: every route with and without `/v1`, events, metrics and the page, behind one guard."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.routing import Route as HttpRoute

from tidemark.web import pages
from tidemark.web.bodies import MAX_BODY, body_of
from tidemark.web.calls import Answer, ApiError, Call, Route, Text, encode, error_message, error_status
from tidemark.web.connections import LET_IN
from tidemark.web.events import event_stream
from tidemark.web.prometheus import MEDIA_TYPE, exposition
from tidemark.web.routes import actions, checkpoints, cluster, jobs, metrics, own, taskmanagers, vertices
from tidemark.web.security import COOKIE, HEADERS, Guard
from tidemark.web.triggers import Triggers
from tidemark.web.view import Jobs

__all__ = ["ROUTES", "WebSettings", "create_application"]

_log = logging.getLogger(__name__)

ROUTES: tuple[Route, ...] = (
    *cluster.ROUTES,
    # Literal paths before those with a name in the same place.
    *metrics.ROUTES,
    *jobs.ROUTES,
    *vertices.ROUTES,
    *checkpoints.ROUTES,
    *actions.ROUTES,
    *taskmanagers.ROUTES,
    *own.ROUTES,
)
_ANY = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]

Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class WebSettings:
    """How a server is to be."""

    guard: Guard
    metric_prefix: str = "flink"
    is_closing: Callable[[], bool] = field(default=lambda: False)
    """Whether streams of events have to end."""


def create_application(source: Jobs, settings: WebSettings, triggers: Triggers) -> Starlette:
    """The ASGI application over some jobs, and the operations that were asked of them."""
    served: list[BaseRoute] = []
    by_path: dict[str, dict[str, Route]] = {}
    for route in ROUTES:
        by_path.setdefault(route.path, {})[route.method] = route
    for path in _literal_first(by_path):
        endpoint = _endpoint(source, triggers, by_path[path])
        for prefix in ("", "/v1"):
            served.append(HttpRoute(prefix + path, endpoint, methods=_ANY))
    for prefix in ("", "/v1"):
        served.append(HttpRoute(prefix + "/events", event_stream(source, triggers, settings.is_closing)))

    async def expose(_request: Request) -> Response:
        text = await run_in_threadpool(lambda: exposition(source.all(), settings.metric_prefix))
        return Response(text, media_type=MEDIA_TYPE)

    served.append(HttpRoute("/metrics", expose))
    served += pages.routes(settings.guard)
    served.append(HttpRoute("/{path:path}", _unknown, methods=_ANY))
    application = Starlette(routes=served)
    application.add_middleware(_Guarded, guard=settings.guard)
    return application


def _literal_first(paths: Sequence[str] | dict[str, Any]) -> list[str]:
    """So that `/jobs/overview` is not taken for the job `overview`."""
    return sorted(paths, key=lambda path: [part.startswith("{") for part in path.split("/")])


def _endpoint(source: Jobs, triggers: Triggers, by_method: dict[str, Route]) -> Endpoint:
    async def serve(request: Request) -> Response:
        route = by_method.get("GET" if request.method == "HEAD" else request.method)
        if route is None:
            allowed = ", ".join(sorted(by_method))
            return _failed(ApiError(405, f"{request.method} is not possible here, only {allowed}."))
        try:
            body = await body_of(request)
            call = Call(source, triggers, request.path_params, request.query_params, body)
            content = await run_in_threadpool(route.handler, call)
        except Exception as exc:
            return _failed(exc)
        if isinstance(content, Text):
            return Response(content.content, media_type=content.media_type)
        status = content.status if isinstance(content, Answer) else 200
        plain = content.content if isinstance(content, Answer) else content
        return Response(encode(plain), status, media_type="application/json")

    return serve


def _failed(error: Exception) -> Response:
    status = error_status(error)
    if status == 500:
        _log.warning("A web request failed", exc_info=error)
    return Response(encode({"errors": [error_message(error)]}), status, media_type="application/json")


async def _unknown(request: Request) -> Response:
    return _failed(ApiError(404, f"There is nothing at {request.url.path}."))


class _Guarded:
    """Asks the guard about every request, and adds the headers of every answer."""

    def __init__(self, app: Any, guard: Guard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _value in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *[
                        (name.lower().encode(), value.encode())
                        for name, value in HEADERS.items()
                        if name.lower().encode() not in present
                    ],
                ]
            await send(message)

        request = Request(scope)
        refusal = self._refusal(request)
        await (refusal or self._app)(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        # Not that of `request.url`, which is put together with what the caller says in `Host`.
        path = request.scope["path"]
        try:
            self._guard.check_user(request.scope["client"], request.scope["server"])
            if pages.is_public(path):
                return None
            declared = request.headers.get("content-length", "0")
            if declared.isdigit() and int(declared) > MAX_BODY:
                raise ApiError(413, f"The request's body has more than {MAX_BODY} bytes.")
            self._guard.check(request.method, request.headers, _cookie(request))
            request.scope[LET_IN] = True
        except ApiError as exc:
            refusal = pages.to_login() if exc.status == 401 and pages.is_page(path) else _failed(exc)
            # What else he has sent meanwhile is not worth an answer.
            refusal.headers["Connection"] = "close"
            return refusal
        return None


def _cookie(request: Request) -> str | None:
    # Not by `SimpleCookie`, for which a stranger's long value in quotes is work for seconds.
    for part in request.headers.get("cookie", "").split(";"):
        name, _, value = part.partition("=")
        if name.strip() == COOKIE:
            return unquote(value.strip())
    return None
