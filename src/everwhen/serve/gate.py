"""Who may ask: every request passes here first, and every answer leaves with the same headers.

    host      the name that was asked for is ours, not one that was bent to our address (DNS rebinding)
    origin    a browser that asks for a page of somebody else is refused; nobody else is allowed to read (no CORS)
    size      a body is small, and read whole before anybody looks at it
    form      orders are `application/json`, which no form of another page can send
    token     who knows the token of the address gets a cookie that only this site sends (HttpOnly, SameSite=Strict)

The page itself, which has no secrets, is for whoever passes the first two.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from asyncio import CancelledError
from collections.abc import Iterable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST_BODY: Final = 64 * 1024
OPEN: Final = frozenset({"/api/login"})
"""What is asked for without a token."""
HARMLESS: Final = frozenset({"/api/login", "/api/logout", "/api/explain", "/api/complete"})
"""Orders that change nothing."""
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


def hosts_of(names: Iterable[str], port: int) -> frozenset[str]:
    """The values of the header Host that are ours.

    >>> sorted(hosts_of(["127.0.0.1", "::1"], 80))
    ['127.0.0.1', '127.0.0.1:80', '[::1]', '[::1]:80']
    """
    shown = [f"[{name}]" if ":" in name else name.lower() for name in names]
    return frozenset(f"{name}:{port}" for name in shown) | frozenset(shown if port == 80 else ())


@dataclass(frozen=True)
class Rules:
    """What is allowed."""

    token: str
    hosts: frozenset[str]
    port: int
    read_only: bool = False

    @property
    def cookie_name(self) -> str:
        return f"everwhen_{self.port}"

    @property
    def cookie(self) -> str:
        """What the cookie says: from it nobody learns the token."""
        return hmac.new(self.token.encode(), b"everwhen page cookie", hashlib.sha256).hexdigest()

    def is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())

    def is_known(self, headers: Headers) -> bool:
        """Whether a request has the cookie, or the token as a bearer's."""
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self.is_token(given.strip()):
            return True
        try:
            jar = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return False
        found = jar.get(self.cookie_name)
        return found is not None and hmac.compare_digest(found.value.encode(), self.cookie.encode())


@dataclass(frozen=True, slots=True)
class Refusal:
    status: int
    kind: str
    message: str


class Gate:
    """The first to see a request and the last to see an answer."""

    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        self.app, self.rules = app, rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # there are no web sockets here
        is_api = scope["path"].startswith("/api/")

        async def sent(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                for name, value in HEADERS.items():
                    headers[name] = value
                headers["Cache-Control"] = "no-store" if is_api else "no-cache"
            await send(message)

        refusal = self._refused(scope)
        if refusal is not None:
            await _refuse(refusal, sent)
            return
        body = await _body(receive) if scope["method"] in ("POST", "PUT", "PATCH", "DELETE") else b""
        if body is None:
            await _refuse(Refusal(413, "too large", f"a body has at most {LARGEST_BODY:,} bytes"), sent)
            return
        with suppress(CancelledError):  # the server ends, and a browser does not read
            await self.app(scope, _replayed(body, receive), sent)

    def _refused(self, scope: Scope) -> Refusal | None:
        headers, path, method = Headers(scope=scope), scope["path"], scope["method"]
        if headers.getlist("host") and len(headers.getlist("host")) != 1:
            return Refusal(400, "host", "a request has one Host")
        if headers.get("host", "").lower() not in self.rules.hosts:
            return Refusal(421, "host", "this server does not answer under that name; use the address that it printed")
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in {f"http://{host}" for host in self.rules.hosts}:
            return Refusal(403, "origin", "a page of another origin may not ask here")
        if path.startswith("/api/") and headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return Refusal(403, "origin", "a page of another site may not ask here")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > LARGEST_BODY:
            return Refusal(413, "too large", f"a body has at most {LARGEST_BODY:,} bytes")
        if path.startswith("/api/") and path not in OPEN and not self.rules.is_known(headers):
            return Refusal(401, "token", "the token is missing or wrong; open the address that the server printed")
        if method == "POST" and headers.get("content-type", "").split(";")[0].strip().lower() != "application/json":
            return Refusal(415, "form", "an order is application/json")
        if method not in ("GET", "HEAD") and self.rules.read_only and path not in HARMLESS:
            return Refusal(403, "read-only", "this page only shows: it watches a job, or is read-only")
        return None


async def _body(receive: Receive) -> bytes | None:
    """The whole body; None if it is too large."""
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return b""  # it has left
        part = message.get("body", b"")
        parts.append(part)
        size += len(part)
        if size > LARGEST_BODY:
            return None
        if not message.get("more_body", False):
            return b"".join(parts)


def _replayed(body: bytes, receive: Receive) -> Receive:
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


async def _refuse(refusal: Refusal, send: Send) -> None:
    told = {"error": {"kind": refusal.kind, "message": refusal.message}}
    body = json.dumps(told).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
