"""Serves the page's files and canned answers, with the headers of the real server.

To look at it: `python -m tests.browser.fixture_server 8099`.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.browser.canned import CannedJob

from tidemark import __version__

STATIC = Path(str(files("tidemark"))) / "web" / "static"
CSP = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


class FixtureServer:
    """A server on a free port of loopback, for as long as the block lasts.

    Attributes:
        jobs: What it serves, by id.
        token: What must be known to get in; None lets everybody in.
        streams: How many event streams are open.
        tick_s: How often jobs move on and streams are written; 0 is never but when `publish` is called.
        requests: Method, path and body of every action, and the header that guards it.
    """

    def __init__(
        self, *jobs: CannedJob, token: str | None = None, tick_s: float = 0.2, port: int = 0
    ) -> None:
        self.jobs = {job.job_id: job for job in jobs}
        self.token = token
        self.tick_s = tick_s
        self.streams = 0
        self.opened = 0
        self.requests: list[tuple[str, str, Any, str | None]] = []
        self.stopping = threading.Event()
        self.lock = threading.Lock()
        self.news = threading.Condition(self.lock)
        self.version = 0
        handler = type("Handler", (_Handler,), {"site": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", port), handler)
        self._server.daemon_threads = True
        self._threads = [
            threading.Thread(target=self._server.serve_forever, daemon=True),
            threading.Thread(target=self._tick, daemon=True),
        ]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def _tick(self) -> None:
        while self.tick_s and not self.stopping.wait(self.tick_s):
            self.publish()

    def publish(self) -> None:
        """A second passes for all jobs, and streams tell so."""
        with self.lock:
            for job in self.jobs.values():
                job.advance()
            self.version += 1
            self.news.notify_all()

    def __enter__(self) -> FixtureServer:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        with self.lock:
            self.news.notify_all()
        self._server.shutdown()
        self._server.server_close()
        for thread in self._threads:
            thread.join()

    def overview(self) -> dict[str, Any]:
        return {"jobs": [job.overview() for job in self.jobs.values()]}

    def answer(self, path: str, query: dict[str, str]) -> Any:
        """The JSON of a GET below /v1, or None."""
        if path == "config":
            return {"refresh-interval": 1000, "flink-version": __version__}
        if path == "jobs/overview":
            return self.overview()
        if path == "taskmanagers":
            return {"taskmanagers": [slot for job in self.jobs.values() for slot in job.slots()]}
        match = re.fullmatch(r"jobs/([^/]+)(?:/(.*))?", path)
        job = self.jobs.get(unquote(match[1])) if match else None
        return _of_job(job, match[2] or "", query) if match and job else None


def _of_job(job: CannedJob, path: str, query: dict[str, str]) -> Any:
    plain = {
        "": job.job,
        "plan": lambda: {"plan": job.plan()},
        "exceptions": job.exceptions,
        "checkpoints/config": job.checkpoint_config,
        "savepoints": lambda: {"savepoints": job.savepoints},
        "states": job.states,
        "settings": job.settings,
        "series": job.series,
    }
    if path in plain:
        return plain[path]()
    if path == "checkpoints":
        return job.checkpoints(int(query.get("offset", 0)), int(query.get("limit", 100)))
    if found := re.fullmatch(r"checkpoints/details/(\d+)", path):
        return job.checkpoint(int(found[1]), tasks=True) if int(found[1]) <= job.checkpoint_count else None
    if found := re.fullmatch(r"checkpoints/details/(\d+)/subtasks/(\w+)", path):
        return job.checkpoint_subtasks(int(found[1]), found[2])
    if found := re.fullmatch(r"savepoints/(.+)", path):
        return job.poll(found[1])
    if found := re.fullmatch(r"vertices/(\w+)(?:/(backpressure|watermarks))?", path):
        if found[2] == "backpressure":
            return job.backpressure()
        return job.watermarks() if found[2] else job.vertex_details(found[1])
    if path == "states/query" and json.loads(query["key"]) == "anna":
        return {"key": "anna", "value": {"seen": 17, "last": "2026-11-16T16:40:12Z"}}
    return None


class _Handler(BaseHTTPRequestHandler):
    site: FixtureServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        if url.path == "/" and not self._allowed():
            self._redirect("/login")
        elif url.path == "/" or url.path.startswith("/static/") or url.path == "/login":
            self._file(url.path)
        elif not self._allowed():
            self._json({"errors": ["A token is required: log in at /login."]}, 401)
        elif url.path == "/v1/events":
            self._events(query.get("job"))
        elif found := re.fullmatch(r"/v1/taskmanagers/([^/]+)-(\d+)/logs(/slot-\d+\.log)?", url.path):
            self._log(self.site.jobs.get(found[1]), found[2], content=bool(found[3]))
        else:
            with self.site.lock:
                answer = self.site.answer(url.path.removeprefix("/v1/"), query)
            if answer is None:
                self._json(
                    {"errors": [f"There is nothing at {unquote(url.path)} with <i>that</i> name."]}, 404
                )
            else:
                self._json(answer)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path.startswith("/login"):
            if parse_qs(body.decode()).get("token") == [self.site.token]:
                self._redirect("/", f"tidemark_token={self.site.token}; HttpOnly; SameSite=Strict; Path=/")
            else:
                self._file("/login", 401)
            return
        self._act("POST", json.loads(body or b"{}"))

    def do_PATCH(self) -> None:
        self._act("PATCH", None)

    def _act(self, method: str, body: Any) -> None:
        guard = self.headers.get("X-Tidemark-CSRF")
        self.site.requests.append((method, self.path, body, guard))
        found = re.fullmatch(r"/v1/jobs/([^/?]+)(?:/(savepoints|stop))?(\?mode=cancel)?", self.path)
        job = self.site.jobs.get(found[1]) if found else None
        if guard != "1":
            self._json({"errors": ["An action of a page must carry the header 'X-Tidemark-CSRF: 1'."]}, 403)
        elif not found or job is None:
            self._json({"errors": ["No such job."]}, 404)
        elif found[3]:
            job.state = "CANCELED"
            self._json({}, 202)
        elif body.get("target-directory") == "/refused":
            self._json({"errors": ["The directory /refused cannot be written."]}, 400)
        else:
            with self.site.lock:
                directory = body.get("target-directory") or body.get("targetDirectory")
                self._json({"request-id": job.trigger(directory)}, 202)

    def _allowed(self) -> bool:
        return self.site.token is None or f"tidemark_token={self.site.token}" in self.headers.get(
            "Cookie", ""
        )

    def _redirect(self, place: str, cookie: str | None = None) -> None:
        self.send_response(303)
        if cookie is not None:
            self.send_header("Set-Cookie", cookie)
        self.send_header("Location", place)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _file(self, path: str, status: int = 200) -> None:
        name = {"/": "index.html", "/login": "login.html"}.get(path) or path.removeprefix("/static/")
        file = (STATIC / name).resolve()
        if not file.is_relative_to(STATIC.resolve()) or not file.is_file():
            self._json({"errors": [f"No file {path}."]}, 404)
        else:
            self._send(file.read_bytes(), TYPES.get(file.suffix, "text/plain"), status)

    def _log(self, job: CannedJob | None, slot: str, *, content: bool) -> None:
        if job is None:
            self._json({"errors": [f"There is no slot {slot}."]}, 404)
        elif content:
            self._send(job.log(f"slot {slot}").encode(), "text/plain")
        else:
            self._json({"logs": [{"name": f"slot-{slot}.log", "size": 5000}]})

    def _json(self, content: Any, status: int = 200) -> None:
        self._send(json.dumps(content).encode(), "application/json", status)

    def _send(self, content: bytes, kind: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-Security-Policy", CSP)
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(content)

    def _events(self, job_id: str | None) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        self.site.streams += 1
        self.site.opened += 1
        try:
            seen = -1
            while not self.site.stopping.is_set():
                with self.site.lock:
                    while self.site.version == seen and not self.site.stopping.is_set():
                        self.site.news.wait()
                    seen, news = self.site.version, self._news(job_id)
                for name, data in news:
                    self.wfile.write(f"event: {name}\ndata: {json.dumps(data)}\n\n".encode())
                self.wfile.flush()
        except OSError:
            pass  # the page went away
        finally:
            self.site.streams -= 1

    def _news(self, job_id: str | None) -> list[tuple[str, Any]]:
        news: list[tuple[str, Any]] = [("overview", self.site.overview())]
        job = self.site.jobs.get(job_id or "")
        if job is not None:
            news += [("job", job.job()), ("checkpoints", job.checkpoints())]
        return news


if __name__ == "__main__":
    ended = CannedJob(job_id="0" * 31 + "2", name="word count", state="FINISHED", failed_once=False)
    with FixtureServer(CannedJob(), ended, port=int(sys.argv[1])) as site:
        print(site.url, flush=True)
        threading.Event().wait()
