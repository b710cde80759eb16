"""Bodies of requests: small, and sent without dawdling."""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect, Request

from tidemark.web.calls import ApiError

__all__ = ["MAX_BODY", "body_of"]

MAX_BODY = 1 << 20
"""Bytes of the largest request; bodies only name directories."""
_PATIENCE_S = 30.0


async def body_of(request: Request, most: int = MAX_BODY) -> bytes:
    """The body, as long as it is small: what is too large is not read to its end.

    Raises:
        ApiError: 413, it is larger than `most`; 408, it did not come in time; 400, the caller is gone.
    """
    size, parts = 0, []
    try:
        async with asyncio.timeout(_PATIENCE_S):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise ApiError(413, f"The request's body has more than {most} bytes.")
                parts.append(part)
    except TimeoutError:
        raise ApiError(408, f"The request's body did not come within {_PATIENCE_S:.0f} s.") from None
    except ClientDisconnect:
        raise ApiError(400, "The connection was closed before the request's body had come.") from None
    return b"".join(parts)
