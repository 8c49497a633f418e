"""The application: the page's files, the endpoints, and the gate before them."""

from __future__ import annotations

import mimetypes
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from importlib.resources import files
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from everwhen.serve.api import ENDPOINTS
from everwhen.serve.endpoints import Endpoints
from everwhen.serve.gate import Gate, Rules
from everwhen.serve.observer import Observer
from everwhen.serve.subscribers import Subscribers
from everwhen.serve.watched import Watched

_KINDS: Final = {"js": "text/javascript", "css": "text/css", "html": "text/html", "svg": "image/svg+xml"}


def make_app(engine: Watched, rules: Rules, subscribers: Subscribers) -> ASGIApp:
    """Serve an engine; it and its observer run as long as the application does."""
    observer = Observer(engine, subscribers)
    endpoints = Endpoints(engine, observer, subscribers, rules)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        engine.start()
        observer.start()
        try:
            yield
        finally:
            subscribers.close()
            observer.stop()
            engine.stop()

    routes = [Route(each.path, endpoints.handler(each), methods=[each.method]) for each in ENDPOINTS]
    routes += [Route("/", _page), Route("/{file}", _page)]
    errors = {404: _not_found, 405: _not_found, 500: _unforeseen}
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=errors)
    app.state.subscribers, app.state.observer = subscribers, observer
    return Gate(app, rules)


@cache
def page_files() -> dict[str, bytes]:
    """The files of the page by name: what is not here is not served."""
    folder = files("everwhen.serve") / "page"
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.name.rpartition(".")[2] in _KINDS}


async def _page(request: Request) -> Response:
    name = request.path_params.get("file", "index.html")
    found = page_files().get(name)
    if found is None:
        return await _not_found(request, Exception())
    kind = _KINDS.get(name.rpartition(".")[2]) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    return Response(found, media_type=kind)


async def _not_found(request: Request, _: Exception) -> Response:
    told = {"error": {"kind": "request", "message": f"there is nothing to {request.method} at this address"}}
    return JSONResponse(told, 404)


async def _unforeseen(request: Request, error: Exception) -> Response:
    told = {"error": {"kind": "unforeseen", "message": f"unforeseen {type(error).__name__}; the server goes on"}}
    return JSONResponse(told, 500)
