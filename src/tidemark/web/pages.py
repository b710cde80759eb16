"""The page: static files of the package, and the form where a token is given."""

from __future__ import annotations

import mimetypes
from importlib import resources
from pathlib import PurePosixPath
from urllib.parse import parse_qs, quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from tidemark.web.bodies import body_of
from tidemark.web.calls import ApiError
from tidemark.web.security import COOKIE, Guard

__all__ = ["is_page", "is_public", "routes", "to_login"]

_STATIC = resources.files("tidemark.web") / "static"
_LOGIN = "login.html"
_MAX_FORM = 4096


def is_public(path: str) -> bool:
    """Whether everybody may see it: the form, and files that are in every copy of the package."""
    return path == "/login" or path.startswith("/static/")


def is_page(path: str) -> bool:
    """Whether a person asks for it, who is shown the form instead of an error."""
    return path in ("/", "/index.html")


def to_login() -> Response:
    """Lead to the form."""
    return RedirectResponse("/login", 303)


def routes(guard: Guard) -> list[BaseRoute]:
    """The page, its files, and the way in."""

    async def login(request: Request) -> Response:
        # The form itself says that a token was refused: it is the answer with the status of an error.
        if request.method == "GET":
            return _answer(_LOGIN)
        try:
            form = await body_of(request, _MAX_FORM)
        except ApiError as exc:
            return _answer(_LOGIN, exc.status)
        token = parse_qs(form.decode(errors="replace")).get("token", [""])[0]
        if not guard.accepts(token):
            return _answer(_LOGIN, 401)
        answer = RedirectResponse("/", 303)
        # A proxy in front that speaks HTTPS says so; whoever else says it only makes his own cookie stricter.
        secure = "https" in (request.scope["scheme"], request.headers.get("x-forwarded-proto"))
        answer.set_cookie(
            COOKIE, quote(token, safe=""), httponly=True, samesite="strict", secure=secure, path="/"
        )
        return answer

    return [
        Route("/", _index),
        Route("/index.html", _index),
        Route("/static/{path:path}", _file),
        Route("/login", login, methods=["GET", "POST"]),
    ]


async def _index(_request: Request) -> Response:
    return _answer("index.html")


async def _file(request: Request) -> Response:
    return _answer(request.path_params["path"])


def _answer(path: str, status: int = 200) -> Response:
    parts = PurePosixPath(path).parts
    found = _STATIC
    # Every part is one plain name: nothing outside of the directory can be meant.
    if all(part not in ("", ".", "..", "/") and "\\" not in part for part in parts):
        found = _STATIC.joinpath(*parts)
    try:
        missing = not parts or not found.is_file()
    except OSError:  # No file can have that name.
        missing = True
    if missing:
        return Response(f"There is no file {path}.", 404, media_type="text/plain")
    kind = mimetypes.guess_type(parts[-1])[0] or "application/octet-stream"
    return Response(found.read_bytes(), status, media_type=kind, headers={"Cache-Control": "no-cache"})
