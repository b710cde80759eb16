"""Server-sent events: what the page shows, again whenever it has changed, at most once a second."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tidemark.web import job_json
from tidemark.web.calls import Call, encode
from tidemark.web.routes.checkpoints import history_of
from tidemark.web.routes.jobs import overview
from tidemark.web.triggers import Triggers
from tidemark.web.view import Jobs

__all__ = ["event_stream"]

_STEP_S = 1.0
_LOOK_UP_S = 0.1
"""How soon a stream notices that the server closes."""
_KEEP_ALIVE_S = 15
_HISTORY = 100
"""Checkpoints in one event; older ones are asked for by page."""


def event_stream(
    source: Jobs, triggers: Triggers, is_closing: Callable[[], bool]
) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint."""

    def documents(job_id: str | None) -> dict[str, bytes]:
        found = {"overview": encode(overview(Call(source, triggers)))}
        view = None if job_id is None else source.find(job_id)
        if view is not None:
            found["job"] = encode(job_json.details(view.facts()))
            found["checkpoints"] = encode(history_of(view, 0, _HISTORY))
        return found

    async def stream(request: Request, job_id: str | None) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        sent: dict[str, bytes] = {}
        last = loop.time()
        yield b": keep-alive\n\n"
        while not is_closing():
            began = loop.time()
            for name, data in (await run_in_threadpool(documents, job_id)).items():
                if sent.get(name) != data:
                    sent[name] = data
                    last = loop.time()
                    yield b"event: %s\ndata: %s\n\n" % (name.encode(), data)
            if loop.time() - last > _KEEP_ALIVE_S:
                last = loop.time()
                yield b": keep-alive\n\n"
            while loop.time() - began < _STEP_S and not is_closing():
                await asyncio.sleep(_LOOK_UP_S)
                if await request.is_disconnected():
                    return

    async def serve(request: Request) -> Response:
        return StreamingResponse(
            stream(request, request.query_params.get("job")),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )

    return serve
