"""`everwhen serve`: a socket of this machine, a token, and the application until Ctrl-C."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import uvicorn

from everwhen.errors import QueryError
from everwhen.serve.app import make_app
from everwhen.serve.gate import Rules, hosts_of
from everwhen.serve.subscribers import MOST, Subscribers
from everwhen.serve.watched import Watched

PORT: Final = 8642
LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_CONNECTIONS: Final = 200


@dataclass(frozen=True)
class Place:
    """Where to serve.  `port` None: the usual one, or a free one if it is taken; 0: a free one."""

    host: str = "127.0.0.1"
    port: int | None = None
    names: Sequence[str] = ()
    """Other names by which this server is asked for."""
    read_only: bool = False

    @property
    def is_local(self) -> bool:
        return self.host in LOOPBACK


def open_socket(place: Place) -> socket.socket:
    """A socket that listens; a port that is taken is a `QueryError`."""
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    ports = [PORT, 0] if place.port is None else [place.port]
    for port in ports:
        made = socket.socket(family, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((place.host, port))
            made.listen(128)
            return made
        except OSError as bad:
            made.close()
            if port != ports[-1]:
                continue
            words = f"--port {port} of {place.host} cannot be used: {bad.strerror or bad}"
            raise QueryError(f"{words}; give another one, or --port 0 for one that is free") from None
    raise AssertionError("there is a port to try")


class PageServer(uvicorn.Server):
    """A server that ends the streams of its pages before it waits for their connections."""

    def __init__(self, config: uvicorn.Config, subscribers: Subscribers) -> None:
        super().__init__(config)
        self.subscribers = subscribers

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.subscribers.close()
        await super().shutdown(sockets)


def make_server(
    engine: Watched, rules: Rules, most: int = MOST, opened: Callable[[], object] | None = None
) -> PageServer:
    """A server of the page, not started yet.  `opened` is called when the first page is opened."""
    subscribers = Subscribers(most, opened)
    config = uvicorn.Config(
        make_app(engine, rules, subscribers), log_level="warning", access_log=False, server_header=False,
        date_header=False, limit_concurrency=_CONNECTIONS, timeout_graceful_shutdown=1, ws="none",
    )  # fmt: skip
    return PageServer(config, subscribers)


def rules_of(place: Place, listening: socket.socket, token: str) -> Rules:
    """Who may ask at a socket that listens."""
    port = int(listening.getsockname()[1])
    own = LOOPBACK if place.is_local else (place.host,)
    return Rules(token, hosts_of((*own, *place.names), port), port, place.read_only)


def address_of(place: Place, rules: Rules) -> str:
    """What a browser opens."""
    shown = place.names[0] if place.names else "127.0.0.1" if place.is_local else place.host
    shown = f"[{shown}]" if ":" in shown else shown
    return f"http://{shown}:{rules.port}/#token={rules.token}"


def serve(
    engine: Watched,
    place: Place,
    tell: Callable[[str], None],
    token: str | None = None,
    opened: Callable[[], object] | None = None,
) -> None:
    """Serve until Ctrl-C or SIGTERM.  `opened` is called when the first page is opened."""
    token = token or secrets.token_urlsafe(24)
    listening = open_socket(place)
    rules = rules_of(place, listening, token)
    server = make_server(engine, rules, opened=opened)
    tell(f"the page is at {address_of(place, rules)}")
    if not place.is_local:
        tell("it is open to the network without encryption: whoever can listen there can read the token")
    with suppress(KeyboardInterrupt):
        server.run(sockets=[listening])
