"""Who may ask for what: a token on every address but loopback, and a guard against pages of other sites.

A browser sends an `Origin` with what a page of another site makes it ask, and such a page cannot add a header of
ours. So an action that comes with an `Origin`, or with word of another site (`Sec-Fetch-Site`), must also come with
`X-Tidemark-CSRF`; command lines and Flink's clients send neither. A page under another name that resolves to this
machine would be of the same origin, so the names a server on loopback answers to are fixed as well. Other users of the
machine reach a loopback address, too: without a token they are refused, where the system tells whose a connection is.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass

from tidemark.errors import ConfigError
from tidemark.rpc.peers import Address, is_own_user
from tidemark.web.calls import ApiError

__all__ = ["COOKIE", "CSRF_HEADER", "HEADERS", "Guard", "is_loopback"]

COOKIE = "tidemark_token"
CSRF_HEADER = "x-tidemark-csrf"

HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
"""Of every answer."""


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach an address."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Guard:
    """Decides about requests.

    Attributes:
        bind: The address of the server.
        token: What a caller must know; None on loopback only.
    """

    bind: str
    token: str | None = None

    def __post_init__(self) -> None:
        if self.token is None and not is_loopback(self.bind):
            raise ConfigError(
                f"rest.bind-address is {self.bind}, which other machines can reach, and rest.token is not set. Set "
                "a token, or bind to 127.0.0.1 and use a tunnel.",
                key="rest.token",
            )

    def check(self, method: str, headers: Mapping[str, str], cookie: str | None) -> None:
        """Let a request pass, or not.

        Raises:
            ApiError: 401, the token is missing or wrong; 403, a page of another site seems to have sent it.
        """
        bearer = _bearer(headers.get("authorization", ""))
        if self.token is not None and not (self.accepts(bearer) or self.accepts(cookie)):
            raise ApiError(
                401, "A token is required: 'Authorization: Bearer <rest.token>', or log in at /login."
            )
        if self.token is None and not self._is_our_name(headers.get("host", "")):
            raise ApiError(403, "This server answers to its own address only, not under another name.")
        if method in ("GET", "HEAD") or self.accepts(bearer):
            return
        of_a_page = "origin" in headers or headers.get("sec-fetch-site", "none") != "none"
        if of_a_page and CSRF_HEADER not in headers:
            raise ApiError(403, "An action of a page must carry the header 'X-Tidemark-CSRF: 1'.")

    def check_user(self, client: Address | None, server: Address | None) -> None:
        """Let a connection pass whose other end is there, or not; a token stands for its user.

        Raises:
            ApiError: 403, it is another user's.
        """
        if self.token is None and not is_own_user(client, server):
            raise ApiError(
                403,
                "This server answers to the user its jobs run as and to root. Set rest.token to let others in.",
            )

    def accepts(self, token: str | None) -> bool:
        """Whether that is the token; takes the same time for every wrong one."""
        if self.token is None or token is None:
            return False
        return hmac.compare_digest(token.encode(), self.token.encode())

    def _is_our_name(self, host: str) -> bool:
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        return is_loopback(name.strip("[]"))


def _bearer(header: str) -> str | None:
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None
