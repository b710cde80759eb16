"""The page: static files of the package, and the form where a token is given."""

from __future__ import annotations

import mimetypes
from importlib import resources
from pathlib import PurePosixPath
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from tidemark.web.security import COOKIE, Guard

__all__ = ["is_page", "is_public", "routes", "to_login"]

_STATIC = resources.files("tidemark.web") / "static"
_LOGIN = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>tidemark</title></head>
<body>
<main>
<h1>tidemark</h1>
<form method="post" action="/login">
<label for="token">Token (rest.token)</label>
<input id="token" name="token" type="password" autocomplete="current-password" autofocus required>
<button type="submit">Log in</button>
</form>
{message}
</main>
</body>
</html>
"""
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
        if request.method == "GET":
            return Response(_LOGIN.format(message=""), media_type="text/html")
        form = b""
        async for part in request.stream():
            form += part
            if len(form) > _MAX_FORM:
                return Response(
                    _LOGIN.format(message="<p>That is too long.</p>"), 413, media_type="text/html"
                )
        token = parse_qs(form.decode(errors="replace")).get("token", [""])[0]
        if not guard.accepts(token):
            return Response(
                _LOGIN.format(message="<p>That is not the token.</p>"), 401, media_type="text/html"
            )
        answer = RedirectResponse("/", 303)
        secure = request.url.scheme == "https"
        answer.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=secure, path="/")
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


def _answer(path: str) -> Response:
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
    return Response(found.read_bytes(), media_type=kind, headers={"Cache-Control": "no-cache"})
