"""The published OpenAPI file says what the server does."""

from __future__ import annotations

import json
from pathlib import Path

from starlette.routing import Route as HttpRoute
from tests.web.conftest import Site

from tidemark.runtime.web_jobs import DriverJobs
from tidemark.web.application import ROUTES, WebSettings, create_application
from tidemark.web.openapi import document
from tidemark.web.security import Guard
from tidemark.web.triggers import Triggers

FILE = Path(__file__).parents[2] / "docs" / "reference" / "rest-openapi.json"


def test_the_published_file_is_up_to_date() -> None:
    assert json.loads(FILE.read_text(encoding="utf-8")) == document(), "run python scripts/make_openapi.py"


def test_every_served_path_is_in_the_file_and_every_path_of_the_file_is_served() -> None:
    application = create_application(DriverJobs({}), WebSettings(Guard("127.0.0.1")), Triggers())
    served = {route.path for route in application.routes if isinstance(route, HttpRoute)}
    pages = {"/", "/index.html", "/static/{path:path}", "/login", "/{path:path}"}

    published = set(document()["paths"])

    versioned = {path for path in served if path.startswith("/v1")}
    assert published - {"/metrics"} == versioned
    assert served - versioned - pages - {"/metrics"} == {path.removeprefix("/v1") for path in versioned}


def test_every_operation_has_its_own_id() -> None:
    ids = [
        one["operationId"]
        for path in document()["paths"].values()
        for one in path.values()
        if "operationId" in one
    ]

    assert len(ids) == len(set(ids)) == len(ROUTES)


def test_methods_that_the_file_does_not_name_are_refused(site: Site) -> None:
    for path, operations in document()["paths"].items():
        if "{" in path or path in ("/metrics", "/v1/events"):
            continue
        for method in ("get", "post", "patch", "delete", "put"):
            answer = site.client.request(method, path)
            assert (answer.status_code == 405) == (method not in operations), (method, path)
